//! The import table: the imports that each module of the library may have, as data, and the check of every
//! path against it.
//!
//! docs/ARCHITECTURE.md has a copy, written by `cargo xtask layers` and checked by tidy. A change of the
//! table comes with a note in docs/decisions. Tests are exempt, since their setup may use any module.
//!
//! A large module is divided in turn: its parts have rows too, with the parts of the same module that each
//! may import. From other modules a part may import the same as its module.
//!
//! Invariant: a module imports only modules above it in the table, so the graph has no cycle; the graph of a
//! module's parts has none either.

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

/// The modules in the order of imports: an imported module comes first.
pub(crate) const LAYERS: &[Layer] = &[
    Layer {
        module: "base",
        imports: &[],
        holds: "units, ids, key hash, checksum, bounds-checked codec, errors, the settings table, \
                the protocol's plain types, epochs, memory handed in and granted by role, and the door to \
                atomics and locks",
    },
    Layer {
        module: "learn",
        imports: &["base"],
        holds: "keys as numbers and functions from these to positions, for learned indexes; pure",
    },
    Layer {
        module: "format",
        imports: &["base", "learn"],
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
        imports: &["base", "learn", "format", "io", "merge"],
        holds: "Drizard, Lemur, LSM-trie's HTable, TridentKV's scheduler, indexes of blocks side by side, \
                for experiments; behind a feature",
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
        holds: "the list of modules and of public items; no code",
    },
];

/// The parts of divided modules, each with its path and the parts of the same module that it may import.
const PARTS: &[Layer] = &[
    Layer { module: "engine::budget", imports: &[], holds: "division of the one memory budget" },
    Layer { module: "engine::options", imports: &["budget"], holds: "options of an opening" },
    Layer { module: "engine::slices", imports: &[], holds: "filter, block size, compression of a new table" },
    Layer { module: "engine::job", imports: &[], holds: "the trait of background jobs" },
    Layer { module: "engine::closing", imports: &[], holds: "the state of the closing of a store" },
    Layer { module: "engine::recovery", imports: &[], holds: "counts of the last recovery" },
    Layer {
        module: "engine::publish",
        imports: &["budget", "options"],
        holds: "the current views, catalog and write buffers, and their changes: edits, tables in and out, \
                files, points",
    },
    Layer {
        module: "engine::reads",
        imports: &["job", "publish"],
        holds: "gets and scans driven, for callers and for futures; the driver thread",
    },
    Layer {
        module: "engine::background",
        imports: &["budget", "slices", "job", "publish", "reads"],
        holds: "flushes, merges, history, removal of files, and the pressure that they cause",
    },
    Layer {
        module: "engine::commit",
        imports: &["budget", "options", "job", "publish", "reads", "background"],
        holds: "writes, the order of commits and catalog changes, keyspaces, waits for background work",
    },
    Layer {
        module: "engine::store",
        imports: &["closing", "recovery", "publish", "background", "commit"],
        holds: "one open store, made of these layers",
    },
    Layer {
        module: "engine::open",
        imports: &[
            "budget",
            "options",
            "closing",
            "recovery",
            "publish",
            "reads",
            "background",
            "commit",
            "store",
        ],
        holds: "recovery, the start of workers, closing, checkpoints",
    },
    Layer {
        module: "engine::ingest",
        imports: &["slices", "publish", "background", "commit", "store"],
        holds: "ingests: tables built by callers, then published",
    },
    Layer { module: "engine::space", imports: &["publish", "store"], holds: "space on disk by role" },
    Layer {
        module: "engine::stats",
        imports: &["budget", "publish", "reads", "store", "space"],
        holds: "statistics",
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
    for (index, part) in PARTS.iter().enumerate() {
        let module = module_of(part);
        if index == 0 || module_of(&PARTS[index - 1]) != module {
            out += &format!(
                "\nInside `{module}`:\n\n| module | may import of `{module}` | holds |\n|---|---|---|\n"
            );
        }
        let imports = if part.imports.is_empty() { "nothing".into() } else { part.imports.join(", ") };
        out += &format!("| {} | {imports} | {} |\n", name_of(part), part.holds);
    }
    out
}

/// The module of a part.
fn module_of(part: &Layer) -> &'static str {
    part.module.split("::").next().unwrap_or_default()
}

