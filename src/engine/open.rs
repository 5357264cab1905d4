//! Opening a store and closing it: read back, decided about, changed, and its workers started; and a
//! checkpoint, which makes another.

pub(crate) mod checkpoint;
mod close;
mod parts;
pub(crate) mod recover;
mod refill;
mod reflush;
mod settle;
mod start;
pub(crate) mod unnamed;
