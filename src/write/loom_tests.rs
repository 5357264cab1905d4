//! Models of group commit under all thread interleavings: leaders, followers, and the close of a store.
//! Appends to the log succeed at once.

use crate::base::epoch::Epoch;
use crate::base::error::{Error, Result};
use crate::base::hash::HashSecret;
use crate::base::id::{ItemKind, KeyspaceId, PartitionId, TreeId};
use crate::base::region::Region;
use crate::base::reserve::Reserve;
use crate::base::step::MachineStep;
use crate::base::sync::{Arc, Event, explore};
use crate::format::frames::RECORDS_FROM;
use crate::io::sim::SimDisk;
use crate::io::storage::Storage;
use crate::levels::version::Version;
use crate::levels::view::{View, Views};
use crate::memtable;
use crate::wal::{LogFramer, LogIdentity};

use super::batch::{BatchItems, Keyspaces};
use super::commit::{Commit, CommitOp};
use super::lengths::LogLengths;
use super::writer::{MemtableAndLog, Resumed, Seals, Until, Writer};

const TREE: TreeId = TreeId { keyspace: KeyspaceId(1), partition: PartitionId(1) };
const GENERATION_BYTES: usize = 4096;

struct World {
    writer: Writer,
    views: Arc<Views>,
    epoch: Epoch,
}

impl World {
    fn new() -> Arc<World> {
        let disk = SimDisk::new(1);
        disk.create_directory().expect("no fault");
        let identity =
            LogIdentity { number: 1, path: 0, uid: 101, store_id: 7, bytes: RECORDS_FROM + (16 << 10) };
        let log = LogFramer::create(&*disk, &identity).expect("room");
        let region = Region::heap(GENERATION_BYTES).expect("small allocation");
        let (generation, inserter) = memtable::generation(region);
        let epoch = Epoch::new();
        let view = View { generations: vec![Arc::clone(&generation)], version: Arc::new(Version::default()) };
        let views = Arc::new(Views::new(&epoch, view));
        let secret = HashSecret::expand([1; 16]);
        let changed = Arc::new(Event::new());
        let active = MemtableAndLog { log, generation, inserter };
        let resumed = Resumed { active, logs: Vec::new(), last_sequence: 0, sealed: Vec::new() };
        let lengths = LogLengths { least: identity.bytes, most: identity.bytes };
        let writer = Writer::new(Arc::clone(&views), secret, resumed, lengths, (changed, Reserve::alone()));
        Arc::new(World { writer, views, epoch })
    }

    /// Commits one item, to the end.
    fn put(&self, key: &[u8], until: Until) -> Result<()> {
        let mut items = BatchItems::default();
        items.push(TREE, ItemKind::Put, key, b"").expect("small");
        let op = CommitOp {
            frees: false,
            payload: items.payload(),
            shared: None,
            queues: None,
            items: items.count(),
            key_value_bytes: items.key_value_bytes(),
            keyspaces: Keyspaces::NONE,
            until,
            seals: Seals::No,
            room: None,
        };
        let (mut commit, mut step) = Commit::start(&op, &self.writer);
        loop {
            match step {
                MachineStep::Done(result) => return result,
                MachineStep::Wait => {
                    let (event, seen) = commit.waits_for().expect("only followers wait");
                    event.block(seen, None);
                }
                MachineStep::Ask(_) | MachineStep::Touch => {}
            }
            step = commit.resume(&op, Ok(()));
        }
    }

    fn has(&self, key: &[u8]) -> bool {
        let pin = self.epoch.pin();
        let view = self.views.load(&pin).get();
        let bound = self.writer.visible();
        let hash = HashSecret::expand([1; 16]).hash(key);
        view.generations.iter().any(|one| one.get(TREE, key, hash, bound).is_some())
    }
}

/// Two commits at once, alone or in one group: both complete, each thread sees its own item at once, and in
/// the end each has its own place in the order.
#[test]
fn loom_commits_are_answered_and_seen() {
    explore(|| {
        let world = World::new();
        let other = loom::thread::spawn({
            let world = Arc::clone(&world);
            move || {
                world.put(b"b", Until::Synced).expect("nothing fails");
                assert!(world.has(b"b"));
            }
        });
        world.put(b"a", Until::Written).expect("nothing fails");
        assert!(world.has(b"a"));
        other.join().expect("it ends");
        assert_eq!(world.writer.visible(), 2);
        assert!(world.has(b"a") && world.has(b"b"));
    });
}

/// A close beside a commit: both end, and the commit is done or refused.
#[test]
fn loom_a_close_and_a_commit_both_end() {
    explore(|| {
        let world = World::new();
        let other = loom::thread::spawn({
            let world = Arc::clone(&world);
            move || {
                let done = world.put(b"a", Until::Written);
                assert!(matches!(done, Ok(()) | Err(Error::Closed)), "{done:?}");
                assert_eq!(done.is_ok(), world.has(b"a"));
            }
        });
        world.writer.begin_close();
        loop {
            let seen = world.writer.changed.seen();
            if world.writer.try_close().is_some() {
                break;
            }
            world.writer.changed.block(seen, None);
        }
        other.join().expect("it ends");
    });
}
