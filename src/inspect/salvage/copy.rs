//! The copy of items to the new store: first from tables, as planned, then from logs.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::error::Result;
use crate::base::id::{FileKind, FileName, ItemKind, KeyspaceId, PartitionId, Sequence, TreeId};
use crate::base::place::{given_key, stored_key};
use crate::base::rule::{Rule, partition_name};
use crate::base::settings::KeyspaceSettings;
use crate::base::sync::Arc;
use crate::engine::publish::keyspace::{self, restored};
use crate::engine::{Store, Until};
use crate::format::frames::{Expected, Record, every_record, scan};
use crate::format::log;
use crate::format::manifest::{ManifestKeyspace, NAME_BYTES_MAX};
use crate::format::table::footer::Span;
use crate::io::storage::Storage;
use crate::table::{Good, good_extents, read_past_faults};
use crate::wal::replay::read_witness;
use crate::write::batch::BatchItems;

use super::super::verify::Progress;
use super::plan::{CopyJob, CopyRanges, Dest, SalvagePlan};
use super::survey::{HeldLog, Survey};
use super::{Doubt, Doubtful, Salvaged};

/// Maximum bytes and items of a batch of writes.
const BATCH_BYTES: usize = 128 << 10;
const BATCH_ITEMS_COUNT: usize = 256;

/// Maximum length of a number appended to a name.
const NUMBER_BYTES_MAX: usize = 12;

/// The state of copying.
pub(super) struct Copy<'c> {
    from: &'c Arc<dyn Storage>,
    to: &'c Arc<Store>,
    progress: &'c mut dyn FnMut(&Progress),
    survey: &'c Survey,
    plan: &'c SalvagePlan,
    made: BTreeMap<Dest, Made>,
    /// Names of keyspaces of the old store and of the new one.
    names: BTreeSet<String>,
    batch: BatchItems,
    writes: u64,
    /// Items copied from tables that the manifest names, by tree.
    copied: BTreeMap<TreeId, u64>,
    total_bytes: u64,
    done_bytes: u64,
}

/// A keyspace of the new store.
struct Made {
    tree: TreeId,
    name: String,
    writes: u64,
    files: BTreeSet<FileName>,
}

