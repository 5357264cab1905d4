//! The parts of one file of a store, in file order, each with its contents in words. docs/FORMAT.md defines
//! each part's bytes.

use std::path::Path;

use crate::base::error::{Corrupt, Error, Result};
use crate::base::id::{FileKind, FileLayout, FileName, ItemKind};
use crate::base::place::shown_key;
use crate::base::settings::StoreSettings;
use crate::base::sync::Arc;
use crate::format::frames::{
    FRAMED_BYTES_MAX, FramePoint, RECORD_HEAD_BYTES, RECORDS_FROM, Slot, every_record, record_bytes,
};
use crate::format::header::{FileHeader, PAGE_BYTES};
use crate::format::log::Items;
use crate::format::manifest::{Changes, ManifestChange};
use crate::format::store::Live;
use crate::format::witness::{WITNESS_OFFSET, Witness};
use crate::io::storage::{Storage, read_whole};
use crate::table::{Said, TableIdentity, TablePart, table_parts};

/// A part of a file.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("data");
/// # trine::Db::open(&path)?.close()?;
/// let mut names = Vec::new();
/// trine::inspect::dump(path.join("STORE"), |part| names.push(part.name))?;
/// assert_eq!(names, ["header", "slot 0", "slot 1", "witness"]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Part {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Kind of the part.
    pub name: &'static str,
    /// The contents in words. Keys are escaped where they are not text. A key of a hashed keyspace is printed
    /// behind its place: 22 digits and a slash.
    pub says: String,
    /// The damage, if the part is damaged.
    pub damage: Option<Corrupt>,
}

/// Calls `tell` with every part of a file of a store, damaged or not: STORE, a manifest, a log or a table.
/// The store may be open meanwhile; bytes being written may then look torn.
///
/// Every intact record of a log is shown, also records behind damage, which recovery would not use.
///
/// # Errors
/// `Foreign` if the name is not one of a store's files, `Missing`, `Unsupported`, `Permission`, `Io`. Damage
/// is no error: the parts report it.
///
/// # Cost
/// Reads the file once. A log or manifest is held in memory whole, a table one block at a time.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("data");
/// # let db = trine::Db::open(&path)?;
/// # db.ordered("users").open()?.put(b"ann", b"1")?;
/// # db.flush()?;
/// # db.close()?;
/// for entry in std::fs::read_dir(&path).unwrap() {
///     let file = entry.unwrap().path();
///     if file.ends_with("LOCK") {
///         continue;
///     }
///     trine::inspect::dump(&file, |part| {
///         println!("{:10} {:8} {}: {}", part.offset, part.bytes, part.name, part.says);
///     })?;
/// }
/// # Ok(()) }
/// ```
pub fn dump(file: impl AsRef<Path>, mut tell: impl FnMut(&Part)) -> Result<()> {
    let path = file.as_ref();
    let directory = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let known = FileName::parse(&name, 0).filter(|name| name.kind != FileKind::Lock);
    let Some(file) = known else {
        return Err(Error::Foreign { path: directory.display().to_string(), found: name });
    };
    let env = StoreSettings::default().env(directory)?;
    dump_in(&env.storage, file, &mut tell)
}

pub(crate) fn dump_in(storage: &Arc<dyn Storage>, file: FileName, tell: &mut dyn FnMut(&Part)) -> Result<()> {
    let Some(bytes) = storage.length(file)? else {
        return Err(Error::Missing { path: format!("{}/{file}", storage.path()) });
    };
    let mut dump = Dump { file, tell };
    let mut page = vec![0; bytes.min(PAGE_BYTES as u64) as usize];
    let read = storage.read(file, 0, &mut page)?;
    page.truncate(read);
    let header = match FileHeader::decode(file, &page, file.kind) {
        Ok(header) => header,
        Err(error) => return dump.part(0, bytes, "header", Err(error)),
    };
    let layout = file.kind.traits().layout;
    if bytes > FRAMED_BYTES_MAX && layout != FileLayout::Table {
        let error = Error::corrupt(file, 0, "the file's length", FRAMED_BYTES_MAX, bytes);
        return dump.part(0, bytes, "file", Err(error));
    }
    let says = format!("{:?}, store {:032x}, uid {:016x}", file.kind, header.store_id, header.uid);
    dump.part(0, PAGE_BYTES as u64, "header", Ok(says))?;
    match layout {
        FileLayout::Slots => dump.store(&read_whole(&**storage, file, bytes)?, &header),
        FileLayout::Frames => dump.frames(&read_whole(&**storage, file, bytes)?, &header),
        FileLayout::Table => {
            let identity = TableIdentity { file, uid: header.uid, store_id: header.store_id };
            let parts = table_parts(storage, identity, bytes, &mut |part| dump.table(part));
            match parts {
                Err(error @ Error::Corrupt(_)) => dump.part(0, bytes, "table", Err(error)),
                parts => parts,
            }
        }
        FileLayout::Empty | FileLayout::Lab | FileLayout::Unwritten => Ok(()),
    }
}

