//! Opening a store and closing it: files read, decided about and changed, workers started and stopped. A
//! checkpoint, which makes another store, stands here too.

pub(crate) mod checkpoint;
mod close;
mod parts;
pub(crate) mod recover;
mod refill;
mod reflush;
mod settle;
mod start;
pub(crate) mod unnamed;
