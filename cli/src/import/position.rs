//! The position of an import, kept in the keyspace `.import`, and the check that the file is still the same.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trine::{Batch, Db, Keyspace, Ordered};
use trine_workload::failure::Failure;
use trine_workload::rows::{Position, Shape, separator_option};
use trine_workload::text::{count, path};
use xxhash_rust::xxh3::Xxh3;

use crate::arguments;

/// The keyspace that holds the positions of unfinished imports.
pub(crate) const KEYSPACE: &str = ".import";

/// Separates the keyspace's name from the file's in a key.
const SEPARATOR: u8 = 0x1f;

/// The value kept for an unfinished import, as JSON.
#[derive(Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) position: Position,
    pub(crate) items: u64,
    pub(crate) skipped: u64,
    file_bytes: u64,
    /// XXH3-128 of the bytes before the position.
    hash: String,
    shape: Shape,
}

/// The stored position of this import.
pub(crate) struct Positions {
    keyspace: Keyspace<Ordered>,
    key: Vec<u8>,
    shape: Shape,
    path: PathBuf,
    file: File,
    file_bytes: u64,
    prefix: Prefix,
}

/// The hash of a prefix of the file.
struct Prefix {
    bytes: u64,
    hash: Xxh3,
}

impl Positions {
    pub(crate) fn open(db: &Db, arguments: &arguments::Import, shape: Shape) -> Result<Positions, Failure> {
        let path = arguments.file.clone();
        let failed = |operation, source| Failure::file(operation, &path, source);
        let file = File::open(&path).map_err(|source| failed("open", source))?;
        let file_bytes = file.metadata().map_err(|source| failed("read", source))?.len();
        let absolute = path.canonicalize().map_err(|source| failed("find", source))?;
        let mut key = arguments.keyspace.clone().into_bytes();
        key.push(SEPARATOR);
        key.extend_from_slice(absolute.as_os_str().as_encoded_bytes());
        let prefix = Prefix { bytes: 0, hash: Xxh3::new() };
        let keyspace = db.ordered(KEYSPACE).open()?;
        Ok(Positions { keyspace, key, shape, path, file, file_bytes, prefix })
    }

    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// The position of an unfinished earlier import, if there is one; refused if the file or the options
    /// differ.
    pub(crate) fn find(&mut self) -> Result<Option<Mark>, Failure> {
        let Some(value) = self.keyspace.get(&self.key)? else { return Ok(None) };
        let file = path(&self.path);
        let refused = move |reason: String| {
            Failure::Changed(format!(
                "an import of {file} is unfinished, and cannot go on: {reason}. --restart begins it again"
            ))
        };
        let mark: Mark = serde_json::from_slice(&value).map_err(|error| {
            refused(format!("its position in the keyspace {KEYSPACE:?} cannot be read ({error})"))
        })?;
        if mark.shape != self.shape {
            let begun = describe(&mark.shape);
            return Err(refused(format!("it was begun with {begun}")));
        }
        if mark.file_bytes != self.file_bytes {
            let (then, now) = (count(mark.file_bytes), count(self.file_bytes));
            return Err(refused(format!("the file had {then} bytes then and has {now} now")));
        }
        self.advance(mark.position.offset)?;
        if self.prefix.digest() != mark.hash {
            let lines = count(mark.position.lines);
            return Err(refused(format!(
                "the first {lines} lines of the file, which are in, have changed since"
            )));
        }
        Ok(Some(mark))
    }

    /// Deletes the position of an earlier import.
    pub(crate) fn forget(&self) -> Result<(), Failure> {
        Ok(self.keyspace.delete(&self.key)?)
    }

    /// Adds the position to a batch with the rows before it.
    pub(crate) fn put(
        &mut self,
        batch: &mut Batch,
        position: Position,
        items: u64,
        skipped: u64,
    ) -> Result<(), Failure> {
        self.advance(position.offset)?;
        let hash = self.prefix.digest();
        let mark =
            Mark { position, items, skipped, file_bytes: self.file_bytes, hash, shape: self.shape.clone() };
        let value = serde_json::to_vec(&mark).map_err(|error| Failure::Other(error.to_string()))?;
        Ok(batch.put(&self.keyspace, &self.key, &value)?)
    }

    /// Deletes the position in the batch with the last rows.
    pub(crate) fn delete(&self, batch: &mut Batch) -> Result<(), Failure> {
        Ok(batch.delete(&self.keyspace, &self.key)?)
    }

    /// Hashes the file from the end of the last call to `offset`.
    fn advance(&mut self, offset: u64) -> Result<(), Failure> {
        let advanced = self.prefix.advance(&self.file, offset);
        advanced.map_err(|source| Failure::file("read", Path::new(&self.path), source))
    }
}

impl Prefix {
    fn advance(&mut self, mut file: &File, to: u64) -> io::Result<()> {
        file.seek(SeekFrom::Start(self.bytes))?;
        let mut rest = file.take(to - self.bytes);
        let mut chunk = vec![0; 1 << 16];
        loop {
            match rest.read(&mut chunk) {
                Ok(0) => break,
                Ok(bytes) => {
                    self.hash.update(&chunk[..bytes]);
                    self.bytes += bytes as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.bytes == to { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn digest(&self) -> String {
        format!("{:032x}", self.hash.digest128())
    }
}

fn describe(shape: &Shape) -> String {
    let named = |option: &str, name: &Option<String>| match name {
        Some(name) => format!(" --{option} {name:?}"),
        None => String::new(),
    };
    let format = format!("{:?}", shape.format).to_lowercase();
    let header = if shape.header { "" } else { " --no-header" };
    let separator = shape
        .separator
        .map_or_else(String::new, |separator| format!(" --separator '{}'", separator_option(separator)));
    format!(
        "--format {format}{}{}{header}{separator}",
        named("key", &shape.key),
        named("value", &shape.value)
    )
}
