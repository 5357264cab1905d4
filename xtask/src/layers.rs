//! The import table: which module of the library may import which, as data, and the check of every path
//! against it.
//!
//! docs/ARCHITECTURE.md holds a copy, written by `cargo xtask layers` and checked by tidy. A change of the
//! table comes with a note in docs/decisions. Tests are exempt: they may set up whatever they need.
//!
//! Invariant: a module imports only what stands above it in the table, so the graph has no cycle.

use crate::finding::Finding;
use crate::paths::{Named, Naming, absolute, named};
use crate::source::{Part, Source};
use crate::tree::Tree;

/// One module of the library.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) module: &'static str,
    /// Modules, or paths inside one, that it may name.
    pub(crate) imports: &'static [&'static str],
    pub(crate) holds: &'static str,
}

/// Top to bottom of the import order: what is imported comes first.
pub(crate) const LAYERS: &[Layer] = &[
    Layer {
        module: "base",
        imports: &[],
        holds: "units, ids, key hash, checksum, bounds-checked codec, errors, the settings table, \
                the protocol's plain types, epochs, memory handed in and granted by role, and the door to \
                atomics and locks",
    },
    Layer {
        module: "format",
        imports: &["base"],
        holds: "bytes to structs and back; no file, clock, lock or thread",
    },
    Layer {
        module: "io",
        imports: &["base"],
        holds: "the only door to the operating system: storage, clock, randomness, threads, memory; \
                and the simulator",
    },
    Layer { module: "memtable", imports: &["base"], holds: "a generation: arena, ordered index, filter" },
    Layer {
        module: "merge",
        imports: &["base"],
        holds: "the loser tree over any sorted sources, both directions: the only one, for scans, \
                flushes and merges",
    },
    Layer { module: "cache", imports: &["base"], holds: "frames, their index, reads in flight" },
    Layer {
        module: "wal",
        imports: &["base", "format", "io"],
        holds: "the log: append with group commit, replay",
    },
    Layer {
        module: "table",
        imports: &["base", "format", "cache", "io"],
        holds: "immutable files of items: building, and which block to look into next",
    },
    Layer {
        module: "levels",
        imports: &["base", "format", "memtable", "table", "io::storage"],
        holds: "version, edit, manifest, the STORE file, view, gaps",
    },
    Layer {
        module: "write",
        imports: &[
            "base",
            "format",
            "io::storage",
            "io::env::Turn",
            "io::env::Worker",
            "wal",
            "memtable",
            "merge",
            "table",
            "levels",
        ],
        holds: "commit, flush",
    },
    Layer {
        module: "read",
        imports: &["base", "format", "cache", "memtable", "merge", "table", "levels"],
        holds: "get and scan as state machines; they ask and are answered, and reach no file",
    },
    Layer {
        module: "compact",
        imports: &["base", "format", "io", "merge", "table", "levels"],
        holds: "what to merge next, and merging it",
    },
    Layer {
        module: "engine",
        imports: &[
            "base", "format", "io", "memtable", "merge", "cache", "wal", "table", "levels", "write", "read",
            "compact",
        ],
        holds: "open and recover, publish views, drive the machines, schedule background work, stats",
    },
    Layer {
        module: "inspect",
        imports: &[
            "base", "format", "io", "memtable", "merge", "cache", "wal", "table", "levels", "write", "read",
            "compact", "engine",
        ],
        holds: "looking into a store's files: verify, dump",
    },
    Layer {
        module: "lab",
        imports: &["base", "format", "io", "merge"],
        holds: "Drizard and Lemur rebuilt from parts, for experiments; behind a feature, beside the engine",
    },
    Layer {
        module: "fuzz",
        imports: &["base", "format"],
        holds: "the decoders as fuzzers call them, and checksums made right again; behind a feature",
    },
    Layer {
        module: "db",
        imports: &["base", "write::batch", "read::scan", "engine", "inspect", "lab", "io::sim"],
        holds: "the public face",
    },
    Layer {
        module: "lib",
        imports: &["base", "write::batch", "read::scan", "engine", "inspect", "lab", "fuzz", "db", "io::sim"],
        holds: "the list of modules and what is public; nothing else is",
    },
];

/// Marks around the copy in docs/ARCHITECTURE.md.
pub(crate) const BEGIN: &str = "<!-- layers: begin; written by `cargo xtask layers`, checked by tidy -->";
pub(crate) const END: &str = "<!-- layers: end -->";

/// The table as Markdown.
pub(crate) fn markdown() -> String {
    let mut out = String::from("| module | may import | holds |\n|---|---|---|\n");
    for layer in LAYERS {
        let imports =
            if layer.imports.is_empty() { "nothing of ours".into() } else { layer.imports.join(", ") };
        out += &format!("| {} | {imports} | {} |\n", layer.module, layer.holds);
    }
    out
}

/// Checks every path of the library against the table.
pub(crate) fn check(tree: &Tree, out: &mut Vec<Finding>) {
    for source in tree.sources.iter().filter(|source| source.in_library()) {
        check_source(source, out);
    }
}

fn check_source(source: &Source, out: &mut Vec<Finding>) {
    let module = source.module();
    let own = module.first().map_or("lib", String::as_str);
    let Some(layer) = LAYERS.iter().find(|layer| layer.module == own) else {
        out.push(Finding::new(
            &source.path,
            1,
            format!("module `{own}` is not in the import table"),
            "Use a module that is, or add a row to xtask/src/layers.rs with a note in docs/decisions",
        ));
        return;
    };
    for one in named(source) {
        if source.part_at(one.at) == Part::Test {
            continue;
        }
        if let Some(path) = from_root(&one, &module)
            && path.first().is_some_and(|top| top != own)
        {
            check_path(source, layer, &one, &path, out);
        }
    }
}

