//! A limit of memory on a process, page cache included, where the system lets this program set one: root,
//! where version 2 of control groups has the memory.

use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";

/// A group that is removed when this is dropped, once no process is in it.
pub(super) struct Limited {
    path: PathBuf,
}

impl Limited {
    /// Makes a group that holds as many bytes; why not, if it cannot be made.
    pub(super) fn new(bytes: u64) -> Result<Limited, String> {
        Limited::below(Path::new(ROOT), bytes)
    }

    fn below(root: &Path, bytes: u64) -> Result<Limited, String> {
        let given = std::fs::read_to_string(root.join("cgroup.subtree_control"))
            .map_err(|_| format!("no cgroup of version 2 is mounted at {}", root.display()))?;
        if !given.split_whitespace().any(|controller| controller == "memory") {
            return Err(format!("{} does not hand on the control of memory", root.display()));
        }
        let failed =
            |error: std::io::Error| format!("no cgroup could be made in {}: {error}", root.display());
        let path = root.join(format!("peers-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(failed)?;
        let limited = Limited { path };
        std::fs::write(limited.path.join("memory.max"), bytes.to_string()).map_err(failed)?;
        Ok(limited)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // One that cannot be removed is empty, and the system's to remove.
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// Puts this process, which has not begun its work, into the group.
pub(super) fn enter(group: &Path) -> Result<(), String> {
    std::fs::write(group.join("cgroup.procs"), "0").map_err(|error| format!("{}: {error}", group.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group is made where memory is handed on, with its limit, and told why where it is not.
    #[test]
    fn groups_are_made_where_they_can_be() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let why = || Limited::below(root.path(), 5).err().expect("it cannot be made");
        assert!(why().contains("no cgroup of version 2"));
        let control = root.path().join("cgroup.subtree_control");
        std::fs::write(&control, "cpu io\n").expect("it is written");
        assert!(why().contains("does not hand on"));
        std::fs::write(&control, "cpu memory\n").expect("it is written");
        let limited = Limited::below(root.path(), 5).expect("it is made");
        let limit = std::fs::read_to_string(limited.path().join("memory.max")).expect("it is there");
        assert_eq!(limit, "5");
        enter(limited.path()).expect("it is entered");
    }
}
