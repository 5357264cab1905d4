//! An embedded key-value store for very many small items, read far more often than written.

mod base;
mod io;

pub use base::error::{Corrupt, Error, Result};
