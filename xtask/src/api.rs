//! `docs/api.txt`: the public interface of the library, one line for each item, so that every change of the
//! interface changes a file.
//!
//! The command follows the public names of `src/lib.rs` to their items. It shows the items, their fields,
//! variants and methods, and the traits they implement. It does not compile, so it shows no auto traits and
//! no impls from macros, and types have their source text.

use std::collections::{BTreeMap, BTreeSet};

use crate::items::{Item, items, parts, told};
use crate::paths::named;
use crate::source::{Source, Token};
use crate::tree::Tree;

pub(crate) const PATH: &str = "docs/api.txt";

const ROOT: &str = "trine";

const HEAD: &str = "\
# The public face of the library on Linux, with the features bytes, stream and serde.
# Written by `cargo xtask api`; compared with the sources by `cargo xtask ci`.
";

/// An item's module, as a path from the crate's root, and its name.
type Place = (Vec<String>, String);

/// The page for `tree`.
pub(crate) fn page(tree: &Tree) -> Result<String, String> {
    let library = Library::of(tree)?;
    let mut faces = BTreeMap::new();
    library.collect(&[], ROOT, &mut faces);
    let mut lines = BTreeSet::new();
    for module in library.modules.values() {
        module.tell(&library, &faces, &mut lines);
    }
    for face in faces.values() {
        if face.matches("::").count() > 1
            && let Some((module, _)) = face.rsplit_once("::")
        {
            lines.insert(format!("{module}: mod"));
        }
    }
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    Ok(format!("{HEAD}{text}"))
}

/// The compiled files, by module.
struct Library<'a> {
    modules: BTreeMap<Vec<String>, Module<'a>>,
}

struct Module<'a> {
    path: Vec<String>,
    source: &'a Source,
    tokens: Vec<Token<'a>>,
    /// Names of the module's own items.
    defined: BTreeSet<String>,
    /// Module and name of each import, and whether the import is public.
    uses: Vec<(Place, bool)>,
}

impl<'a> Library<'a> {
    fn of(tree: &'a Tree) -> Result<Library<'a>, String> {
        let sources = tree.sources.iter().filter(|source| source.in_library() && !source.is_test_file());
        let mut all: BTreeMap<Vec<String>, &Source> =
            sources.map(|source| (source.module(), source)).collect();
        let mut library = Library { modules: BTreeMap::new() };
        let mut next = vec![Vec::new()];
        while let Some(path) = next.pop() {
            // A module without a file of its own is inline in its parent; only test modules are.
            let Some(source) = all.remove(&path) else { continue };
            let (tokens, mut defined) = (source.tokens(), BTreeSet::new());
            for item in items(source, &tokens).iter().filter(|item| item.is_shown()) {
                match item.kind {
                    "mod" if item.body.is_empty() => {
                        next.push([path.as_slice(), &[item.name.to_owned()]].concat());
                    }
                    "mod" | "use" | "impl" | "" => {}
                    _ => {
                        defined.insert(item.name.to_owned());
                    }
                }
            }
            let module = Module { path: path.clone(), source, tokens, defined, uses: Vec::new() };
            library.modules.insert(path, module);
        }
        if library.modules.is_empty() {
            return Err("there is no src/lib.rs".to_owned());
        }
        let uses: Vec<_> = library.modules.values().map(|module| module.imports(&library)).collect();
        library.modules.values_mut().zip(uses).for_each(|(module, uses)| module.uses = uses);
        Ok(library)
    }

    /// Collects the names that users reach through `module`, each with its item.
    fn collect(&self, module: &[String], face: &str, faces: &mut BTreeMap<Place, String>) {
        let Some(of) = self.modules.get(module) else { return };
        for item in of.items().iter().filter(|item| item.is_public && item.is_shown()) {
            let inner = [module, &[item.name.to_owned()]].concat();
            let face = format!("{face}::{}", item.name);
            match item.kind {
                "mod" => self.collect(&inner, &face, faces),
                "use" | "" => {}
                _ => drop(faces.insert((module.to_vec(), item.name.to_owned()), face)),
            }
        }
        for ((from, name), _) in of.uses.iter().filter(|(_, is_public)| *is_public) {
            if let Some(place) = self.find(from, name, &mut BTreeSet::new()) {
                faces.insert(place, format!("{face}::{name}"));
            }
        }
    }

    /// The item that `module` calls `name`; `None` if it is not in the library.
    fn find(&self, module: &[String], name: &str, seen: &mut BTreeSet<Place>) -> Option<Place> {
        let of = self.modules.get(module)?;
        if !seen.insert((module.to_vec(), name.to_owned())) {
            return None;
        }
        if of.defined.contains(name) {
            return Some((module.to_vec(), name.to_owned()));
        }
        of.uses
            .iter()
            .filter(|((_, used), _)| used == name)
            .find_map(|((from, _), _)| self.find(from, name, seen))
    }
}

impl<'a> Module<'a> {
    fn items(&self) -> Vec<Item<'_>> {
        items(self.source, &self.tokens)
    }

