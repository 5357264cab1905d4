//! Keyspaces made, configured and dropped, and checkpoints made, turn by turn between the writers' steps.

use std::path::Path;

use crate::base::error::Result;
use crate::base::rule::Rule;
use crate::base::settings::KeyspaceSettings;
use crate::engine::commit::keyspaces::KeyspaceRequest;
use crate::engine::commit::order::OrderTurn;
use crate::engine::open::checkpoint::Checkpoint;
use crate::engine::publish::keyspace::merged;
use crate::format::manifest::KeyspaceKind;

use super::super::crash::named;
use super::super::model::{Copied, Names, SPACES_COUNT_MAX};
use super::Run;

/// Names with a slash are partitions; see [`division_of`]. The last [`HASHED_COUNT`] are hashed.
const NAMES: [&str; 10] = ["a", "b", "c", "d/x", "d/y", "k/x", "k/y", "m/x", "m/y", HASHED];
/// The number of names of hashed keyspaces and of their partitions.
const HASHED_COUNT: usize = 3;
/// The name of the hashed keyspace.
const HASHED: &str = "h";

/// Whether a keyspace or partition of that name is hashed.
pub(super) fn is_hashed(name: &str) -> bool {
    NAMES[NAMES.len() - HASHED_COUNT..].contains(&name)
}

/// The kind of an undivided keyspace of that name.
fn wanted(name: &str) -> KeyspaceRequest<'static> {
    match name {
        HASHED => KeyspaceRequest { kind: KeyspaceKind::Hashed, rule: None },
        _ => KeyspaceRequest::ordered(None),
    }
}

/// The kind and division rule of a keyspace of that name.
fn division_of(keyspace: &str) -> (KeyspaceKind, Rule) {
    match keyspace {
        "k" => (KeyspaceKind::Ordered, Rule::Prefix(1)),
        "m" => (KeyspaceKind::Hashed, Rule::Prefix(1)),
        _ => (KeyspaceKind::Ordered, Rule::Explicit),
    }
}

/// Directories of checkpoints that begin at random.
const COPIES: [&str; 4] = ["copy-0", "copy-1", "copy-2", "copy-3"];

/// A change of a keyspace that waits for its turn in the joint order.
pub(super) struct Naming<'s> {
    turn: OrderTurn<'s>,
    what: NameChange,
}

enum NameChange {
    Make(String, Vec<(String, u64)>),
    Set(String, Vec<(String, u64)>),
    Drop(String),
}

impl<'s> Run<'s> {
    /// Begins to make or drop a keyspace, if no other change waits.
    pub(super) fn change_names(&mut self) {
        let count = NAMES.len() - if self.past.mix.hashed { 0 } else { HASHED_COUNT };
        let name = NAMES[self.past.rng.index(count)];
        match self.past.names.contains_key(name) {
            true if self.past.names.len() > 1 => self.begin(NameChange::Drop(name.to_owned())),
            true => {}
            false => self.begin_make(name),
        }
    }

    fn begin_make(&mut self, name: &str) {
        let some = [("level0_runs", 1 + self.past.rng.below(3)), ("size_ratio", 2)];
        let given = if self.past.mix.given.is_empty() { &some[..] } else { self.past.mix.given };
        // Partitions have the settings of their keyspace.
        let given = if name.contains('/') { &[] } else { given };
        self.begin(NameChange::Make(name.to_owned(), owned(given)));
    }

    pub(super) fn change_settings(&mut self) {
        let name = NAMES[self.past.rng.index(3)];
        let rng = &mut self.past.rng;
        let given = [
            ("level0_runs", 1 + rng.below(4)),
            ("compression", rng.below(2)),
            ("size_ratio", 2 + rng.below(4)),
            ("runs_per_level", 1 + rng.below(5)),
            ("runs_in_last_level", 1 + rng.below(3)),
            ("delete_persist_within", rng.below(4)),
        ];
        self.begin(NameChange::Set(name.to_owned(), owned(&given)));
    }

    fn begin(&mut self, what: NameChange) {
        if self.naming.is_none() {
            self.naming = Some(Naming { turn: OrderTurn::start(self.store), what });
        }
    }

    /// Makes a keyspace or partition with all writers at rest.
    pub(in crate::engine::tests) fn make_name(&mut self, name: &str) {
        self.finish();
        self.begin_make(name);
        self.finish();
    }

    pub(super) fn drop_name(&mut self, name: &str) {
        self.finish();
        self.begin(NameChange::Drop(name.to_owned()));
        self.finish();
    }

    pub(super) fn set(&mut self, name: &str, given: &[(&str, u64)]) {
        self.finish();
        self.begin(NameChange::Set(name.to_owned(), owned(given)));
        self.finish();
    }

    /// Advances the waiting change by one step; `false` if there is none, or it waits.
    pub(super) fn drive_naming(&mut self) -> bool {
        let Some(mut naming) = self.naming.take() else { return false };
        let turn = match naming.turn.poll() {
            Ok(true) => naming.turn,
            Ok(false) => {
                let (event, seen) = naming.turn.waits_for();
                let has_moved = event.seen() != seen;
                self.naming = Some(naming);
                return has_moved;
            }
            Err(error) => {
                self.told(Err(error));
                return true;
            }
        };
        match naming.what {
            NameChange::Make(name, given) => self.make(turn, &name, &given),
            NameChange::Set(name, given) => self.set_now(turn, &name, &given),
            NameChange::Drop(name) => self.drop_now(turn, &name),
        }
        true
    }