fn name_of(part: &Layer) -> &'static str {
    part.module.split("::").nth(1).unwrap_or_default()
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
        match from_root(&one, &module) {
            Some(path) if path.first().is_some_and(|top| top != own) => {
                check_path(source, layer, &one, &path, out);
            }
            Some(path) => check_part(source, &module, &one, &path, out),
            None => {}
        }
    }
}

/// Checks a path within a divided module.
fn check_part(source: &Source, module: &[String], one: &Named<'_>, path: &[String], out: &mut Vec<Finding>) {
    let (Some(top), Some(own)) = (module.first(), module.get(1)) else { return };
    let parts: Vec<&Layer> = PARTS.iter().filter(|part| module_of(part) == top).collect();
    // A path may end at the module itself, and then names the whole module.
    let named = path.get(1).map_or("", String::as_str);
    if parts.is_empty() || named == own {
        return;
    }
    let Some(part) = parts.iter().find(|part| name_of(part) == own) else {
        out.push(Finding::new(
            &source.path,
            1,
            format!("`{own}` is not in the import table of `{top}`"),
            "Use a part that is, or add a row to PARTS in xtask/src/layers.rs with a note in docs/decisions",
        ));
        return;
    };
    if part.imports.contains(&named) {
        return;
    }
    let may = if part.imports.is_empty() { "nothing of it".to_string() } else { part.imports.join(", ") };
    out.push(Finding::new(
        &source.path,
        source.line_of(one.at),
        format!("`{top}::{own}` imports `{}`", path.join("::")),
        format!(
            "It may import {may}, named by the file where the item stands. Take the value as an argument, or \
             move what both need down into a part that both may import"
        ),
    ));
}

/// The path from the root. In the root itself a plain module name is such a path.
fn from_root(one: &Named<'_>, module: &[String]) -> Option<Vec<String>> {
    let in_root = module.is_empty() && LAYERS.iter().any(|layer| layer.module == one.segments[0]);
    if in_root { Some(one.segments.iter().map(|s| s.to_string()).collect()) } else { absolute(one, module) }
}

fn check_path(source: &Source, layer: &Layer, one: &Named<'_>, path: &[String], out: &mut Vec<Finding>) {
    let own = layer.module;
    if LAYERS.iter().all(|other| other.module != path[0]) {
        // The root may define items for itself; no other module may import them.
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

/// `pub use` outside the public modules would add a second path to a name.
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

    /// Imports of the table point only upward in the list: no cycles, no unknown names.
    #[test]
    fn the_table_is_a_partial_order() {
        for (index, layer) in LAYERS.iter().enumerate() {
            for import in layer.imports {
                let top = import.split("::").next().unwrap_or_default();
                assert!(LAYERS[..index].iter().any(|above| above.module == top), "{} {import}", layer.module);
            }
        }
    }

    /// Imports of the parts of each module point only upward too.
    #[test]
    fn parts_are_a_partial_order() {
        for (index, part) in PARTS.iter().enumerate() {
            assert!(LAYERS.iter().any(|layer| layer.module == module_of(part)), "{}", part.module);
            for import in part.imports {
                let is_above =
                    |above: &Layer| module_of(above) == module_of(part) && name_of(above) == *import;
                assert!(PARTS[..index].iter().any(is_above), "{} {import}", part.module);
            }
        }
    }

    /// A file in a part of a divided module may import only the parts in its row.
    #[test]
    fn parts_are_held_apart() {
        for text in [
            "use crate::engine::commit::Committer;",
            "use super::super::store::Store;",
            "fn f() -> crate::engine::Store {}",
            "use crate::engine;",
        ] {
            let found = findings("src/engine/publish/edits.rs", text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
        }
        assert_eq!(findings("src/engine/other.rs", "use super::budget::Budget;").len(), 1);
        for text in [
            "use crate::engine::budget::Budget;\nuse super::catalog::Catalog;\nuse super::Publisher;",
            "#[cfg(test)]\nmod tests { use crate::engine::Store; }",
            "pub(in crate::engine) struct A;",
        ] {
            assert_eq!(findings("src/engine/publish/edits.rs", text), [""; 0], "{text}");
        }
        assert_eq!(findings("src/engine/mod.rs", "pub(crate) use store::Store;"), [""; 0]);
    }

    /// Every form of a forbidden import is found, with its line.
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

    /// Imports that the table allows pass, and so do a module's own paths, other crates and tests.
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

    /// Only the public modules may have a public re-export.
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
