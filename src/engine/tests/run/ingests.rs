//! Ingests of a run: built at once, and published turn by turn between the writers' steps.

use crate::base::error::Error;
use crate::engine::ingest::IngestWriter;
use crate::engine::ingest::publish::{Publish, PublishStep};

use super::super::crash::named;
use super::super::model::{Write, fingerprint};
use super::Run;
use super::names::is_hashed;

/// An ingest whose tables are built and not yet published.
pub(super) struct Ingesting<'s> {
    // Dropped before `ingest`, which removes the files.
    publish: Publish<'s>,
    ingest: IngestWriter,
    writes: Vec<Write>,
}

impl Run<'_> {
    /// Builds the tables of an ingest, if none is under way.
    pub(super) fn begin_ingest(&mut self) {
        let names: Vec<String> = self.past.names.keys().filter(|name| !is_hashed(name)).cloned().collect();
        if self.ingesting.is_some() || names.is_empty() {
            return;
        }
        let name = &names[self.past.rng.index(names.len())];
        let keyspace = named(self.store, name).expect("it is there");
        let (space, mut writes) = (self.past.names[name], Vec::new());
        let built = IngestWriter::begin(self.store, &keyspace).and_then(|mut ingest| {
            let first = self.past.rng.below(self.past.mix.keys_count);
            let count = 1 + self.past.rng.below(self.past.mix.keys_count);
            for number in first..(first + count).min(self.past.mix.keys_count) {
                if number > first && self.past.rng.one_in(3) {
                    continue;
                }
                let key = format!("{number:03}").into_bytes();
                let mut value = self.past.op_next.to_le_bytes().to_vec();
                value.resize(8 + self.past.rng.index(self.past.mix.value_bytes), number as u8);
                ingest.put(&key, &value)?;
                let fingerprint = fingerprint(&key, &value);
                writes.push(Write { space, key, fingerprint, range_end: None });
            }
            let tables = ingest.complete()?;
            Ok((Publish::new(self.store, ingest.targets(), tables), ingest))
        });
        self.past.op_next += 1;
        match built {
            // Some ingests are dropped.
            Ok(_) if self.past.rng.one_in(6) => {}
            Ok((publish, ingest)) => self.ingesting = Some(Ingesting { publish, ingest, writes }),
            Err(error) => self.past.errors.push(error),
        }
    }

    /// One turn of the ingest under way; `false` if there is none, or it waits.
    pub(super) fn drive_ingest(&mut self) -> bool {
        let Some(mut now) = self.ingesting.take() else { return false };
        let mut place = None;
        if now.publish.is_due() {
            // It holds the write leader's place: this is its position among the writes.
            if let Some(count) = self.past.refused_from.take() {
                self.past.model.take_back(count);
            }
            place = Some(self.past.model.submit(&now.writes));
            self.tell();
        }
        match now.publish.turn() {
            Ok(PublishStep::Done) => {
                let place = place.expect("it said that it was due");
                let known = &mut self.past.model.known;
                (known.acked, known.synced) = (known.acked.max(place), known.synced.max(place));
                now.ingest.published();
                self.past.ingests_count += 1;
            }
            Ok(moved) => {
                assert!(place.is_none(), "it was due");
                let has_moved = moved == PublishStep::Again || {
                    let (event, seen) = now.publish.waits_for();
                    event.seen() != seen
                };
                self.ingesting = Some(now);
                return has_moved;
            }
            Err(error) => {
                if let Some(place) = place
                    && self.store.writer.latched().is_none()
                {
                    self.past.model.take_back(place - 1);
                }
                if !matches!(error, Error::Dropped { .. }) {
                    self.past.errors.push(error);
                }
            }
        }
        self.tell();
        true
    }
}