    fn make(&mut self, mut turn: OrderTurn<'_>, name: &str, given: &[(String, u64)]) {
        if self.past.names.contains_key(name) || self.past.model.trees.len() == SPACES_COUNT_MAX {
            return;
        }
        let kind = match name.split_once('/') {
            Some((keyspace, _)) => division_of(keyspace).0,
            None => wanted(name).kind,
        };
        let settings =
            merged(KeyspaceSettings::of_new(kind == KeyspaceKind::Hashed), given).expect("within limits");
        let (mut after, space) = (self.past.names.clone(), self.past.model.add_space());
        after.insert(name.to_owned(), space);
        let place = self.place_of_change(&after, Some((space, &settings)));
        let made = match name.split_once('/') {
            None => self.store.open_keyspace_in(&mut turn, name, given, wanted(name)),
            Some((keyspace, partition)) => {
                let (kind, rule) = division_of(keyspace);
                let wanted = KeyspaceRequest { kind, rule: Some(&rule) };
                let divided = self.store.open_keyspace_in(&mut turn, keyspace, &[], wanted);
                let names = [partition.as_bytes()];
                divided
                    .and_then(|one| self.store.create_partitions_in(&mut turn, &one, &names))
                    .map(|mut made| made.remove(0))
            }
        };
        let made = made.map(|keyspace| self.past.model.trees[space] = keyspace.tree);
        self.end_change(after, place, made);
    }

    fn set_now(&mut self, mut turn: OrderTurn<'_>, name: &str, given: &[(String, u64)]) {
        let Some(space) = self.past.names.get(name).copied() else { return };
        let before = named(self.store, name).expect("it is there").settings();
        let settings = merged(before.clone(), given).expect("within limits");
        if settings != before {
            let names = self.past.names.clone();
            let place = self.place_of_change(&names, Some((space, &settings)));
            let set = self.store.open_keyspace_in(&mut turn, name, given, wanted(name)).map(drop);
            self.end_change(names, place, set);
        }
    }

    fn drop_now(&mut self, mut turn: OrderTurn<'_>, name: &str) {
        let mut after = self.past.names.clone();
        if after.remove(name).is_some() {
            let place = self.place_of_change(&after, None);
            let dropped = match name.split_once('/') {
                None => self.store.drop_keyspace_in(&mut turn, name),
                Some((keyspace, partition)) => self.store.keyspace(keyspace).and_then(|divided| {
                    let dropped = self.store.drop_partitions_in(&mut turn, &divided, &[partition.as_bytes()]);
                    dropped.map(|count| assert_eq!(count, 1, "it is there"))
                }),
            };
            self.end_change(after, place, dropped);
        }
    }

    /// The place in the joint order of a change that holds the write leader's place.
    fn place_of_change(&mut self, after: &Names, set: Option<(usize, &KeyspaceSettings)>) -> usize {
        if let Some(count) = self.past.refused_from.take() {
            self.past.model.take_back(count);
        }
        let place = self.past.model.submit_names(after, set);
        self.tell();
        place
    }

    fn end_change(&mut self, after: Names, place: usize, result: Result<()>) {
        let known = &mut self.past.model.known;
        if result.is_ok() {
            (known.acked, known.synced) = (known.acked.max(place), known.synced.max(place));
            self.past.names = after;
        } else if self.store.writer.latched().is_none() {
            self.past.model.take_back(place - 1);
        }
        self.told(result);
    }

    /// Begins a checkpoint, if none is under way and a directory is free.
    pub(super) fn begin_copy(&mut self) {
        let is_free = |path: &&&str| self.past.model.known.copies.iter().all(|copied| copied.path != **path);
        if let Some(path) = COPIES.iter().find(is_free) {
            self.begin_copy_in(path);
        }
    }

    pub(super) fn begin_copy_in(&mut self, path: &'static str) {
        if self.copying.is_some() {
            return;
        }
        let known = &mut self.past.model.known;
        known.copies.push(Copied { path, least: known.acked, most: None });
        self.tell();
        match Checkpoint::start(self.store, Path::new(path)) {
            Ok(checkpoint) => self.copying = Some(checkpoint),
            Err(error) => self.told(Err(error)),
        }
    }

    /// Advances the checkpoint under way by one step; `false` if there is none, or it waits.
    pub(super) fn drive_copy(&mut self) -> bool {
        let Some(mut checkpoint) = self.copying.take() else { return false };
        match checkpoint.turn() {
            Ok(true) => {
                let known = &mut self.past.model.known;
                let copied = known.copies.last_mut().expect("it was put there when it began");
                copied.most = Some(known.submitted);
                self.tell();
                true
            }
            Ok(false) => {
                let has_moved = checkpoint.waits_for().is_none_or(|(event, seen)| event.seen() != seen);
                self.copying = Some(checkpoint);
                has_moved
            }
            Err(error) => {
                self.told(Err(error));
                true
            }
        }
    }
}

fn owned(given: &[(&str, u64)]) -> Vec<(String, u64)> {
    given.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}