    /// The module's imports from the library. No public import is renamed, so names are taken unchanged.
    fn imports(&self, library: &Library<'_>) -> Vec<(Place, bool)> {
        let (mut out, all, named) = (Vec::new(), self.items(), named(self.source));
        for item in all.iter().filter(|item| item.kind == "use" && item.is_shown()) {
            let (Some(first), Some(last)) = (item.head.first(), item.head.last()) else { continue };
            for one in named.iter().filter(|one| (first.at..=last.at).contains(&one.at)) {
                let Some(path) = self.resolved(&one.segments, library) else { continue };
                if let Some((name, module)) = path.split_last() {
                    out.push(((module.to_vec(), name.clone()), item.is_public));
                }
            }
        }
        out
    }

    /// Resolves a path to one from the crate's root; `None` if it leaves the crate.
    fn resolved(&self, segments: &[&str], library: &Library<'_>) -> Option<Vec<String>> {
        let mut here = self.path.clone();
        let mut segments = segments;
        match segments.split_first()? {
            (&"crate", rest) => (here, segments) = (Vec::new(), rest),
            (&"self", rest) => segments = rest,
            (&"super", _) => {}
            (first, _) => {
                here.push((*first).to_owned());
                library.modules.get(&here)?;
                here.pop();
            }
        }
        while let Some((&"super", rest)) = segments.split_first() {
            here.pop();
            segments = rest;
        }
        here.extend(segments.iter().map(|&segment| segment.to_owned()));
        Some(here)
    }

    /// The way in which users reach `name`.
    fn reach<'f>(&self, name: &str, library: &Library<'_>, faces: &'f BTreeMap<Place, String>) -> Reach<'f> {
        match library.find(&self.path, name, &mut BTreeSet::new()) {
            Some(place) => faces.get(&place).map_or(Reach::Private, |face| Reach::Public(face)),
            None => Reach::Foreign,
        }
    }

    /// Adds the lines of the module's public items, and of its impls for public items anywhere.
    fn tell(&self, library: &Library<'_>, faces: &BTreeMap<Place, String>, out: &mut BTreeSet<String>) {
        for item in self.items().iter().filter(|item| item.is_shown()) {
            if item.kind == "impl" {
                implementation(self.source, item, &|name| self.reach(name, library, faces), out);
            } else if let Some(face) = faces.get(&(self.path.clone(), item.name.to_owned())) {
                definition(self.source, item, face, out);
            }
        }
    }
}

/// The way in which users reach a name of a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach<'f> {
    /// Public, by this path.
    Public(&'f str),
    /// An item of the library that users cannot reach.
    Private,
    /// An item of another crate, or not an item.
    Foreign,
}

impl<'f> Reach<'f> {
    fn face(self) -> Option<&'f str> {
        if let Reach::Public(face) = self { Some(face) } else { None }
    }
}

/// Adds the lines of an item.
fn definition(source: &Source, item: &Item<'_>, face: &str, out: &mut BTreeSet<String>) {
    let mark = if item.attributes.contains(&"non_exhaustive") { "#[non_exhaustive] " } else { "" };
    let head = told(source, item.head);
    let line = match item.kind {
        "struct" => structure(source, item, head),
        "const" | "static" => head.split(" =").next().unwrap_or_default().to_owned(),
        _ => head,
    };
    out.insert(format!("{face}: {mark}{line}"));
    let mut derives: Vec<String> = item.derives().collect();
    derives.sort_unstable();
    if !derives.is_empty() {
        out.insert(format!("{face}: derives {}", derives.join(", ")));
    }
    let mut part = |kind: &str, part: &Item<'_>| {
        let mark = if part.attributes.contains(&"non_exhaustive") { "#[non_exhaustive] " } else { "" };
        out.insert(format!("{face}::{}: {mark}{kind} {}", part.name, told(source, part.head)));
    };
    let shown = |tokens| parts(source, tokens).into_iter().filter(Item::is_shown).collect::<Vec<_>>();
    match item.kind {
        "struct" => {
            let all = shown(item.body);
            all.iter().filter(|one| one.is_public).for_each(|one| part("field", one));
        }
        "enum" => shown(item.body).iter().for_each(|one| part("variant", one)),
        "trait" => members(source, item, face, "", Visible::All, out),
        _ => {}
    }
}

