//! The public interface of HTable: creating a table, opening it, getting a value and counting the pages read.

use std::path::Path;

use crate::base::error::{Error, Result};
use crate::base::sync::{Arc, Ordering};
use crate::format::header::PAGE_BYTES;
use crate::io::env::Env;
use crate::io::os::{DirectIo, FileUse, ReadWith};
use crate::io::storage::LockMode;

use super::super::knobs::invalid;
use super::super::pages::{Buffer, PageFile, PageReader};
use super::super::store::{HeldEnv, files_of};
use super::balance::{BalanceItem, Bucket, balance};
use super::bucket::{BucketPage, CAPACITY_BYTES, item_bytes};
use super::file::{Head, page_of, read, table_name, write};
use super::item::{BUCKET_BITS_MAX, HTableItem, home};
use super::marks::{BucketMark, CachedMarks, MarkIndex};

/// Limit of open files.
const OPEN_FILES_MAX: usize = 4;

/// The answer to a get.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct HTableGet {
    /// The value, if the table has the key.
    pub value: Option<Vec<u8>>,
    /// Pages read.
    pub page_reads: u64,
    /// Marks followed from bucket to bucket.
    pub hops: u64,
}

/// Contents of a table, and counters of reads.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HTableStats {
    /// Buckets, a page of 4096 bytes each.
    pub buckets: u64,
    /// Items.
    pub items: u64,
    /// Bytes of items in buckets, with their lengths.
    pub item_bytes: u64,
    /// Bytes of keys and values.
    pub key_value_bytes: u64,
    /// Length of the pages of all buckets, in bytes.
    pub page_bytes: u64,
    /// Buckets that were overloaded before migration.
    pub overloaded: u64,
    /// Marks: buckets that gave items away.
    pub marks: u64,
    /// Marks kept in memory.
    pub cached_marks: u64,
    /// Size of these marks in memory, in bytes.
    pub cached_mark_bytes: u64,
    /// Items that are not in their home bucket.
    pub items_away: u64,
    /// Migrations of all items.
    pub hops: u64,
    /// Most migrations of one item.
    pub hops_max: u64,
    /// Rounds of migration.
    pub rounds: u64,
    /// Pages that gets read since the table was opened.
    pub page_reads: u64,
}

/// LSM-trie's immutable hash table: buckets of 4 KiB, balanced by overflow migration. See
/// [the lab](crate::lab).
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// use trine::lab::{CachedMarks, HTable, HTableItem, order_of};
/// let place = dir.path().join("table");
/// let item = |number: u32| {
///     let key = number.to_be_bytes().to_vec();
///     HTableItem { order: order_of(&key), key, value: vec![7; 100] }
/// };
/// let items: Vec<HTableItem> = (0..1100).map(item).collect();
/// HTable::create(&place, 5, &items)?;
/// let table = HTable::open(&place, CachedMarks::All)?;
/// let found = table.get(&items[9].key, items[9].order)?;
/// assert_eq!((found.value, found.page_reads), (Some(vec![7; 100]), 1));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct HTable {
    reader: PageReader,
    file: PageFile,
    head: Head,
    marks: MarkIndex,
    /// Pages read to open the table; `stats` subtracts them.
    opening_reads: u64,
    /// Holds the directory's lock.
    _env: HeldEnv,
}

fn env_of(directory: &Path) -> Result<Env> {
    Env::os(directory, FileUse::new(DirectIo::Off, OPEN_FILES_MAX, ReadWith::Plain))
}

impl HTable {
    /// Bytes of a bucket that are for items.
    pub const BUCKET_BYTES: usize = CAPACITY_BYTES;

    /// Bytes that an item takes in a bucket, lengths included.
    pub fn item_bytes(key: &[u8], value: &[u8]) -> usize {
        item_bytes(key, value)
    }

    /// Creates a table of `2^bucket_bits` buckets, at most 2^13, in a directory of its own.
    ///
    /// # Errors
    /// `Invalid` if migration finds no balance, with the reason, or if two items have one key. `TooLarge` if
    /// an item is larger than a bucket. `Exists` if the directory has a table. After an error no table is
    /// written.
    pub fn create(directory: &Path, bucket_bits: u32, items: &[HTableItem]) -> Result<()> {
        HTable::create_in(env_of(directory)?, bucket_bits, items)
    }

    pub(super) fn create_in(env: Env, bucket_bits: u32, items: &[HTableItem]) -> Result<()> {
        if bucket_bits > BUCKET_BITS_MAX {
            return Err(invalid(format!(
                "2^{bucket_bits} buckets, and there are at most 2^{BUCKET_BITS_MAX}"
            )));
        }
        let buckets = homes(bucket_bits, items)?;
        let balanced = balance(buckets)
            .map_err(|reason| invalid(format!("the buckets cannot be balanced: {reason}")))?;
        let head = Head::of(&balanced, bucket_bits, items);
        env.storage.create_directory()?;
        env.storage.lock(LockMode::Exclusive)?;
        let env = HeldEnv(env);
        let storage = &env.0.storage;
        let files = files_of(&env.0)?;
        if files.contains(&table_name()) {
            return Err(Error::Exists { path: storage.path() });
        }
        for leftover in files {
            storage.remove(leftover)?;
        }
        let random = || env.0.random.u64();
        let store_id = u128::from(random()) << 64 | u128::from(random());
        write(&**storage, (store_id, random()), &head, &balanced, items)
    }

