//! The program `trine`.
fn main() {}