/// A struct without its fields: whether users can construct it, and the public fields of a tuple.
fn structure(source: &Source, item: &Item<'_>, head: String) -> String {
    let open = item.head.iter().position(|token| token.text == "(");
    let fields = match open {
        Some(open) => &item.head[open + 1..item.head.len() - 1],
        None => item.body,
    };
    let all = parts(source, fields);
    let is_whole = all.iter().all(|one| one.is_public);
    match open {
        Some(_) if is_whole => head,
        Some(open) => format!("{}(..)", told(source, &item.head[..open])),
        None if is_whole => head,
        None => format!("{head} {{ .. }}"),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Visible {
    All,
    Public,
}

/// Adds functions, constants and types inside a trait or an impl.
fn members(
    source: &Source,
    item: &Item<'_>,
    face: &str,
    suffix: &str,
    visible: Visible,
    out: &mut BTreeSet<String>,
) {
    let is_seen = |one: &Item<'_>| one.is_shown() && (visible == Visible::All || one.is_public);
    for one in items(source, item.body).iter().filter(|one| is_seen(one)) {
        let line = told(source, one.head);
        let line = if one.kind == "const" { line.split(" =").next().unwrap_or_default() } else { &line };
        out.insert(format!("{face}::{}: {line}{suffix}", one.name));
    }
}

/// Adds the lines of an impl: the methods of our type, or the trait with its types.
fn implementation<'f>(
    source: &Source,
    item: &Item<'_>,
    reach: &dyn Fn(&str) -> Reach<'f>,
    out: &mut BTreeSet<String>,
) {
    let (generics, rest) = generics(item.head);
    let angles = |index: usize| rest[..index].iter().filter(|token| token.text == "<").count();
    let closed = |index: usize| rest[..index].iter().filter(|token| token.text == ">").count();
    let at_word = |word: &str| {
        (0..rest.len()).find(|&index| rest[index].text == word && angles(index) == closed(index))
    };
    let face = |name: &str| reach(name).face();
    let to = at_word("where").unwrap_or(rest.len());
    let Some(divided) = at_word("for") else {
        let Some(face) = own_type(&rest[..to]).and_then(face) else { return };
        let shown = told(source, &rest[..to]);
        let arguments = shown.find('<').map_or("", |at| &shown[at..]);
        let is_bound = to < rest.len() || generics.iter().any(|token| token.text == ":");
        let suffix = if is_bound { format!(" [{}]", told(source, item.head)) } else { String::new() };
        members(source, item, &format!("{face}{arguments}"), &suffix, Visible::Public, out);
        return;
    };
    // A trait that users cannot name is not a part of the interface.
    if own_type(&rest[..divided]).is_some_and(|name| reach(name) == Reach::Private) {
        return;
    }
    let own = own_type(&rest[divided + 1..to]).and_then(face);
    let Some(face) = own.or_else(|| rest[..to].iter().find_map(|token| face(token.text))) else { return };
    let types = items(source, item.body);
    let types: Vec<String> = types
        .iter()
        .filter(|one| one.kind == "type" && one.is_shown())
        .map(|one| format!(", {}", told(source, one.head)))
        .collect();
    out.insert(format!("{face}: {}{}", told(source, item.head), types.concat()));
}

/// The generics after the word `impl`, and the tokens after them.
fn generics<'t, 'a>(head: &'t [Token<'a>]) -> (&'t [Token<'a>], &'t [Token<'a>]) {
    let start = head.iter().position(|token| token.text == "impl").map_or(0, |at| at + 1);
    if head.get(start).is_none_or(|token| token.text != "<") {
        return (&head[..0], &head[start..]);
    }
    let mut depth = 0_usize;
    for index in start..head.len() {
        match head[index].text {
            "<" => depth += 1,
            ">" if !matches!(head[index - 1].text, "-" | "=") => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return (&head[start..=index], &head[index + 1..]);
        }
    }
    (&head[..0], &head[start..])
}

