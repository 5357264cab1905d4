//! Keyspaces and partitions of a twin: opened, made, dropped, and found again.

use trine::{Error, Partitioning, Result};

use crate::support::{divided, find, names};

use super::keys::Keys;
use super::{Map, Space, Twin};

/// Those with a slash are partitions of a keyspace that is divided.
const NAMES: [&str; 6] = ["a", "b", "divided/", "divided/p", "users", "z"];

impl Twin {
    /// Opens a keyspace that is there or not, with settings or without.
    pub(super) fn open_keyspace(&mut self) {
        let name = *self.rng.choose(&NAMES);
        let mut builder = self.db.ordered(name.split('/').next().unwrap());
        let settings: [(&str, &[u64]); 12] = [
            ("table_bytes", &[64 << 10, 100_000, 1 << 20]),
            ("size_ratio", &[2, 3, 8]),
            ("level0_runs", &[1, 2, 4]),
            ("runs_per_level", &[0, 1, 2, 63]),
            ("runs_in_last_level", &[0, 0, 1, 2, 63]),
            ("delete_persist_within", &[0, 1, 3600]),
            ("filter_bits_per_key", &[0, 3, 10, 12, 24]),
            ("filter_kind", &[0, 1, 2, 3, 4]),
            ("filter_probes", &[0, 1, 16]),
            ("filter_allocation", &[0, 1]),
            ("block_bytes", &[4096, 5000, 16 << 10, 64 << 10]),
            ("compression", &[0, 1]),
        ];
        for (setting, values) in settings {
            if self.rng.one_in(2) {
                builder = builder.set(setting, *self.rng.choose(values));
            }
        }
        let keyspace = match name.split_once('/') {
            None => builder.open().unwrap(),
            Some((_, partition)) => {
                let divided = builder.partition_by(Partitioning::explicit()).open().unwrap();
                divided.partition(partition).unwrap()
            }
        };
        let partition = name.split_once('/').map(|(_, partition)| partition.as_bytes());
        assert_eq!(
            (keyspace.name(), keyspace.partition_name()),
            (name.split('/').next().unwrap(), partition)
        );
        let keys = Keys::any(&mut self.rng);
        match self.spaces.get_mut(name) {
            Some(space) => space.keyspace = keyspace,
            None => {
                let space = Space { keyspace, map: Map::new(), keys };
                assert!(space.keyspace.iter().next().is_none(), "what was dropped is gone");
                self.spaces.insert(name.to_owned(), space);
            }
        }
    }

    pub(super) fn drop_keyspace(&mut self) {
        if self.spaces.len() < 2 {
            return;
        }
        let name = self.some_name();
        let space = self.spaces.remove(&name).unwrap();
        match name.split_once('/') {
            None => self.db.drop_keyspace(&name).unwrap(),
            Some((keyspace, partition)) => {
                let divided = divided(&self.db, keyspace);
                assert!(divided.drop_partition(partition).unwrap());
                assert!(divided.find_partition(partition).unwrap().is_none());
                let is_last = divided.partitions().unwrap().is_empty();
                if is_last && self.rng.one_in(2) {
                    self.db.drop_keyspace(keyspace).unwrap();
                    assert!(matches!(divided.partition(partition), Err(Error::Dropped { .. })));
                }
            }
        }
        let dropped = |result: Result<()>| assert!(matches!(result, Err(Error::Dropped { .. })));
        dropped(space.keyspace.get("a").map(|_| ()));
        dropped(space.keyspace.put("a", "b"));
        dropped(space.keyspace.iter().next().unwrap().map(|_| ()));
        let now = self.db.snapshot();
        dropped(space.keyspace.at(&now).iter().next().unwrap().map(|_| ()));
        assert!(matches!(self.db.keyspace(&name), Err(Error::NoKeyspace { .. })));
    }

    /// After a reopening: those that there must be, and handles of them.
    pub(super) fn find_keyspaces(&mut self) {
        let names = names(&self.db);
        assert!(names.iter().eq(self.spaces.keys()), "{names:?}");
        for (name, space) in &mut self.spaces {
            space.keyspace = find(&self.db, name).unwrap();
        }
    }
}
