//! Parallel reads of table files when a store is opened: the ends of files, and pages that become resident.
//!
//! Blocking, on the caller's thread, with a reader of its own.

use std::any::Any;
use std::collections::BTreeMap;

use crate::base::error::{Error, Result};
use crate::base::few::Few;
use crate::base::id::FileName;
use crate::base::sync::Arc;
use crate::format::table::footer::Span;
use crate::io::reader::{Reader, Request, Target};
use crate::io::storage::Storage;

use super::identity::TableIdentity;
use super::memory::{AlignedBytes, PageBudget, PageRank};
use super::open::{Contents, FileTail, IsLive, TableFile, TableOwner};
use super::resident::Load;
use super::search::TableReader;

/// The most reads in flight.
const IN_FLIGHT_MAX: usize = 32;
/// Pages of a slice up to this length are read in one request, together with pages that follow them closely.
const PIECE_BYTES_MAX: u64 = 64 << 10;
const GAP_BYTES_MAX: u64 = 16 << 10;
/// The most bytes of fence pages whose sketches are built at once, except for a single table. Until one size
/// is chosen, the sketches of both sizes take 3/8 of these bytes.
const SKETCHED_AT_ONCE_BYTES: u64 = 1 << 20;

/// The buffer of a read, with its key.
struct Piece<K>(K, Span, FileName, AlignedBytes);

impl<K: Send + 'static> Target for Piece<K> {
    fn buffers(&mut self) -> Few<&mut [u8]> {
        Few::from_buf([&mut self.3])
    }
}

/// Loads that share one read: its file, its span, and the loads.
type Group = (FileName, Span, Vec<(Arc<TableReader>, Load)>);

/// Reads pieces of files, many at once, and passes each with its key to `done`, in any order. Ends with the
/// first error of `done`.
fn read_each<K: Send + 'static>(
    storage: &Arc<dyn Storage>,
    mut pieces: impl Iterator<Item = (K, FileName, Span)>,
    mut done: impl FnMut(K, Result<AlignedBytes>) -> Result<()>,
) -> Result<()> {
    let mut reader: Box<dyn Reader> = Arc::clone(storage).reader();
    let (mut in_flight, mut completed) = (0, Vec::new());
    loop {
        while in_flight < IN_FLIGHT_MAX && reader.room() > 0 {
            let Some((key, file, span)) = pieces.next() else { break };
            let target = Box::new(Piece(key, span, file, AlignedBytes::new(span.bytes as usize)));
            reader.push(Request { file, offset: span.offset, target });
            in_flight += 1;
        }
        if in_flight == 0 {
            return Ok(());
        }
        reader.submit();
        reader.reap(&mut completed);
        for one in completed.drain(..) {
            in_flight -= 1;
            let target: Box<dyn Any> = one.target;
            let Piece(key, span, file, bytes) = *target.downcast::<Piece<K>>().expect("it was pushed");
            let read = one.result.and_then(|read| match read as u64 == span.bytes {
                true => Ok(bytes),
                false => Err(Error::corrupt(file, span.offset, "bytes of the table", span.bytes, read)),
            });
            done(key, read)?;
        }
    }
}

/// Opens files, given with their lengths and checksums, and passes the tables of each file, in the order of
/// its slices, to `opened`; the files come in any order. `is_live` is asked with the file's index in `files`
/// and the slice's index in the file. No byte of a slice that is not live is read; its table exists only to
/// be dropped.
///
/// # Errors
/// `Corrupt` if a file is not the expected one, or if its header, tail, footer, or a top or range block is
/// damaged; `Io`; the first error of `opened`.
pub(crate) fn open_files(
    storage: &Arc<dyn Storage>,
    files: &[(TableIdentity, u64, u32)],
    is_live: &dyn Fn(usize, u32) -> bool,
    owner: &TableOwner,
    mut opened: impl FnMut(usize, Vec<Arc<TableReader>>) -> Result<()>,
) -> Result<()> {
    for (identity, bytes, _) in files {
        Contents::check_length(&**storage, *identity, *bytes)?;
    }
    let pieces = files.iter().enumerate().flat_map(|(index, (identity, bytes, _))| {
        let spans = [FileTail::header_span(), FileTail::span(*bytes)];
        spans.into_iter().enumerate().map(move |(part, span)| ((index, part), identity.file, span))
    });
    // The part of a file that was read first, until the other part is read.
    let mut halves: BTreeMap<usize, AlignedBytes> = BTreeMap::new();
    read_each(storage, pieces, |(index, part), read| {
        let read = read?;
        let Some(other) = halves.remove(&index) else {
            halves.insert(index, read);
            return Ok(());
        };
        let (header, end) = if part == 0 { (read, other) } else { (other, read) };
        let (identity, bytes, checksum) = files[index];
        let end = FileTail::of(identity, bytes, end);
        let named = (identity, bytes, Some(checksum));
        let is_live: IsLive<'_> = &|slice, _| Ok(is_live(index, slice));
        let contents = Contents::decode(&**storage, named, (&header, end), is_live)?;
        opened(index, TableFile::with(identity, bytes, contents.slices.into_iter(), owner))
    })
}

