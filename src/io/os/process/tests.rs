//! Tests of `process`, some of whose code runs in a forked process.

#![expect(unsafe_code, reason = "runs code in a forked process")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use super::*;
use crate::io::sim::SimMemory;

/// A forked process is detected by memory that the fork cleared, or by its id where the system has no such
/// memory. The parent is not affected.
#[test]
fn f18_forked_processes_are_told() {
    assert_eq!(OwnProcess::new().byte.is_some(), cfg!(target_os = "linux"));
    for process in [OwnProcess::new(), OwnProcess::with(&SimMemory)] {
        assert!(!process.is_forked() && process.check().is_ok());
        let process = Arc::new(process);
        let copied = Arc::clone(&process);
        let look = move || match copied.check() {
            Err(Error::Forked) => Ok(()),
            _ => Err(io::ErrorKind::Other.into()),
        };
        let mut command = Command::new("true");
        // SAFETY: the closure loads a byte or asks for the process's id, which is allowed after a fork.
        unsafe { command.pre_exec(look) };
        assert!(command.status().expect("the forked process was told").success());
        assert!(!process.is_forked());
    }
}
