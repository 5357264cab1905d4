//! A limit on a process's memory, page cache included, where the system lets this program set one. That needs
//! root and control groups with a memory controller, of version 2 or 1.

use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";

/// A control group that is removed on drop, once no process is in it.
pub(super) struct Limited {
    path: PathBuf,
}

/// The directory below `root` for control groups with a memory controller, of version 2 or 1, and the name of
/// the limit's file.
fn place(root: &Path) -> Result<(PathBuf, &'static str), String> {
    let first = root.join("memory");
    if first.join("memory.limit_in_bytes").exists() {
        return Ok((first, "memory.limit_in_bytes"));
    }
    let given = std::fs::read_to_string(root.join("cgroup.subtree_control"))
        .map_err(|_| format!("no control groups with memory are mounted at {}", root.display()))?;
    if !given.split_whitespace().any(|controller| controller == "memory") {
        return Err(format!("{} does not hand on the control of memory", root.display()));
    }
    Ok((root.to_owned(), "memory.max"))
}

impl Limited {
    /// Makes a control group that may use `bytes`; the error says why it cannot be made.
    pub(super) fn new(bytes: u64) -> Result<Limited, String> {
        Limited::below(Path::new(ROOT), bytes)
    }

    fn below(root: &Path, bytes: u64) -> Result<Limited, String> {
        let (root, limit) = place(root)?;
        let failed =
            |error: std::io::Error| format!("no control group could be made in {}: {error}", root.display());
        let path = root.join(format!("peers-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(failed)?;
        let limited = Limited { path };
        std::fs::write(limited.path.join(limit), bytes.to_string()).map_err(failed)?;
        Ok(limited)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // A group that cannot be removed is empty, and left to the system.
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// Puts this process into the group, before it begins its work.
pub(super) fn enter(group: &Path) -> Result<(), String> {
    std::fs::write(group.join("cgroup.procs"), "0").map_err(|error| format!("{}: {error}", group.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group is made, with its limit, where the memory controller is available; elsewhere the error says
    /// why not.
    #[test]
    fn groups_are_made_where_they_can_be() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let why = || Limited::below(root.path(), 5).err().expect("it cannot be made");
        assert!(why().contains("no control groups with memory"));
        let control = root.path().join("cgroup.subtree_control");
        std::fs::write(&control, "cpu io\n").expect("it is written");
        assert!(why().contains("does not hand on"));
        std::fs::write(&control, "cpu memory\n").expect("it is written");
        let limited = Limited::below(root.path(), 5).expect("it is made");
        let limit = std::fs::read_to_string(limited.path().join("memory.max")).expect("it is there");
        assert_eq!(limit, "5");
        enter(limited.path()).expect("it is entered");
    }

    /// With control groups of version 1, the limit is written to the file of version 1.
    #[test]
    fn the_first_version_has_another_file() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let memory = root.path().join("memory");
        std::fs::create_dir(&memory).expect("it is made");
        std::fs::write(memory.join("memory.limit_in_bytes"), "9").expect("it is written");
        let limited = Limited::below(root.path(), 7).expect("it is made");
        let limit = std::fs::read_to_string(limited.path().join("memory.limit_in_bytes"));
        assert!(limited.path().starts_with(&memory) && limit.expect("it is there") == "7");
    }
}
