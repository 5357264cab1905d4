//! Cycles of files: sets of library files that name items of each other, directly or through others. Such
//! files must be read, and changed, together.
//!
//! An arrow goes from file A to file B if a path in A names an item in B. A re-export is followed to the file
//! that it names. `mod x;` alone is no arrow, and tests are exempt, since their setup may use any module.
//! Calls of methods are no arrows, as types are not known here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::finding::Finding;
use crate::paths::{Naming, absolute, named};
use crate::source::{Part, Source};
use crate::tree::Tree;

/// Limit of files in a cycle.
const FILES_IN_CYCLE_MAX: usize = 3;

/// Re-exports followed one after another.
const REEXPORTS_MAX: usize = 8;

/// The files of the library, and the arrows between them.
struct Graph<'t> {
    files: Vec<&'t Source>,
    /// For each file: the files that it names, with the line of the first such path.
    arrows: Vec<BTreeMap<usize, usize>>,
}

/// The map from paths to files.
struct Modules {
    files: BTreeMap<Vec<String>, usize>,
    /// For each file: the names that its `use` items bring, as paths from the root.
    uses: Vec<BTreeMap<String, Vec<String>>>,
}

impl Modules {
    fn of(files: &[&Source]) -> Modules {
        let by_module = files.iter().enumerate().map(|(index, source)| (source.module(), index)).collect();
        let mut modules = Modules { files: by_module, uses: Vec::new() };
        modules.uses = files.iter().map(|source| modules.uses_of(source)).collect();
        modules
    }

    fn uses_of(&self, source: &Source) -> BTreeMap<String, Vec<String>> {
        let mut uses = BTreeMap::new();
        for (path, _, naming) in self.paths(source) {
            if let (Some(name), true) = (path.last().cloned(), naming != Naming::Inline) {
                uses.insert(name, path);
            }
        }
        uses
    }

    /// All paths outside tests that begin in the library, from the root, with their lines.
    fn paths(&self, source: &Source) -> Vec<(Vec<String>, usize, Naming)> {
        let module = source.module();
        let mut out = Vec::new();
        for one in named(source).iter().filter(|one| source.part_at(one.at) != Part::Test) {
            // A path may begin at a module that the same file declares.
            let below = || {
                let child: Vec<String> =
                    module.iter().cloned().chain([one.segments[0].to_string()]).collect();
                let is_child = one.inside.is_empty() && self.files.contains_key(&child);
                is_child.then(|| {
                    module.iter().cloned().chain(one.segments.iter().map(|name| name.to_string())).collect()
                })
            };
            if let Some(path) = absolute(one, &module).or_else(below) {
                out.push((path, source.line_of(one.at), one.naming));
            }
        }
        out
    }

    /// The file of the item that a path names.
    fn file_of(&self, path: &[String], reexports_left: usize) -> Option<usize> {
        let (length, file) = (1..=path.len())
            .rev()
            .find_map(|length| self.files.get(&path[..length]).map(|file| (length, *file)))?;
        let reexported = path.get(length).and_then(|name| self.uses[file].get(name));
        match reexported {
            Some(target) if reexports_left > 0 => {
                let rest = path[length + 1..].iter();
                let path: Vec<String> = target.iter().chain(rest).cloned().collect();
                // A path out of the library leads to no file.
                self.file_of(&path, reexports_left - 1)
            }
            _ => Some(file),
        }
    }
}

