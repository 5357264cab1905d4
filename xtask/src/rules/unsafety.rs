//! Files that may have `unsafe`: those in this list, which must also declare it at their top.

use super::places;
use crate::finding::Finding;
use crate::source::Source;

/// Files, and folders with a `/` at the end. No file of `src/format` may be in the list.
pub(crate) const UNSAFE_FILES: &[&str] = &[
    "src/base/region.rs",
    "src/base/epoch.rs",
    "src/base/sync/model.rs",
    "src/base/prefetch.rs",
    "src/memtable/arena.rs",
    "src/cache/frames.rs",
    "src/cache/pool.rs",
    "src/io/fork.rs",
    "src/io/os/",
    "tests/raw.rs",
    "fuzz/targets/src/allocations.rs",
    "peers/src/bench/engines/lmdb.rs",
    "peers/src/engines/lmdb.rs",
    "peers/src/wiredtiger.rs",
];

const SAYS_SO: &[&str] = &["#", "!", "[", "expect", "(", "unsafe_code"];
/// A file with unsafe code for some systems or processors declares it for these only.
const SAYS_WHERE: &[&str] = &["#", "!", "[", "cfg_attr"];
const SAYS_IT: &[&str] = &["expect", "(", "unsafe_code"];

pub(crate) fn check(source: &Source, out: &mut Vec<Finding>) {
    let tokens = source.tokens();
    let line = |index: usize| source.line_of(tokens[index].at);
    let first = places(&tokens, &["unsafe"]).next();
    let says_where = places(&tokens, SAYS_WHERE).next();
    let says_it_there = says_where.and_then(|index| places(&tokens, SAYS_IT).find(|at| *at > index));
    let says_so = places(&tokens, SAYS_SO).next().or(says_it_there);
    let listed = UNSAFE_FILES.iter().any(|listed| {
        if listed.ends_with('/') { source.path.starts_with(listed) } else { source.path == *listed }
    });
    if let Some(index) = first.or(says_so).filter(|_| !listed) {
        out.push(Finding::new(
            &source.path,
            line(index),
            "unsafe code in a file that is not listed for it",
            "Write it safely, or in a listed file; the list is in xtask/src/rules/unsafety.rs",
        ));
    } else if let Some(index) = first.filter(|_| says_so.is_none()) {
        out.push(Finding::new(
            &source.path,
            line(index),
            "unsafe code in a file that does not say so",
            "Put #![expect(unsafe_code, reason = \"..\")] under the module doc",
        ));
    } else if listed && first.is_none() && !source.path.ends_with("/mod.rs") && !in_folder(&source.path) {
        out.push(Finding::new(
            &source.path,
            1,
            "a file listed for unsafe code that has none",
            "Take it off the list in xtask/src/rules/unsafety.rs",
        ));
    }
    for index in places(&tokens, &["#", "[", "expect", "(", "unsafe_code"]) {
        out.push(Finding::new(
            &source.path,
            line(index),
            "unsafe code let into one item",
            "Say it once for the file, under the module doc",
        ));
    }
}

/// Whether the folder is listed: a file in a listed folder need not be unsafe.
fn in_folder(path: &str) -> bool {
    UNSAFE_FILES.iter().any(|listed| listed.ends_with('/') && path.starts_with(listed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::findings;

    const EXPECT: &str = "//! a\n#![expect(unsafe_code, reason = \"b\")]\n";

    /// Unsafe code outside the list, or in a listed file without a declaration, is an error. A permission
    /// without unsafe code is an error too.
    #[test]
    fn unsafe_is_listed_and_said() {
        let body = "fn f() { unsafe { g() } }";
        let said = format!("{EXPECT}{body}");
        for (path, text, count) in [
            ("src/base/region.rs", said.as_str(), 0),
            ("src/base/region.rs", &format!("//! a\n#![cfg_attr(b, expect(unsafe_code))]\n{body}"), 0),
            ("src/base/region.rs", body, 1),
            ("src/base/region.rs", "//! safe", 1),
            ("src/format/header.rs", said.as_str(), 1),
            ("src/format/header.rs", EXPECT, 1),
            ("src/format/header.rs", "// unsafe\nconst A: &str = \"unsafe\";", 0),
            ("src/io/os/ring.rs", said.as_str(), 0),
            ("src/io/os/file.rs", "//! safe", 0),
            ("src/base/epoch.rs", &format!("{said}\n#[expect(unsafe_code, reason = \"c\")] fn h() {{}}"), 1),
        ] {
            assert_eq!(findings(check, path, text).len(), count, "{path} {text}");
        }
    }

    /// Decoders of bytes from disk are never in the list.
    #[test]
    fn format_is_never_listed() {
        assert!(UNSAFE_FILES.iter().all(|path| !path.starts_with("src/format")));
    }
}