/// The path from the root; in the root itself a plain module name is one too.
fn from_root(one: &Named<'_>, module: &[String]) -> Option<Vec<String>> {
    let in_root = module.is_empty() && LAYERS.iter().any(|layer| layer.module == one.segments[0]);
    if in_root { Some(one.segments.iter().map(|s| s.to_string()).collect()) } else { absolute(one, module) }
}

fn check_path(source: &Source, layer: &Layer, one: &Named<'_>, path: &[String], out: &mut Vec<Finding>) {
    let own = layer.module;
    if LAYERS.iter().all(|other| other.module != path[0]) {
        // The root may define things for itself; nobody else takes anything from there.
        if own != "lib" {
            out.push(Finding::new(
                &source.path,
                source.line_of(one.at),
                format!("`{}` is not a module of the import table", path.join("::")),
                "Name the module where the item lives, crate::module::item",
            ));
        }
        return;
    }
    let allowed = layer.imports.iter().any(|import| {
        let import: Vec<&str> = import.split("::").collect();
        path.len() >= import.len() && import.iter().zip(path).all(|(want, have)| want == have)
    });
    if allowed {
        return;
    }
    let may = if layer.imports.is_empty() { "nothing of ours".to_string() } else { layer.imports.join(", ") };
    out.push(Finding::new(
        &source.path,
        source.line_of(one.at),
        format!("`{own}` imports `{}`", path.join("::")),
        format!(
            "It may import {may}. Take the value as an argument, or move what both need down into a \
             module that both may import"
        ),
    ));
}

/// `pub use` outside the face would make a second way to a name.
pub(crate) fn check_public_uses(tree: &Tree, out: &mut Vec<Finding>) {
    const FACE: &[&str] = &["src/lib.rs", "src/db", "src/inspect", "src/io/sim", "src/lab"];
    for source in tree.sources.iter().filter(|source| source.in_library()) {
        if FACE.iter().any(|face| source.path.starts_with(face)) {
            continue;
        }
        for one in named(source).iter().filter(|one| one.naming == Naming::PublicUse) {
            out.push(Finding::new(
                &source.path,
                source.line_of(one.at),
                "a public re-export outside lib, db, inspect, lab and sim",
                "Say pub(crate) use, or re-export it in src/lib.rs",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let mut out = Vec::new();
        check(&Tree::of(&[(path, text)]), &mut out);
        out.iter().map(Finding::to_string).collect()
    }

    /// The table itself points only upward in the list: no cycles, no unknown names.
    #[test]
    fn the_table_is_a_partial_order() {
        for (index, layer) in LAYERS.iter().enumerate() {
            for import in layer.imports {
                let top = import.split("::").next().unwrap_or_default();
                assert!(LAYERS[..index].iter().any(|above| above.module == top), "{} {import}", layer.module);
            }
        }
    }

    /// Each way to write a forbidden import is seen, with the line it stands on.
    #[test]
    fn forbidden_imports_are_seen() {
        for text in [
            "//! a\nuse crate::io::storage::Storage;",
            "//! a\nuse crate::{base::id, wal::Log};",
            "//! a\nfn f() { crate::compact::pick() }",
            "//! a\nuse super::super::write::Commit;",
            "//! a\nuse crate::engine;",
            "//! a\nuse crate::*;",
            "//! a\nuse crate::Error;",
        ] {
            let found = findings("src/read/get.rs", text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(found[0].starts_with("src/read/get.rs:2: "), "{found:?}");
        }
        assert_eq!(findings("src/write/flush.rs", "use crate::io::env::Env;").len(), 1);
        assert_eq!(findings("src/base/id.rs", "use crate::format::header;").len(), 1);
        assert_eq!(findings("src/lib.rs", "pub use wal::Log;").len(), 1);
        assert_eq!(findings("src/extra/mod.rs", "").len(), 1);
    }

    /// What the table allows passes, as do a module's own paths, other crates and tests.
    #[test]
    fn allowed_imports_pass() {
        let text = "use crate::levels::view::View;\nuse super::scan::Scan;\nuse std::fmt;\n\
                    use crossbeam_epoch::Guard;\n\
                    #[cfg(test)]\nmod tests { use crate::io::sim::Sim; use super::super::super::wal; }";
        assert!(findings("src/read/get.rs", text).is_empty());
        assert!(findings("src/write/flush.rs", "use crate::io::env::{Turn, Worker};").is_empty());
        assert!(findings("src/lib.rs", "mod base;\npub use base::error::Error;").is_empty());
        assert!(findings("src/read/tests.rs", "use crate::io::sim::Sim;").is_empty());
    }

    /// A public re-export is for the face only.
    #[test]
    fn public_uses() {
        let mut out = Vec::new();
        check_public_uses(&Tree::of(&[("src/wal/mod.rs", "pub use x::Y;")]), &mut out);
        assert_eq!(out.len(), 1);
        out.clear();
        let passing =
            [("src/lib.rs", "pub use base::error::Error;"), ("src/wal/mod.rs", "pub(crate) use x::Y;")];
        check_public_uses(&Tree::of(&passing), &mut out);
        assert!(out.is_empty());
    }
}
