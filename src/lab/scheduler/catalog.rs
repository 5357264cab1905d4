//! The catalog: the partitions, the blocks of level 0 and the arrays of each, and the logs that their flush
//! buffers need.
//!
//! It reads and writes no file. Edits change it, at run time and when a manifest is read; a whole catalog is
//! also one edit. Plain values of one thread.
//!
//! Invariants: 1. a block of level 0 lives while its partition has it, and the last file always lives; 2. ids
//! of partitions are never reused.

use std::collections::BTreeMap;

use super::edit::{BlockEntry, BlockRun, L0FileMeta, SchedulerEdit};
use crate::lab::array::ArrayMeta;

/// Address of a block of level 0: a file and a page of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct PageAddress {
    pub(super) file: u64,
    pub(super) page: u32,
}

/// A partition's part of the catalog.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct SubTreeMeta {
    /// Blocks of its level 0, oldest first.
    pub(super) blocks: Vec<PageAddress>,
    pub(super) components: Vec<Vec<ArrayMeta>>,
    /// The oldest log that its flush buffer needs, or 0.
    pub(super) oldest_log: u64,
}

/// A file of level 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct L0FileState {
    pub(super) meta: L0FileMeta,
    /// Its pages; entries of partition 0 are dead blocks.
    pub(super) entries: Vec<BlockEntry>,
    /// First page and first page of keys of each run.
    pub(super) runs: Vec<(u32, u32)>,
    live_blocks: u64,
}

/// The catalog; see the module.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct SchedulerCatalog {
    pub(super) partitions: BTreeMap<u32, SubTreeMeta>,
    pub(super) files: BTreeMap<u64, L0FileState>,
    pub(super) log_ends: BTreeMap<u64, u64>,
    pub(super) scheduled_log: u64,
    pub(super) next_partition: u32,
}

