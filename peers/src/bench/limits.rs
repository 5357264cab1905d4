//! A limit of memory on a process, page cache included, where the system lets this program set one.
//!
//! Only version 2 of control groups is tried, below the group this program is in: what another started stays
//! where it is.

use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";

/// A group that is removed when this is dropped, once no process is in it.
pub(super) struct Limited {
    path: PathBuf,
}

impl Limited {
    /// Makes a group that holds as many bytes; why not, if it cannot be made.
    pub(super) fn new(bytes: u64) -> Result<Limited, String> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let inside = own_group(&groups).ok_or("this process is in no cgroup of version 2")?;
        let above = Path::new(ROOT).join(inside.trim_start_matches('/'));
        let given = std::fs::read_to_string(above.join("cgroup.subtree_control"))
            .map_err(|_| format!("no cgroup of version 2 is mounted at {ROOT}"))?;
        if !given.split_whitespace().any(|controller| controller == "memory") {
            return Err("the cgroup of this process does not hand on the control of memory".to_owned());
        }
        let path = above.join(format!("peers-{}", std::process::id()));
        let failed =
            |error: std::io::Error| format!("no cgroup could be made in {}: {error}", above.display());
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

/// The group of version 2 among those of a process.
fn own_group(groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| line.strip_prefix("0::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The group of version 2 is found among those of version 1; there may be none.
    #[test]
    fn own_groups_are_found() {
        assert_eq!(own_group("4:memory:/a\n0::/b/c\n"), Some("/b/c"));
        assert_eq!(own_group("4:memory:/a\n"), None);
    }
}