/// The name of a type without a path, after `&` and lifetimes.
fn own_type<'a>(tokens: &[Token<'a>]) -> Option<&'a str> {
    let mut index = 0;
    while let Some(token) = tokens.get(index) {
        match token.text {
            "&" | "mut" => index += 1,
            "'" => index += 2,
            text => return tokens.get(index + 1).is_none_or(|next| next.text != "::").then_some(text),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: &str = "mod db;\npub mod inspect;\n#[cfg(feature = \"lab\")]\npub mod lab;\n\
                       #[doc(hidden)]\npub mod fuzz;\npub use db::{Db, Item, Way};\n\
                       #[cfg(any(test, feature = \"sim\"))]\npub use db::sim;";
    const DB: &str = "mod item;\npub mod sim;\npub use item::Item;\n/// A store.\n\
                      #[derive(Clone, Debug)]\n#[cfg_attr(feature = \"serde\", \
                      derive(serde::Serialize))]\npub struct Db<K> { pub path: Vec<(u8, K)>, handle: u8 }\n\
                      impl<K> Db<K> {\n  /// Opens it.\n  pub fn open<P: AsRef<u8>>(\n    path: P,\n    mut by: u8,\n  ) \
                      -> Result<Db<K>> { loop {} }\n  pub(crate) fn not_this() {}\n  \
                      #[cfg(feature = \"lab\")] pub fn nor_this() {}\n  pub const MAX: u8 = 3;\n}\n\
                      impl Db<u8> { pub fn bytes(&self) -> u8 { 1 } }\n\
                      impl<K: Ord> Db<K> { pub fn sort(&self) {} }\n\
                      #[non_exhaustive]\npub enum Way { One, Two { a: u8, b: u8, }, Three(u8) }\n\
                      pub struct Hidden;\nimpl Hidden { pub fn none(&self) {} }";
    const ITEM: &str = "use super::Db;\npub struct Item(u8);\nimpl Iterator for Item { type Item = Result<u8>; \
                        fn next(&mut self) {} }\nimpl<'a, K> IntoIterator for &'a Db<K> { type Item = u8; }\n\
                        trait Sealed {}\nimpl Sealed for Item {}\nimpl From<Item> for bytes::Bytes { fn from(item: Item) {} }";
    const INSPECT: &str = "use std::ops::Db;\npub fn verify(db: &Db) -> bool { true }\n\
                           pub trait Look: Sized { fn look(&self); }\nimpl Db { pub fn foreign() {} }";
    const EXPECTED: &str = "\
trine::Db: derives Clone, Debug, serde::Serialize
trine::Db: impl<'a, K> IntoIterator for &'a Db<K>, type Item = u8
trine::Db: struct Db<K> { .. }
trine::Db::path: field path: Vec<(u8, K)>
trine::Db<K>::MAX: const MAX: u8
trine::Db<K>::open: fn open<P: AsRef<u8>>(path: P, by: u8) -> Result<Db<K>>
trine::Db<K>::sort: fn sort(&self) [impl<K: Ord> Db<K>]
trine::Db<u8>::bytes: fn bytes(&self) -> u8
trine::Item: impl From<Item> for bytes::Bytes
trine::Item: impl Iterator for Item, type Item = Result<u8>
trine::Item: struct Item(..)
trine::Way: #[non_exhaustive] enum Way
trine::Way::One: variant One
trine::Way::Three: variant Three(u8)
trine::Way::Two: variant Two { a: u8, b: u8 }
trine::inspect: mod
trine::inspect::Look: trait Look: Sized
trine::inspect::Look::look: fn look(&self)
trine::inspect::verify: fn verify(db: &Db) -> bool
";

    fn made(db: &str) -> String {
        let files = [
            ("src/lib.rs", LIB),
            ("src/db/mod.rs", db),
            ("src/db/item.rs", ITEM),
            ("src/db/sim.rs", "pub struct Disk;"),
            ("src/inspect.rs", INSPECT),
            ("src/lab.rs", "use crate::db::Db; impl Db<i8> { pub fn of_the_lab(&self) {} }"),
            ("src/fuzz.rs", "pub fn decode() {}"),
        ];
        page(&Tree::of(&files)).expect("there is a root")
    }

    /// The page shows every item that users reach, by every path. It does not show items that are hidden,
    /// behind other features, or of another type with the same name.
    #[test]
    fn the_public_face_is_shown() {
        assert_eq!(made(DB), format!("{HEAD}{EXPECTED}"));
        assert!(page(&Tree::of(&[("src/a.rs", "")])).is_err());
    }

    /// A changed signature changes the page; changes of the body, comments and line breaks do not.
    #[test]
    fn a_changed_signature_is_seen() {
        let changes = [
            ("by: u8,", "by: u16,"),
            ("pub fn bytes", "pub(crate) fn bytes"),
            ("pub path", "path"),
            ("Clone, Debug", "Clone"),
            ("One,", "One, Four,"),
            ("#[non_exhaustive]", ""),
            ("K: Ord", "K: Eq"),
            ("const MAX: u8", "const MAX: u16"),
        ];
        for (old, new) in changes {
            assert!(DB.contains(old), "{old}");
            assert_ne!(made(&DB.replace(old, new)), made(DB), "{old} to {new}");
        }
        for (old, new) in
            [("{ loop {} }", "{ 1 }"), ("Opens it", "Makes it"), ("    mut by: u8,\n", "by: u8")]
        {
            assert!(DB.contains(old), "{old}");
            assert_eq!(made(&DB.replace(old, new)), made(DB), "{old} to {new}");
        }
    }
}
