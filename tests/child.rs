//! Work that a test does in a process of its own: the test binary runs itself again with a role to play.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::{bad_input, descriptors, full_disk, limits};

const ROLE: &str = "TRINE_TEST_ROLE";
const DATA: &str = "TRINE_TEST_DATA";

/// Runs `role` on `data` in a process of its own, begun by `prefix` (a program and its arguments) if there is
/// one.
pub(crate) fn run(prefix: &[&str], role: &str, data: &Path) -> Output {
    let itself = std::env::current_exe().expect("a test has a binary");
    let mut command = match prefix.split_first() {
        None => Command::new(&itself),
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            command.args(arguments).arg(&itself);
            command
        }
    };
    command.args(["--exact", "child::plays_its_role", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env(DATA, data).output().expect("the test binary runs")
}

/// As [`run`]; fails the test if the child failed, and returns what it printed.
pub(crate) fn run_well(prefix: &[&str], role: &str, data: &Path) -> String {
    let output = run(prefix, role, data);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{role}: {printed}{}", String::from_utf8_lossy(&output.stderr));
    printed
}

/// Shows nothing by itself: in a child process it is the way in.
#[test]
fn plays_its_role() {
    let (Ok(role), Some(data)) = (std::env::var(ROLE), std::env::var_os(DATA)) else {
        return;
    };
    let data = PathBuf::from(data);
    match role.as_str() {
        "second opener" => bad_input::second_opener(&data),
        "full by limit" => full_disk::full_by_limit(&data),
        "full by mount" => full_disk::full_by_mount(&data),
        "few descriptors" => descriptors::with_few(&data),
        "load" => limits::load(&data),
        _ => panic!("no role {role:?}"),
    }
}