impl<'t> Graph<'t> {
    fn of(tree: &'t Tree) -> Graph<'t> {
        let files: Vec<&Source> =
            tree.sources.iter().filter(|source| source.in_library() && !source.is_test_file()).collect();
        let modules = Modules::of(&files);
        let mut arrows = Vec::new();
        for (index, source) in files.iter().enumerate() {
            let mut named: BTreeMap<usize, usize> = BTreeMap::new();
            for (path, line, _) in modules.paths(source) {
                if let Some(file) = modules.file_of(&path, REEXPORTS_MAX).filter(|file| *file != index) {
                    named.entry(file).or_insert(line);
                }
            }
            arrows.push(named);
        }
        Graph { files, arrows }
    }

    fn reached_from(&self, file: usize) -> BTreeSet<usize> {
        let (mut reached, mut next) = (BTreeSet::new(), vec![file]);
        while let Some(file) = next.pop() {
            next.extend(self.arrows[file].keys().filter(|to| reached.insert(**to)));
        }
        reached
    }

    /// Sets of at least two files that reach each other, the largest first.
    fn cycles(&self) -> Vec<BTreeSet<usize>> {
        let reached: Vec<BTreeSet<usize>> =
            (0..self.files.len()).map(|file| self.reached_from(file)).collect();
        let mut cycles: Vec<BTreeSet<usize>> = Vec::new();
        for file in 0..self.files.len() {
            if !reached[file].contains(&file) || cycles.iter().any(|cycle| cycle.contains(&file)) {
                continue;
            }
            cycles.push(
                reached[file].iter().copied().filter(|other| reached[*other].contains(&file)).collect(),
            );
        }
        cycles.sort_by_key(|cycle| std::cmp::Reverse(cycle.len()));
        cycles
    }

    /// The shortest closed path in a cycle.
    fn way_around(&self, cycle: &BTreeSet<usize>) -> Vec<usize> {
        let ways = cycle.iter().filter_map(|start| self.way_back(*start));
        ways.min_by_key(Vec::len).unwrap_or_default()
    }

    fn way_back(&self, start: usize) -> Option<Vec<usize>> {
        let mut before: BTreeMap<usize, usize> = BTreeMap::new();
        let mut next = VecDeque::from([start]);
        while let Some(file) = next.pop_front() {
            for to in self.arrows[file].keys() {
                if *to == start {
                    let mut way = vec![file];
                    while let Some(earlier) = before.get(&way[way.len() - 1]) {
                        way.push(*earlier);
                    }
                    way.reverse();
                    return Some(way);
                }
                if !before.contains_key(to) {
                    before.insert(*to, file);
                    next.push_back(*to);
                }
            }
        }
        None
    }

    /// `src/a.rs:3 -> src/b.rs:7 -> src/a.rs`: each with the line that names the next.
    fn shown(&self, way: &[usize]) -> String {
        let mut out = String::new();
        for (index, file) in way.iter().enumerate() {
            let to = way[(index + 1) % way.len()];
            out += &format!("{}:{} -> ", self.files[*file].path, self.arrows[*file][&to]);
        }
        way.first().map_or(String::new(), |first| out + &self.files[*first].path)
    }
}

/// Finds cycles of more files than the limit.
pub(crate) fn check(tree: &Tree, out: &mut Vec<Finding>) {
    let graph = Graph::of(tree);
    for cycle in graph.cycles().iter().filter(|cycle| cycle.len() > FILES_IN_CYCLE_MAX) {
        let way = graph.way_around(cycle);
        let names: Vec<&str> = cycle.iter().map(|file| graph.files[*file].path.as_str()).collect();
        let (count, names) = (names.len(), names.join(", "));
        let line = way.first().map_or(1, |first| graph.arrows[*first][&way[1 % way.len()]]);
        out.push(Finding::new(
            &graph.files[way.first().copied().unwrap_or_default()].path,
            line,
            format!("{count} files name each other: {names}; one way around: {}", graph.shown(&way)),
            format!(
                "A cycle has {FILES_IN_CYCLE_MAX} files at most. Move the type that both need into a file of \
                 its own, or give the lower one what it needs as an argument"
            ),
        ));
    }
}

/// A table of each module's files, arrows among them, and largest cycle; then each cycle with all its arrows.
pub(crate) fn report(tree: &Tree) -> String {
    let graph = Graph::of(tree);
    let top = |file: usize| graph.files[file].module().first().cloned().unwrap_or_else(|| "lib".into());
    let cycles = graph.cycles();
    let mut modules: BTreeMap<String, (usize, usize, usize)> = BTreeMap::new();
    for file in 0..graph.files.len() {
        let one = modules.entry(top(file)).or_default();
        one.0 += 1;
        one.1 += graph.arrows[file].keys().filter(|to| top(**to) == top(file)).count();
        let own = cycles.iter().filter(|cycle| cycle.contains(&file)).map(BTreeSet::len);
        one.2 = one.2.max(own.max().unwrap_or(1));
    }
    let mut out = String::from("module     files arrows largest cycle\n");
    for (module, (files, arrows, cycle)) in modules {
        out += &format!("{module:10} {files:5} {arrows:6} {cycle:13}\n");
    }
    for cycle in cycles.iter().filter(|cycle| cycle.len() > 1) {
        out += &format!("\n{} files:\n", cycle.len());
        for file in cycle {
            for (to, line) in graph.arrows[*file].iter().filter(|(to, _)| cycle.contains(to)) {
                out += &format!("  {}:{line} -> {}\n", graph.files[*file].path, graph.files[*to].path);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let mut out = Vec::new();
        check(&Tree::of(files), &mut out);
        out.iter().map(Finding::to_string).collect()
    }

    /// A ring of four files, each naming the next in another way, is found with its arrows; without one arrow
    /// it is no ring.
    #[test]
    fn rings_are_found() {
        let mut files = [
            ("src/a/mod.rs", "mod b;\nmod c;\npub(crate) use d::D;\nmod d;\n"),
            ("src/a/b.rs", "//! b\nuse super::c::C;\n"),
            ("src/a/c.rs", "fn f() -> super::D {}\n"),
            ("src/a/d.rs", "use super::e::E;\n"),
            ("src/a/e.rs", "use crate::a::b;\n"),
        ];
        let found = findings(&files);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("src/a/b.rs:2: 4 files name each other"), "{found:?}");
        let way = "src/a/b.rs:2 -> src/a/c.rs:1 -> src/a/d.rs:1 -> src/a/e.rs:1 -> src/a/b.rs";
        assert!(found[0].contains(way), "{found:?}");
        files[4].1 = "use crate::base::b;\n";
        assert_eq!(findings(&files), [""; 0]);
    }

    /// A ring of three is allowed. Declarations of modules and tests make no arrow, and a re-export of
    /// another crate's item leads to no file.
    #[test]
    fn rings_of_three_and_declarations_are_allowed() {
        let three =
            [("src/a.rs", "use crate::b;"), ("src/b.rs", "use crate::c::C;"), ("src/c.rs", "use crate::a;")];
        assert_eq!(findings(&three), [""; 0]);
        let declared = [
            ("src/a/mod.rs", "mod b;\nmod c;\nmod d;\nuse std::sync::Arc;\n"),
            ("src/a/b.rs", "use super::c::C;\nuse super::Arc;"),
            ("src/a/c.rs", "use super::d::D;"),
            ("src/a/d.rs", "#[cfg(test)]\nmod tests { use super::super::b::B; }"),
        ];
        assert_eq!(findings(&declared), [""; 0]);
    }

    /// The table has every module, and counts only arrows inside of it.
    #[test]
    fn the_report_counts() {
        let files = [
            ("src/a/mod.rs", "mod b;\npub(crate) struct A;\nuse b::B;"),
            ("src/a/b.rs", "use super::A;\nuse crate::c::C;"),
            ("src/c.rs", ""),
        ];
        let report = report(&Tree::of(&files));
        assert!(report.contains("a              2      2             2\n"), "{report}");
        assert!(report.contains("c              1      0             1\n"), "{report}");
        assert!(report.contains("  src/a/b.rs:1 -> src/a/mod.rs\n"), "{report}");
    }
}