struct Dump<'d> {
    file: FileName,
    tell: &'d mut dyn FnMut(&Part),
}

impl Dump<'_> {
    /// Reports a part. Damage is reported in the part; any other error ends the dump.
    fn part(&mut self, offset: u64, bytes: u64, name: &'static str, says: Result<String>) -> Result<()> {
        let (says, damage) = match says {
            Ok(says) => (says, None),
            Err(Error::Corrupt(damage)) => (String::new(), Some(*damage)),
            Err(error) => return Err(error),
        };
        (self.tell)(&Part { offset, bytes, name, says, damage });
        Ok(())
    }

    fn store(&mut self, bytes: &[u8], header: &FileHeader) -> Result<()> {
        for (index, slot) in Live::both(bytes, header.uid).into_iter().enumerate() {
            let offset = ((index + 1) * PAGE_BYTES) as u64;
            let says = slot.map_err(|bad| Error::malformed(self.file, offset, bad)).map(|live| {
                let Live { turn, store_id, manifest, next_file_number, .. } = live;
                let file = FileName::new(FileKind::Manifest, manifest.number);
                format!(
                    "turn {turn}, store {store_id:032x}, {file} with uid {:016x} of {} bytes, file numbers \
                     from {next_file_number:x} are free",
                    manifest.uid, manifest.bytes
                )
            });
            self.part(offset, PAGE_BYTES as u64, ["slot 0", "slot 1"][index], says)?;
        }
        let page = bytes.get(WITNESS_OFFSET as usize..).unwrap_or_default();
        let is_made = page.iter().any(|byte| *byte != 0);
        let says = match Witness::decode(page) {
            Ok(Witness { uid, durable, .. }) => {
                let FramePoint { bytes, chain } = durable;
                Ok(format!("the log with uid {uid:016x} durable to {bytes}, chain {chain:016x}"))
            }
            Err(bad) if is_made => Err(Error::malformed(self.file, WITNESS_OFFSET, bad)),
            Err(_) => Ok("none yet".to_owned()),
        };
        self.part(WITNESS_OFFSET, PAGE_BYTES as u64, "witness", says)
    }

    fn frames(&mut self, bytes: &[u8], header: &FileHeader) -> Result<()> {
        for (index, slot) in Slot::both(bytes, header.uid).into_iter().enumerate() {
            let offset = ((index + 1) * PAGE_BYTES) as u64;
            let says = slot.map_err(|bad| Error::malformed(self.file, offset, bad)).map(|slot| {
                let FramePoint { bytes, chain } = slot.durable;
                format!("turn {}, durable to {bytes}, chain {chain:016x}", slot.turn)
            });
            self.part(offset, PAGE_BYTES as u64, ["slot 0", "slot 1"][index], says)?;
        }
        let mut at = RECORDS_FROM;
        for record in every_record(header, bytes) {
            if record.offset > at {
                self.part(at, record.offset - at, "no record", Ok("what is here is not used".to_owned()))?;
            }
            let record_bytes = record_bytes(record.payload.len()) as u64;
            let base = record.offset + RECORD_HEAD_BYTES as u64;
            if header.kind == FileKind::Log {
                self.batch(record.offset, record_bytes, record.sequence, record.payload)?;
            } else {
                let name = "edit";
                self.part(record.offset, record_bytes, name, Ok(format!("number {}", record.sequence)))?;
                match Changes::new(self.file, base, record.payload) {
                    Err(error) => self.part(base, 0, "change", Err(error))?,
                    Ok(changes) => {
                        for change in changes {
                            self.part(base, 0, "change", change.map(|change| says(&change)))?;
                        }
                    }
                }
            }
            at = record.offset + record_bytes;
        }
        let rest = bytes.len() as u64 - at.min(bytes.len() as u64);
        self.part(at, rest, "rest", Ok("behind the last record".to_owned()))
    }

    fn batch(&mut self, offset: u64, bytes: u64, first: u64, payload: &[u8]) -> Result<()> {
        let items = Items::new(payload)
            .map_err(|bad| Error::malformed(self.file, offset + RECORD_HEAD_BYTES as u64, bad));
        let says = items.as_ref().map_err(Error::clone);
        let says = says.map(|items| format!("first number {first}, {} items", items.count_left()));
        self.part(offset, bytes, "batch", says)?;
        for made in items.iter().flat_map(Items::partitions) {
            let (keyspace, partition) = (made.tree.keyspace.0, made.tree.partition.0);
            let name = made.name.escape_ascii();
            let says =
                format!("keyspace {keyspace} partition {partition}: made if it never was, named {name}");
            self.part(offset, 0, "partition", Ok(says))?;
        }
        for item in items.into_iter().flatten() {
            let tree = format!("keyspace {} partition {}", item.tree.keyspace.0, item.tree.partition.0);
            let key = shown_key(item.tree.keyspace, item.key);
            let says = match item.kind {
                ItemKind::Put => format!("{tree}: put {key}, a value of {} bytes", item.value.len()),
                ItemKind::Delete => format!("{tree}: delete {key}"),
                ItemKind::DeleteRange if item.value.is_empty() => format!("{tree}: delete from {key} on"),
                ItemKind::DeleteRange => {
                    let end = shown_key(item.tree.keyspace, item.value);
                    format!("{tree}: delete from {key} to before {end}")
                }
            };
            self.part(offset, 0, "item", Ok(says))?;
        }
        Ok(())
    }

    fn table(&mut self, part: TablePart) {
        let says = part.said.map(|said| match said {
            Said::Nothing => String::new(),
            Said::Count(count) => count.to_string(),
            Said::Items { items, first, last, plain_bytes } => {
                let packed = plain_bytes.map_or_else(String::new, |bytes| format!(", {bytes} decompressed"));
                format!("{items} items from {first} to {last}{packed}")
            }
            Said::Ranges { count, first, end } => format!("{count}, from {first} to {end}"),
        });
        let (says, damage) = match says {
            Ok(says) => (says, None),
            Err(Error::Corrupt(damage)) => (String::new(), Some(*damage)),
            Err(error) => (error.to_string(), None),
        };
        let (offset, bytes) = (part.span.offset, part.span.bytes);
        (self.tell)(&Part { offset, bytes, name: part.name, says, damage });
    }
}

fn says(change: &ManifestChange) -> String {
    let (table, index, slice) = match change {
        ManifestChange::Slice { table, index, slice } => (table, index, slice),
        ManifestChange::Partition { id, keyspace, name } => {
            return format!("Partition {} of keyspace {}: {}", id.0, keyspace.0, name.escape_ascii());
        }
        ManifestChange::PartitionRule { keyspace, rule } => {
            return format!("PartitionRule of keyspace {}: {rule}", keyspace.0);
        }
        other => return format!("{other:?}"),
    };
    let shown = |key: &[u8]| shown_key(slice.keyspace, key);
    let end = slice.max_key.as_deref().map_or_else(|| "the end".to_owned(), shown);
    let level = if slice.keyspace.is_hashed() { "height" } else { "level" };
    format!(
        "Slice {index} of table {table:x}: keyspace {} partition {}, {level} {} run {}, {} items of which {} \
         tombstones, numbers {} to {}, from {} to {end}",
        slice.keyspace.0,
        slice.partition.0,
        slice.level,
        slice.run,
        slice.items,
        slice.tombstones,
        slice.first_sequence,
        slice.last_sequence,
        shown(&slice.min_key),
    )
}
