//! RocksDB, with its default settings and with its stricter modes of log recovery.

use std::path::Path;

use rocksdb::{DB, DBRecoveryMode, IteratorMode, Options, WriteBatch, WriteOptions};

use super::{Answer, Change, Engine, Kept, Peer, Promises, Purpose, Until, told};

const DEFAULT: Peer = Peer {
    name: "rocksdb",
    label: "RocksDB",
    packages: &["rocksdb", "librocksdb-sys"],
    library: None,
    settings: "default: `kPointInTimeRecovery`, paranoid checks on, checksums verified",
    promises: Promises {
        damage: "of the log, the state at some moment: replay stops at what is inconsistent. Of the rest, an \
                 error if a checksum shows it",
        synced: "survive a crash of the machine",
        buffered: "none is lost if only the process crashes",
        buffered_kept: Kept::All,
    },
    is_killed: true,
    class,
    open: open_default,
};

pub(super) const PEERS: [Peer; 3] = [
    DEFAULT,
    Peer {
        name: "rocksdb-tail",
        label: "RocksDB, `kTolerateCorruptedTailRecords`",
        settings: "that, and the default otherwise",
        promises: Promises {
            damage: "refuses damage to the log but for an incomplete last record and zeros behind it",
            ..DEFAULT.promises
        },
        is_killed: false,
        open: open_tail,
        ..DEFAULT
    },
    Peer {
        name: "rocksdb-strict",
        label: "RocksDB, `kAbsoluteConsistency`",
        settings: "that, `track_and_verify_wals_in_manifest`, paranoid checks",
        promises: Promises {
            damage: "no corruption in the log is expected, nor borne; synced logs that are closed are \
                     compared with the manifest",
            ..DEFAULT.promises
        },
        is_killed: true,
        open: open_strict,
        ..DEFAULT
    },
];

struct Rocks {
    db: DB,
}

fn class(file: &str) -> Option<&'static str> {
    match file {
        "LOCK" => None,
        "CURRENT" => Some("CURRENT"),
        _ if file.ends_with(".log") => Some("log"),
        _ if file.ends_with(".sst") => Some("table"),
        _ if file.starts_with("MANIFEST") => Some("manifest"),
        _ if file.starts_with("OPTIONS") || file == "IDENTITY" => Some("OPTIONS, IDENTITY"),
        _ => None,
    }
}

fn open_default(directory: &Path, purpose: Purpose) -> Answer<Box<dyn Engine>> {
    open(Options::default(), directory, purpose)
}

fn open_tail(directory: &Path, purpose: Purpose) -> Answer<Box<dyn Engine>> {
    let mut options = Options::default();
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    open(options, directory, purpose)
}

fn open_strict(directory: &Path, purpose: Purpose) -> Answer<Box<dyn Engine>> {
    let mut options = Options::default();
    options.set_wal_recovery_mode(DBRecoveryMode::AbsoluteConsistency);
    options.set_track_and_verify_wals_in_manifest(true);
    options.set_paranoid_checks(true);
    open(options, directory, purpose)
}

fn open(mut options: Options, directory: &Path, purpose: Purpose) -> Answer<Box<dyn Engine>> {
    options.create_if_missing(purpose != Purpose::Check);
    Ok(Box::new(Rocks { db: DB::open(&options, directory).map_err(told)? }))
}

impl Engine for Rocks {
    fn write(&mut self, changes: &[Change], until: Until) -> Answer<()> {
        let mut batch = WriteBatch::default();
        for change in changes {
            match change {
                Change::Put(key, value) => batch.put(key, value),
                Change::Delete(key) => batch.delete(key),
            }
        }
        let mut options = WriteOptions::default();
        options.set_sync(until == Until::Synced);
        self.db.write_opt(batch, &options).map_err(told)
    }

    fn get(&self, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        self.db.get(key).map_err(told)
    }

    fn scan(&self, each: &mut dyn FnMut(&[u8], &[u8])) -> Answer<()> {
        for item in self.db.iterator(IteratorMode::Start) {
            let (key, value) = item.map_err(told)?;
            each(&key, &value);
        }
        Ok(())
    }

    fn flush(&mut self) -> Answer<()> {
        self.db.flush().map_err(told)
    }

    fn close(self: Box<Self>) -> Answer<()> {
        Ok(())
    }
}
