//! Integration tests: the store through its public face, on real files.
//!
//! One binary, a module a subject. They are not tests of one module of the library, which stand beside their code.
//! Every test has a directory of its own and may run beside any other; bounded by counts, never by time.
#![expect(clippy::disallowed_methods, reason = "tests damage files, and run outside the simulator")]

mod bad_input;
mod child;
mod damage;
mod fixture;
mod limits;
mod support;