impl<'c> Copy<'c> {
    pub(super) fn new(
        (from, to): (&'c Arc<dyn Storage>, &'c Arc<Store>),
        progress: &'c mut dyn FnMut(&Progress),
        (survey, plan): (&'c Survey, &'c SalvagePlan),
    ) -> Copy<'c> {
        let tables = plan.jobs.iter().map(|job| job.span.bytes);
        let total_bytes = tables.chain(survey.logs.iter().map(|log| log.held.bytes)).sum();
        let names = survey.known.state.keyspaces.values().map(|one| one.name.clone()).collect();
        Copy {
            from,
            to,
            progress,
            survey,
            plan,
            made: BTreeMap::new(),
            names,
            batch: BatchItems::default(),
            writes: 0,
            copied: BTreeMap::new(),
            total_bytes,
            done_bytes: 0,
        }
    }

    /// Copies everything. Adds the number of writes and the doubtful keyspaces to `salvaged`, also after an
    /// error.
    pub(super) fn all(mut self, salvaged: &mut Salvaged) -> Result<()> {
        let done = self.keyspaces().and_then(|()| self.tables()).and_then(|()| self.logs());
        let done = done.and_then(|()| self.send()).and_then(|()| self.retain());
        salvaged.writes = self.writes;
        salvaged.doubtful = self.made.iter().filter_map(|(dest, made)| self.doubtful(*dest, made)).collect();
        done
    }

    /// Makes the keyspaces of the old store, under their own names.
    fn keyspaces(&mut self) -> Result<()> {
        let state = &self.survey.known.state;
        for (id, keyspace) in &state.keyspaces {
            let ManifestKeyspace { name, settings, rule, .. } = keyspace;
            let own = |partition: PartitionId| Dest::Own(TreeId { keyspace: *id, partition });
            let Some(rule) = rule else {
                // If there is no partition, an edit of the manifest is lost.
                let partition = state.partitions_of(*id).next().unwrap_or(PartitionId(0));
                self.make(own(partition), name.clone(), restored(settings))?;
                continue;
            };
            let divided = self.divided(*id, name, &given(&restored(settings)), rule)?;
            for partition in state.partitions_of(*id) {
                let one = self.to.partition(&divided, &state.partitions[&partition].name)?;
                self.note_made(own(partition), one.tree, name.clone());
            }
        }
        Ok(())
    }

    /// Applies the old store's retention bound: drops expired partitions, after their items are copied.
    fn retain(&self) -> Result<()> {
        for (id, keyspace) in &self.survey.known.state.keyspaces {
            let ManifestKeyspace { name, rule, retained_from, .. } = keyspace;
            if let (Some(rule), false) = (rule, retained_from.is_empty()) {
                let divided = self.divided(*id, name, &[], rule)?;
                self.to.retain_from(&divided, retained_from)?;
            }
        }
        Ok(())
    }

    /// Opens a divided keyspace of the kind given by its id.
    fn divided(
        &self,
        id: KeyspaceId,
        name: &str,
        given: &[(String, u64)],
        rule: &Rule,
    ) -> Result<Arc<keyspace::KeyspaceState>> {
        match id.is_hashed() {
            true => self.to.open_hashed_divided(name, given, rule),
            false => self.to.open_divided(name, given, rule),
        }
    }

    fn make(&mut self, dest: Dest, name: String, settings: KeyspaceSettings) -> Result<()> {
        let tree = match dest.is_hashed() {
            true => self.to.open_hashed(&name, &given(&settings))?.tree,
            false => self.to.open_keyspace(&name, &given(&settings))?.tree,
        };
        self.note_made(dest, tree, name);
        Ok(())
    }

    fn note_made(&mut self, dest: Dest, tree: TreeId, name: String) {
        self.made.insert(dest, Made { tree, name, writes: 0, files: BTreeSet::new() });
    }

    fn begin(&mut self, file: FileName, bytes: u64) {
        let (done_bytes, total_bytes) = (self.done_bytes, self.total_bytes);
        (self.progress)(&Progress { file: file.to_string(), done_bytes, total_bytes });
        self.done_bytes += bytes;
    }

    fn tables(&mut self) -> Result<()> {
        let plan = self.plan;
        plan.jobs.iter().try_for_each(|job| self.table(job))
    }

    fn table(&mut self, job: &CopyJob) -> Result<()> {
        self.begin(job.held.file, job.span.bytes);
        // Range tombstones are stored behind the items, but hide none in their own table: they are written
        // first.
        match &job.ranges {
            CopyRanges::None => {}
            CopyRanges::All(span) => self.ranges(job, *span, &|_, _| true)?,
            CopyRanges::Within(span, min, max) => self.ranges(job, *span, &|start, end| {
                let is_below = |max: &[u8]| !end.is_empty() && *end <= *max;
                **min <= *start && max.as_deref().is_none_or(is_below)
            })?,
        }
        let (from, has_deletes) = (Arc::clone(self.from), job.has_deletes());
        let secret = self.survey.secret();
        good_extents(&*from, (job.held.file, job.held.uid, job.span), secret.as_ref(), &mut |_, good| {
            let Good::Items(items) = good else { return Ok(()) };
            for index in 0..items.count() {
                let (key, kind, value) = items.item(index);
                if has_deletes || kind != ItemKind::Delete {
                    self.write(job.dest, job.held.file, (kind, &key, value))?;
                }
            }
            if let Dest::Own(id) | Dest::Named(id) = job.dest {
                *self.copied.entry(id).or_default() += items.count() as u64;
            }
            Ok(())
        })
    }

    /// Copies the range tombstones of a part of a table for which `is_used` is true.
    fn ranges(&mut self, job: &CopyJob, span: Span, is_used: &dyn Fn(&[u8], &[u8]) -> bool) -> Result<()> {
        let from = Arc::clone(self.from);
        good_extents(&*from, (job.held.file, job.held.uid, span), None, &mut |_, good| {
            let Good::Ranges(ranges) = good else { return Ok(()) };
            let mut used = ranges.iter().filter(|(start, end)| is_used(start, end));
            used.try_for_each(|(start, end)| {
                self.write(job.dest, job.held.file, (ItemKind::DeleteRange, start, end))
            })
        })
    }

    fn logs(&mut self) -> Result<()> {
        let survey = self.survey;
        survey.logs.iter().try_for_each(|log| self.log(log))
    }

    fn log(&mut self, log: &HeldLog) -> Result<()> {
        let HeldLog { held, recorded_end, .. } = *log;
        self.begin(held.file, held.bytes);
        let mut read = vec![0; held.bytes as usize];
        read_past_faults(&**self.from, held.file, 0, &mut read)?;
        let (boot_id, witness) = (self.from.boot_id(), read_witness(&**self.from));
        let header = self.survey.header(FileKind::Log, held.uid);
        let bytes = read.len() as u64;
        let expected = Expected { file: held.file, header, bytes, recorded_end, witness, boot_id };
        // Recovery would not use records behind a torn one, and never used records behind the end of a sealed
        // log.
        let end = scan(&expected, &read).map_or(u64::MAX, |found| found.end.bytes);
        let is_used = |record: &Record<'_>| recorded_end.is_none_or(|end| record.offset < end.bytes);
        for record in every_record(&header, &read).into_iter().filter(is_used) {
            let Ok(items) = log::Items::new(record.payload) else { continue };
            for (item, sequence) in items.zip(record.sequence..) {
                let is_behind = record.offset >= end;
                if let Some(dest) = self.dest(item.tree, sequence, (log, is_behind)) {
                    self.write(dest, held.file, (item.kind, item.key, item.value))?;
                }
            }
        }
        Ok(())
    }

    /// The target of an item of a log; `None` if the item is not needed. `is_behind`: the item is behind a
    /// torn record.
    fn dest(&self, id: TreeId, sequence: Sequence, (log, is_behind): (&HeldLog, bool)) -> Option<Dest> {
        let known = &self.survey.known;
        if known.is_dropped(id) {
            return None;
        }
        let is_flushed = sequence <= known.state.flushed;
        if !known.state.has_tree(id) {
            return (!is_flushed).then_some(Dest::Log(id));
        }
        let count = |counts: &BTreeMap<TreeId, u64>| counts.get(&id).copied().unwrap_or(0);
        let is_short = || count(&self.copied) < count(&self.plan.expected);
        let is_believed = log.is_named || known.is_older || !known.is_whole;
        match (self.plan.stale.contains(&id), is_flushed) {
            (true, _) => Some(Dest::Log(id)),
            (false, false) if is_behind => Some(Dest::Log(id)),
            // The table has lost items, and this may be one of them.
            (false, true) => is_short().then_some(Dest::Log(id)),
            (false, false) => is_believed.then_some(Dest::Own(id)),
        }
    }

    fn write(&mut self, dest: Dest, file: FileName, item: (ItemKind, &[u8], &[u8])) -> Result<()> {
        let (kind, key, value) = item;
        let payload_bytes = self.batch.payload().len() + key.len() + value.len();
        if payload_bytes > BATCH_BYTES || self.batch.count() == BATCH_ITEMS_COUNT {
            self.send()?;
        }
        if !self.made.contains_key(&dest) {
            let (name, settings) = self.name(dest);
            self.names.insert(name.clone());
            self.make(dest, name, settings)?;
        }
        let made = self.made.get_mut(&dest).expect("it was made");
        let tree = made.tree;
        if tree.keyspace.is_hashed() && self.survey.hash_secret.is_none() {
            // STORE is lost, and with it the hash secret that orders the keys.
            if kind == ItemKind::DeleteRange && !(key.is_empty() && value.is_empty()) {
                ::log::warn!("a part of a deleted hashed keyspace is left out: deleted items may be back");
                return Ok(());
            }
            let given = given_key(tree, key);
            let stored = stored_key(self.to.hash_secret(), tree.keyspace, given);
            let key = if kind == ItemKind::DeleteRange { key } else { &stored };
            self.batch.push(tree, kind, key, value)?;
        } else {
            self.batch.push(tree, kind, key, value)?;
        }
        made.writes += 1;
        self.writes += 1;
        if !made.files.contains(&file) {
            made.files.insert(file);
        }
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        self.to.write(&self.batch, Some(Until::Written))?;
        self.batch.clear();
        Ok(())
    }

    /// Name and settings of a keyspace for doubtful items. No other keyspace has the name.
    fn name(&self, dest: Dest) -> (String, KeyspaceSettings) {
        let of = |id: TreeId| self.survey.known.state.keyspaces.get(&id.keyspace);
        let (id, known, unknown) = match dest {
            Dest::Own(id) | Dest::Named(id) => (id, "older-".to_owned(), String::new()),
            Dest::Unnamed(id, layer) => (id, format!("unnamed-{layer}-"), format!("{layer}-")),
            Dest::Log(id) => (id, "log-".to_owned(), "log-".to_owned()),
            Dest::Segment { file, number, .. } => {
                let name = format!("salvaged-unknown-table-{file:x}-{number}");
                return (free(&self.names, name), KeyspaceSettings::default());
            }
        };
        match of(id) {
            Some(keyspace) => {
                let named = format!("salvaged-{known}{}", keyspace.name);
                let is_short = named.len() + NUMBER_BYTES_MAX <= NAME_BYTES_MAX;
                let name = if is_short { named } else { format!("salvaged-{known}{}", id.keyspace.0) };
                (free(&self.names, name), restored(&keyspace.settings))
            }
            None => {
                let name = format!("salvaged-unknown-{unknown}{}", id.keyspace.0);
                (free(&self.names, name), KeyspaceSettings::default())
            }
        }
    }

    /// The name of the tree's partition, if known; else of its keyspace.
    fn name_of(&self, tree: TreeId) -> Option<String> {
        let state = &self.survey.known.state;
        let keyspace = state.keyspaces.get(&tree.keyspace)?;
        let partition = state.partitions.get(&tree.partition).filter(|_| keyspace.rule.is_some());
        let named = partition.map(|partition| partition_name(&keyspace.name, &partition.name));
        Some(named.unwrap_or_else(|| keyspace.name.clone()))
    }

    fn doubtful(&self, dest: Dest, made: &Made) -> Option<Doubtful> {
        let of = |tree: TreeId| self.name_of(tree);
        let (of, doubt) = match dest {
            Dest::Own(_) => return None,
            Dest::Named(id) => (of(id), Doubt::Older),
            Dest::Unnamed(id, _) => (of(id), Doubt::Unnamed),
            Dest::Log(id) => (of(id), Doubt::Log),
            Dest::Segment { .. } => (None, Doubt::Unknown),
        };
        let doubt = if of.is_none() { Doubt::Unknown } else { doubt };
        let files = made.files.iter().map(FileName::to_string).collect();
        Some(Doubtful { keyspace: made.name.clone(), of, doubt, files, writes: made.writes })
    }
}

fn given(settings: &KeyspaceSettings) -> Vec<(String, u64)> {
    settings.values().into_iter().map(|(setting, value)| (setting.name.to_owned(), value)).collect()
}

/// The name if it is free, else the first free name with a number appended.
fn free(names: &BTreeSet<String>, name: String) -> String {
    if !names.contains(&name) {
        return name;
    }
    let longer = (2..=names.len() + 2).map(|number| format!("{name}-{number}"));
    longer.into_iter().find(|name| !names.contains(name)).unwrap_or(name)
}
