//! The child's check of a damaged store: opens it, reads everything by gets and by a scan, and prints the
//! findings.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::items;
use crate::engines::{self, Answer, Engine, Purpose};

/// Findings in a store that was checked to the end.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(super) struct Seen {
    /// The error of the opening, if the opening failed.
    pub(super) refused: Option<String>,
    /// Calls that returned an error, and the first error.
    pub(super) errors: u64,
    pub(super) error: Option<String>,
    /// Wrong answers without an error: a missing key, or a value that the key never had or no longer has.
    pub(super) missing: u64,
    pub(super) altered: u64,
    pub(super) wrong: Option<String>,
}

impl Seen {
    fn error(&mut self, error: String) {
        self.errors += 1;
        self.error.get_or_insert(error);
    }

    fn answer(&mut self, call: &str, key: &[u8], found: Option<&[u8]>, right: Option<&[u8]>) {
        if found == right {
            return;
        }
        if found.is_none() {
            self.missing += 1;
        } else {
            self.altered += 1;
        }
        let shown = |bytes: Option<&[u8]>| match bytes {
            Some(bytes) => String::from_utf8_lossy(bytes).chars().take(40).collect(),
            None => "nothing".to_owned(),
        };
        let key = String::from_utf8_lossy(key).into_owned();
        let text = format!("{call} of {key}: {} instead of {}", shown(found), shown(right));
        self.wrong.get_or_insert(text);
    }
}

/// The command `check`, run by the child.
pub(crate) fn check(store: &str, directory: &Path) -> Answer<()> {
    limit();
    // The parent reads the panic's message from the output; the process ends as it would without the hook.
    std::panic::set_hook(Box::new(|panic| println!("panic: {}", panic.to_string().replace('\n', " "))));
    let seen = look(store, directory)?;
    println!("{}", serde_json::to_string(&seen).map_err(engines::told)?);
    Ok(())
}

/// Allows no core files, and no more memory than a small store can need: a damaged length must not exhaust
/// the machine's memory.
fn limit() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    const ADDRESSES_BYTES_MAX: u64 = 8 << 30;
    for (resource, most) in [(Resource::Core, 0), (Resource::As, ADDRESSES_BYTES_MAX)] {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        // A system that refuses a smaller limit has it already.
        let _ = setrlimit(resource, limit);
    }
}

fn look(store: &str, directory: &Path) -> Answer<Seen> {
    let peer = engines::peer(store)?;
    let mut seen = Seen::default();
    let engine = match (peer.open)(directory, Purpose::Check) {
        Ok(engine) => engine,
        Err(error) => return Ok(Seen { refused: Some(error), ..seen }),
    };
    read_keys(engine.as_ref(), &mut seen);
    read_all(engine.as_ref(), &mut seen);
    if let Err(error) = engine.close() {
        seen.error(error);
    }
    Ok(seen)
}

fn read_keys(engine: &dyn Engine, seen: &mut Seen) {
    let absent = items::absent().map(|key| (key, None));
    for (key, right) in items::expected().into_iter().chain(absent) {
        match engine.get(&key) {
            Ok(found) => seen.answer("get", &key, found.as_deref(), right.as_deref()),
            Err(error) => seen.error(error),
        }
    }
}

/// A scan that ends with an error is judged by the items before the error, other scans by all items.
fn read_all(engine: &dyn Engine, seen: &mut Seen) {
    let mut found = Vec::new();
    let result = engine.scan(&mut |key, value| found.push((key.to_vec(), value.to_vec())));
    let mut expected = items::expected();
    expected.retain(|_, value| value.is_some());
    let mut expected = expected.into_iter().peekable();
    for (key, value) in found {
        while let Some((missing, right)) = expected.next_if(|(right, _)| *right < key) {
            seen.answer("scan", &missing, None, right.as_deref());
        }
        let right = expected.next_if(|(right, _)| *right == key).and_then(|(_, right)| right);
        seen.answer("scan", &key, Some(&value), right.as_deref());
    }
    match result {
        Ok(()) => expected.for_each(|(key, right)| seen.answer("scan", &key, None, right.as_deref())),
        Err(error) => seen.error(error),
    }
}