    /// Opens a table with some of its marks in memory.
    ///
    /// # Errors
    /// `Missing` if there is no table, `Locked` if it is open already, `Corrupt` if the head or a mark is
    /// damaged.
    pub fn open(directory: &Path, cached: CachedMarks) -> Result<HTable> {
        HTable::open_in(env_of(directory)?, cached)
    }

    pub(super) fn open_in(env: Env, cached: CachedMarks) -> Result<HTable> {
        if !env.storage.exists()? {
            return Err(Error::Missing { path: env.storage.path() });
        }
        env.storage.lock(LockMode::Exclusive)?;
        let env = HeldEnv(env);
        if !files_of(&env.0)?.contains(&table_name()) {
            return Err(Error::Missing { path: env.0.storage.path() });
        }
        let reader = PageReader::new(Arc::clone(&env.0.storage), 0);
        let (file, head, all) = read(&*env.0.storage, &reader)?;
        let marks = MarkIndex::choose(&all, head.items, head.buckets(), cached);
        let opening_reads = reader.counts.pages.load(Ordering::Relaxed);
        Ok(HTable { reader, file, head, marks, opening_reads, _env: env })
    }

    /// The value of a key with this order. Costs one page read, and one more for each mark on the way that is
    /// not in memory.
    ///
    /// # Errors
    /// `Corrupt` if a page on the way is damaged, `Io`.
    pub fn get(&self, key: &[u8], order: u64) -> Result<HTableGet> {
        let mut found = HTableGet::default();
        let mut bucket = home(order, self.head.bucket_bits);
        let mut buffer = Buffer::pages(1);
        while found.hops <= self.head.buckets() as u64 {
            if let Some(target) = self.marks.target_of(bucket, order) {
                found.hops += 1;
                bucket = target;
                continue;
            }
            let page = self.page(bucket, &mut buffer)?;
            found.page_reads += 1;
            let Some(target) = page.mark.and_then(|mark: BucketMark| mark.target_of(order)) else {
                let value = page.get(key).map_err(|bad| Error::malformed(self.file.name, at(bucket), bad))?;
                found.value = value.map(<[u8]>::to_vec);
                return Ok(found);
            };
            found.hops += 1;
            bucket = target;
        }
        Err(Error::corrupt(self.file.name, at(bucket), "a chain of marks", "an end", "a circle"))
    }

    /// Reads and decodes the page of a bucket.
    pub(super) fn page<'b>(&self, bucket: u16, buffer: &'b mut Buffer) -> Result<BucketPage<'b>> {
        self.reader.page(&self.file, page_of(bucket), buffer)?;
        let malformed = |bad| Error::malformed(self.file.name, at(bucket), bad);
        let page = BucketPage::decode(buffer.content(0)).map_err(malformed)?;
        if page.source != bucket {
            return Err(Error::corrupt(self.file.name, at(bucket), "a bucket's number", bucket, page.source));
        }
        if let Some(mark) = page.mark
            && usize::from(mark.target) >= self.head.buckets()
        {
            let buckets = self.head.buckets();
            return Err(Error::corrupt(self.file.name, at(bucket), "a mark's target", buckets, mark.target));
        }
        Ok(page)
    }

    /// Sizes and counts.
    pub fn stats(&self) -> HTableStats {
        let head = &self.head;
        HTableStats {
            buckets: head.buckets() as u64,
            items: head.items,
            item_bytes: head.item_bytes,
            key_value_bytes: head.key_value_bytes,
            page_bytes: (head.buckets() * PAGE_BYTES) as u64,
            overloaded: u64::from(head.overloaded),
            marks: u64::from(head.marks),
            cached_marks: self.marks.len() as u64,
            cached_mark_bytes: (self.marks.len() * BucketMark::BYTES) as u64,
            items_away: head.away,
            hops: head.hops,
            hops_max: u64::from(head.hops_max),
            rounds: u64::from(head.rounds),
            page_reads: self.reader.counts.pages.load(Ordering::Relaxed) - self.opening_reads,
        }
    }
}

/// Offset of a bucket's page in the file.
fn at(bucket: u16) -> u64 {
    (1 + page_of(bucket)) * PAGE_BYTES as u64
}

/// Puts every item into its home bucket.
fn homes(bucket_bits: u32, items: &[HTableItem]) -> Result<Vec<Bucket>> {
    if u32::try_from(items.len()).is_err() {
        return Err(invalid(format!("{} items, and a table has at most {}", items.len(), u32::MAX)));
    }
    let mut buckets = vec![Bucket::default(); 1 << bucket_bits];
    for (index, item) in items.iter().enumerate() {
        let bytes = item_bytes(&item.key, &item.value);
        if bytes > CAPACITY_BYTES {
            let limit = CAPACITY_BYTES as u64;
            return Err(Error::TooLarge { what: "table's item", limit, given: bytes as u64 });
        }
        let resident = BalanceItem { order: item.order, bytes: bytes as u32, item: index as u32, hops: 0 };
        buckets[usize::from(home(item.order, bucket_bits))].push(resident);
    }
    for bucket in &buckets {
        let mut keys: Vec<&[u8]> =
            bucket.residents.iter().map(|resident| &items[resident.item as usize].key[..]).collect();
        keys.sort_unstable();
        if let Some(twice) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(invalid(format!("the key {} is there twice", twice[0].escape_ascii())));
        }
    }
    Ok(buckets)
}
