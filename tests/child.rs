//! Work in a child process: the test binary runs itself again with a given role.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use super::{bad_input, descriptors, full_disk, kills, limits, linear, openers};

const ROLE: &str = "TRINE_TEST_ROLE";
const DATA: &str = "TRINE_TEST_DATA";

/// Runs `role` on `data` in a child process; `prefix` is a program and its arguments that start it, or empty.
pub(crate) fn run(prefix: &[&str], role: &str, data: &Path) -> Output {
    command(prefix, role, data).output().expect("the test binary runs")
}

/// The command of [`run`].
pub(crate) fn command(prefix: &[&str], role: &str, data: &Path) -> Command {
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
    command.env(ROLE, role).env(DATA, data);
    command
}

/// A child that runs beside its parent, and is killed when dropped.
pub(crate) struct Running {
    child: Child,
    /// Receives the child's error output once, when the child has ended.
    ended: Receiver<String>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the test binary runs");
        let mut complaints = child.stderr.take().expect("it is piped");
        let (told, ended) = channel();
        std::thread::spawn(move || {
            let mut text = Vec::new();
            std::io::Read::read_to_end(&mut complaints, &mut text).expect("a pipe is read to its end");
            // The receiver may be gone.
            let _ = told.send(String::from_utf8_lossy(&text).into_owned());
        });
        Running { child, ended }
    }

    /// Waits for `time`, or until the child ends; returns the error output of a child that ended.
    pub(crate) fn let_go_on(&self, time: Duration) -> Option<String> {
        match self.ended.recv_timeout(time) {
            Ok(complaints) => Some(complaints),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(String::new()),
        }
    }

    /// Kills the child at once (SIGKILL), and waits until the kernel has ended it.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // The child may have ended by itself.
        let _ = self.child.kill();
        self.child.wait().expect("a child of this process");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// As [`run`], but fails the test if the child failed. Returns the child's output.
pub(crate) fn run_well(prefix: &[&str], role: &str, data: &Path) -> String {
    let output = run(prefix, role, data);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{role}: {printed}{}", String::from_utf8_lossy(&output.stderr));
    printed
}

/// Tests nothing by itself: it is the entry point of a child process.
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
        "load until killed" => kills::load::child(&data),
        "holder" => openers::holder(&data),
        "forker" => openers::forker(&data),
        "on read only" => openers::on_read_only(&data),
        "calls until killed" => linear::child(&data),
        "ended" => kills::power::ended(&data),
        "power cuts" => kills::power::machine(&data),
        _ => panic!("no role {role:?}"),
    }
}