impl SchedulerCatalog {
    /// Applies an edit.
    ///
    /// # Errors
    /// The part of the edit that does not fit. The catalog must not be used afterwards.
    pub(super) fn apply(&mut self, edit: SchedulerEdit) -> std::result::Result<(), &'static str> {
        for id in edit.created {
            if id == 0 || self.partitions.insert(id, SubTreeMeta::default()).is_some() {
                return Err("a new partition");
            }
            self.next_partition = self.next_partition.max(id.saturating_add(1));
        }
        for (id, components) in edit.compacted {
            self.let_blocks_go(id);
            self.partitions.get_mut(&id).ok_or("a compacted partition")?.components = components;
        }
        for meta in edit.files {
            let file =
                L0FileState { meta: meta.clone(), entries: Vec::new(), runs: Vec::new(), live_blocks: 0 };
            self.files.insert(meta.number, file);
        }
        for run in edit.runs {
            self.add_run(run)?;
        }
        for id in edit.dropped {
            self.let_blocks_go(id);
            self.partitions.remove(&id).ok_or("a dropped partition")?;
        }
        for (id, log) in edit.pins {
            self.partitions.get_mut(&id).ok_or("a partition that needs a log")?.oldest_log = log;
        }
        self.log_ends.extend(edit.log_ends);
        self.scheduled_log = self.scheduled_log.max(edit.scheduled_log);
        self.next_partition = self.next_partition.max(edit.next_partition);
        let last = self.files.keys().next_back().copied();
        self.files.retain(|number, file| file.live_blocks > 0 || Some(*number) == last);
        Ok(())
    }

    fn add_run(&mut self, run: BlockRun) -> std::result::Result<(), &'static str> {
        let file = self.files.get_mut(&run.file).ok_or("a run's file")?;
        if run.first_page as usize != file.entries.len() || run.blocks.is_empty() {
            return Err("a run's first page");
        }
        file.runs.push((run.first_page, run.first_key_page));
        for block in run.blocks {
            if block.partition > 0 {
                let owner = self.partitions.get_mut(&block.partition).ok_or("a block's partition")?;
                owner.blocks.push(PageAddress { file: run.file, page: file.entries.len() as u32 });
                file.live_blocks += 1;
            }
            file.entries.push(block);
        }
        Ok(())
    }

    fn let_blocks_go(&mut self, id: u32) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        for block in std::mem::take(&mut partition.blocks) {
            let file = self.files.get_mut(&block.file).expect("a file lives while it has a live block");
            file.entries[block.page as usize].partition = 0;
            file.live_blocks -= 1;
        }
    }

    /// The edit that makes this catalog from an empty one.
    pub(super) fn whole(&self) -> SchedulerEdit {
        let partitions = || self.partitions.iter();
        let runs = self.files.iter().flat_map(|(number, file)| {
            let ends = file.runs.iter().skip(1).map(|(first, _)| *first as usize);
            let ends = ends.chain(std::iter::once(file.entries.len()));
            file.runs.iter().zip(ends).map(|((first_page, first_key_page), end)| BlockRun {
                file: *number,
                first_page: *first_page,
                first_key_page: *first_key_page,
                blocks: file.entries[*first_page as usize..end].to_vec(),
            })
        });
        SchedulerEdit {
            created: self.partitions.keys().copied().collect(),
            compacted: partitions()
                .filter(|(_, one)| !one.components.is_empty())
                .map(|(id, one)| (*id, one.components.clone()))
                .collect(),
            files: self.files.values().map(|file| file.meta.clone()).collect(),
            runs: runs.collect(),
            dropped: Vec::new(),
            pins: partitions()
                .filter(|(_, one)| one.oldest_log > 0)
                .map(|(id, one)| (*id, one.oldest_log))
                .collect(),
            log_ends: self.log_ends.iter().map(|(log, end)| (*log, *end)).collect(),
            scheduled_log: self.scheduled_log,
            next_partition: self.next_partition,
        }
    }

    pub(super) fn entry(&self, block: PageAddress) -> BlockEntry {
        self.files[&block.file].entries[block.page as usize]
    }

    /// The oldest log that flush buffers need, if there is one.
    pub(super) fn oldest_log(&self) -> Option<u64> {
        self.partitions.values().map(|one| one.oldest_log).filter(|log| *log > 0).min()
    }

    /// The first log that an opening must read.
    pub(super) fn first_log(&self) -> u64 {
        self.oldest_log().unwrap_or(u64::MAX).min(self.scheduled_log + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(partition: u32) -> BlockEntry {
        BlockEntry { partition, count: 1, checksum: 7 }
    }

    fn run(file: u64, first_page: u32, partitions: &[u32]) -> BlockRun {
        let blocks = partitions.iter().map(|id| block(*id)).collect();
        BlockRun { file, first_page, first_key_page: first_page, blocks }
    }

    fn file(number: u64) -> L0FileMeta {
        L0FileMeta { number, uid: number, keys: None }
    }

    /// A block dies with a compaction or a drop, a file with its last block. The whole catalog as one edit
    /// gives the same catalog, dead blocks included.
    #[test]
    fn files_live_while_a_block_does() {
        let mut catalog = SchedulerCatalog::default();
        let first = SchedulerEdit {
            created: vec![1, 2],
            files: vec![file(5)],
            runs: vec![run(5, 0, &[1, 2, 1])],
            pins: vec![(1, 8), (2, 6)],
            scheduled_log: 9,
            ..SchedulerEdit::default()
        };
        catalog.apply(first).expect("it fits");
        let second = SchedulerEdit {
            files: vec![file(7)],
            runs: vec![run(5, 3, &[2]), run(7, 0, &[1])],
            ..SchedulerEdit::default()
        };
        catalog.apply(second).expect("it fits");
        assert_eq!(catalog.partitions[&1].blocks.len(), 3);
        assert_eq!((catalog.oldest_log(), catalog.first_log()), (Some(6), 6));
        let compacted = SchedulerEdit { compacted: vec![(1, Vec::new())], ..SchedulerEdit::default() };
        catalog.apply(compacted).expect("it fits");
        assert_eq!(catalog.files.len(), 2, "partition 2 has blocks in file 5, and file 7 is the last");
        let mut again = SchedulerCatalog::default();
        again.apply(catalog.whole()).expect("it fits");
        assert_eq!(again, catalog);
        catalog.apply(SchedulerEdit { dropped: vec![2], ..SchedulerEdit::default() }).expect("it fits");
        assert_eq!(catalog.files.keys().copied().collect::<Vec<_>>(), [7]);
        assert_eq!((catalog.first_log(), catalog.next_partition), (8, 3));
    }

    /// Edits that do not fit are refused: blocks of no partition, runs that are not adjacent, ids allotted
    /// twice.
    #[test]
    fn edits_that_do_not_fit_are_refused() {
        let none = SchedulerEdit::default;
        let created = SchedulerEdit { created: vec![1], files: vec![file(5)], ..none() };
        for bad in [
            SchedulerEdit { created: vec![1], ..none() },
            SchedulerEdit { created: vec![0], ..none() },
            SchedulerEdit { runs: vec![run(6, 0, &[1])], ..none() },
            SchedulerEdit { runs: vec![run(5, 1, &[1])], ..none() },
            SchedulerEdit { runs: vec![run(5, 0, &[])], ..none() },
            SchedulerEdit { runs: vec![run(5, 0, &[3])], ..none() },
            SchedulerEdit { dropped: vec![3], ..none() },
            SchedulerEdit { pins: vec![(3, 1)], ..none() },
            SchedulerEdit { compacted: vec![(3, Vec::new())], ..none() },
        ] {
            let mut catalog = SchedulerCatalog::default();
            catalog.apply(created.clone()).expect("it fits");
            assert!(catalog.apply(bad.clone()).is_err(), "{bad:?}");
        }
    }
}
