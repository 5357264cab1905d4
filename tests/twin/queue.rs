//! Deletes as in queues: adjacent keys one by one, from either end or in the middle.

use std::sync::Arc;

use trine::Error;

use super::Twin;
use super::reads::Reads;

impl Twin {
    /// Deletes adjacent keys in order, one by one, as a queue is emptied from either end or in the middle;
    /// sometimes puts one back.
    pub(super) fn delete_neighbours(&mut self) {
        let name = self.some_name();
        let space = self.spaces.get_mut(&name).unwrap();
        let count = self.rng.below(400).min(space.map.len());
        let begin = match self.rng.below(3) {
            0 => 0,
            1 => space.map.len() - count,
            _ => self.rng.below(space.map.len() - count + 1),
        };
        let keys: Vec<Vec<u8>> = space.map.keys().skip(begin).take(count).cloned().collect();
        for key in &keys {
            match space.keyspace.delete(key) {
                Ok(()) => drop(space.map.remove(key)),
                Err(Error::TooLarge { what, .. }) => assert_eq!(what, "batch"),
                Err(error) => panic!("{error}"),
            }
        }
        let space = &self.spaces[&name];
        Reads::Now(&space.keyspace).check_around(&mut self.rng, &space.map, &keys);
        if let Some(key) = keys.get(self.rng.below(keys.len().max(1)))
            && self.rng.one_in(2)
        {
            self.writes += 1;
            let value: Arc<[u8]> = Arc::from(self.writes.to_le_bytes());
            let space = self.spaces.get_mut(&name).unwrap();
            if space.keyspace.put(key, &value).is_ok() {
                space.map.insert(key.clone(), value);
            }
        }
        let space = &self.spaces[&name];
        Reads::Now(&space.keyspace).check_around(&mut self.rng, &space.map, &keys);
    }
}