/// Makes pages of tables resident, in the order given, as far as the budget has room; the reads go in the
/// order of the files. Sketches take time to build: they are built for up to `sketched_bytes_max` of fence
/// pages, and put off for further tables. Each failed load is reported to `failed`, which decides whether
/// loading ends.
///
/// # Errors
/// The error that `failed` returns.
pub(crate) fn load_pages(
    storage: &Arc<dyn Storage>,
    budget: &Arc<PageBudget>,
    sketched_bytes_max: u64,
    wanted: impl Iterator<Item = (PageRank, Arc<TableReader>)>,
    mut failed: impl FnMut(Error) -> Result<()>,
) -> Result<()> {
    let mut sketched_bytes = 0;
    let mut wanted: Vec<(PageRank, Arc<TableReader>)> = wanted.collect();
    // A page may take less memory once it is read, which leaves room for refused pages. Failed loads are not
    // tried again.
    loop {
        let (mut loads, mut refused, mut at_once_bytes) = (Vec::new(), Vec::new(), 0);
        for (rank, table) in wanted {
            let is_over = sketched_bytes >= sketched_bytes_max;
            let may_sketch = !is_over && at_once_bytes < SKETCHED_AT_ONCE_BYTES;
            match table.begin_load(budget, (rank, may_sketch)) {
                Some(load) => {
                    if load.is_sketched() {
                        at_once_bytes += load.span().bytes;
                        sketched_bytes += load.span().bytes;
                    }
                    loads.push((table, load));
                }
                None if is_over && table.can_sketch(rank) => budget.put_off_sketches(table.tree()),
                None => refused.push((rank, table)),
            }
        }
        if loads.is_empty() {
            return Ok(());
        }
        let sketched: Vec<_> = loads
            .iter()
            .filter(|(_, load)| load.is_sketched())
            .map(|(table, _)| (PageRank::Fences, Arc::clone(table)))
            .collect();
        read_loads(storage, budget, loads, &mut failed)?;
        // If sketches are not worth it, the pages may take room that sketches of other pages left.
        wanted = sketched.into_iter().filter(|(_, table)| table.has_no_sketches()).collect();
        wanted.extend(refused);
    }
}

fn read_loads(
    storage: &Arc<dyn Storage>,
    budget: &Arc<PageBudget>,
    loads: Vec<(Arc<TableReader>, Load)>,
    failed: &mut impl FnMut(Error) -> Result<()>,
) -> Result<()> {
    let (short, long): (Vec<_>, Vec<_>) =
        loads.into_iter().partition(|(_, load)| load.span().bytes <= PIECE_BYTES_MAX);
    let mut short = short;
    for (table, mut load) in long {
        match load.read(&**storage) {
            Ok(()) => table.end_load(load, budget),
            Err(error) => failed(error)?,
        }
    }
    short.sort_by_key(|(_, load): &(Arc<TableReader>, Load)| (load.file(), load.span().offset));
    let mut groups: Vec<Group> = Vec::new();
    for (table, load) in short {
        let (file, span) = (load.file(), load.span());
        match groups.last_mut() {
            Some((last_file, last, loads))
                if *last_file == file
                    && span.offset - last.end() <= GAP_BYTES_MAX
                    && span.end() - last.offset <= PIECE_BYTES_MAX =>
            {
                last.bytes = span.end() - last.offset;
                loads.push((table, load));
            }
            _ => groups.push((file, span, vec![(table, load)])),
        }
    }
    let pieces = groups.into_iter().map(|(file, span, loads)| ((span.offset, loads), file, span));
    read_each(storage, pieces, |(offset, loads), read| {
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) => return failed(error),
        };
        for (table, mut load) in loads {
            let span = load.span();
            let start = (span.offset - offset) as usize;
            match load.take(&bytes[start..start + span.bytes as usize]) {
                Ok(()) => table.end_load(load, budget),
                Err(error) => failed(error)?,
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::base::id::FileKind;
    use crate::io::sim::SimDisk;

    /// Each read comes back with its key, in any order, and the reads in flight are bounded.
    #[test]
    fn reads_in_flight_are_bounded() {
        let file = FileName::new(FileKind::Table, 7);
        for seed in 1..=8 {
            let disk = SimDisk::new(seed);
            disk.create_directory().expect("no fault");
            let bytes: Vec<u8> = (0..512_000u32).map(|at| (at / 512) as u8).collect();
            disk.set_contents(file, Some(&bytes));
            let storage: Arc<dyn Storage> = disk;
            let (begun, ended, most) = (Cell::new(0usize), Cell::new(0), Cell::new(0));
            let pieces = (0..1000u64).map(|number| {
                begun.set(begun.get() + 1);
                most.set(most.get().max(begun.get() - ended.get()));
                (number, file, Span { offset: number * 512, bytes: 512 })
            });
            read_each(&storage, pieces, |number, read| {
                ended.set(ended.get() + 1);
                assert!(read?.iter().all(|byte| *byte == number as u8));
                Ok(())
            })
            .expect("no fault");
            assert_eq!((ended.get(), most.get()), (1000, IN_FLIGHT_MAX));
            let behind = [((), file, Span { offset: 511_744, bytes: 512 })];
            let short = read_each(&storage, behind.into_iter(), |(), read| read.map(|_| ()));
            assert!(matches!(short, Err(Error::Corrupt(_))), "the file ends before");
        }
    }
}
