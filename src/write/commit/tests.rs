//! Commits driven step by step, several at once: choice of leaders, writes and syncs, and errors.

use super::*;
use crate::base::epoch::Epoch;
use crate::base::hash::HashSecret;
use crate::base::id::{FileKind, ItemKind, KeyspaceId, PartitionId, TreeId};
use crate::base::region::Region;
use crate::base::reserve::Reserve;
use crate::base::sync::AtomicBool;
use crate::format::frames::RECORDS_FROM;
use crate::format::witness::WITNESS_OFFSET;
use crate::io::sim::SimDisk;
use crate::io::storage::Storage;
use crate::levels::version::Version;
use crate::levels::view::View;
use crate::levels::view::Views;
use crate::memtable;
use crate::wal::LogIdentity;
use crate::write::batch::{BatchItems, Writable};
use crate::write::lengths::{LogLengths, NextLog, StandbyRequests};
use crate::write::pace;
use crate::write::writer::*;

mod logs;

const TREE: TreeId = TreeId { keyspace: KeyspaceId(1), partition: PartitionId(1) };
const GENERATION_BYTES: usize = 64 << 10;
const LOG_BYTES: u64 = RECORDS_FROM + (128 << 10);

/// A writer over simulated files, whose requests the test answers.
struct World {
    disk: Arc<SimDisk>,
    writer: Writer,
    views: Arc<Views>,
    epoch: Epoch,
}

fn memtable_and_log(disk: &SimDisk, number: u64, bytes: u64) -> MemtableAndLog {
    let identity = LogIdentity { number, path: 0, uid: number + 100, store_id: 7, bytes };
    let log = LogFramer::create(disk, &identity).expect("room");
    let (generation, inserter) = memtable::generation(Region::heap(GENERATION_BYTES).expect("small"));
    MemtableAndLog { log, generation, inserter }
}

impl World {
    fn new() -> World {
        World::with_logs(LOG_BYTES, LogLengths { least: LOG_BYTES, most: LOG_BYTES })
    }

    fn with_logs(first_bytes: u64, lengths: LogLengths) -> World {
        World::with_reserve(first_bytes, lengths, Reserve::alone())
    }

    fn with_reserve(first_bytes: u64, lengths: LogLengths, reserve: Arc<Reserve>) -> World {
        let disk = SimDisk::new(1);
        disk.create_directory().expect("no fault");
        let first = memtable_and_log(&disk, 1, first_bytes);
        let epoch = Epoch::new();
        let generations = vec![Arc::clone(&first.generation)];
        let views = Arc::new(Views::new(&epoch, View { generations, version: Arc::new(Version::default()) }));
        let secret = HashSecret::expand([1; 16]);
        let resumed = Resumed { active: first, logs: Vec::new(), last_sequence: 0, sealed: Vec::new() };
        let events = (Arc::new(Event::new()), reserve);
        let writer = Writer::new(Arc::clone(&views), secret, resumed, lengths, events);
        World { disk, writer, views, epoch }
    }

    fn start<'w>(&'w self, op: &'w Op) -> Driven<'w> {
        let (commit, step) = Commit::start(&op.get(), &self.writer);
        Driven { world: self, op, commit, step }
    }

    /// Runs a commit alone, to its end.
    fn run(&self, op: &Op) -> Result<()> {
        self.start(op).run()
    }

    fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        let pin = self.epoch.pin();
        let view = self.views.load(&pin).get();
        let bound = self.writer.visible();
        let hash = self.writer.secret.hash(key);
        let found = view.generations.iter().find_map(|one| one.get(TREE, key, hash, bound));
        found.map(|item| item.value.to_vec())
    }

    fn put_log(&self, number: u64, bytes: u64) {
        self.writer.put_standby_log(memtable_and_log(&self.disk, number, bytes).log);
    }

    fn put_standby(&self, number: u64) {
        let MemtableAndLog { log, generation, inserter } = memtable_and_log(&self.disk, number, LOG_BYTES);
        self.writer.put_standby_log(log);
        self.writer.put_standby_memtable(StandbyMemtable { generation, inserter, grant: None });
    }
}

/// The data of a commit, kept as long as its machine.
struct Op {
    items: BatchItems,
    keyspaces: Keyspaces,
    until: Until,
    seals: Seals,
}

impl Op {
    fn get(&self) -> CommitOp<'_> {
        CommitOp {
            frees: self.items.frees(),
            queues: None,
            payload: self.items.payload(),
            shared: None,
            items: self.items.count(),
            key_value_bytes: self.items.key_value_bytes(),
            keyspaces: &self.keyspaces,
            until: self.until,
            seals: self.seals,
            room: None,
        }
    }
}

fn put(key: &[u8], value: &[u8], until: Until) -> Op {
    let mut items = BatchItems::default();
    items.push(TREE, ItemKind::Put, key, value).expect("small");
    Op { items, keyspaces: Keyspaces::default(), until, seals: Seals::No }
}

/// A keyspace that exists until it is dropped.
#[derive(Debug, Default)]
struct Dropping(AtomicBool);

impl Writable for Dropping {
    fn tree(&self) -> TreeId {
        TREE
    }

    fn check_live(&self) -> Result<()> {
        match self.0.load(Ordering::Acquire) {
            true => Err(Error::Dropped { name: "b".to_owned() }),
            false => Ok(()),
        }
    }
}

/// A batch with a keyspace that was dropped before the batch's place in the order is refused whole, as leader
/// or in a group. Other batches of the group are written.
#[test]
fn a_dropped_keyspace_refuses_its_batches() {
    let world = World::new();
    let dropping = Arc::new(Dropping::default());
    let batch = |key: &[u8]| {
        let mut op = put(key, b"1", Until::Written);
        op.keyspaces.add(dropping.clone());
        op
    };
    let (leads, follows, other) =
        (put(b"l", b"1", Until::Written), batch(b"f"), put(b"o", b"1", Until::Written));
    world.run(&batch(b"before")).expect("it is there");
    let leader = world.start(&leads);
    let (mut one, mut two) = (world.start(&follows), world.start(&other));
    dropping.0.store(true, Ordering::Release);
    // The leader has framed its own record already, so the next leader gathers the group.
    leader.run().expect("it has no such keyspace");
    one.answer(Ok(()));
    two.answer(Ok(()));
    assert!(matches!(one.result(), Some(Err(Error::Dropped { .. }))), "it was to lead");
    two.run().expect("it leads now");
    let later = batch(b"later");
    let leader = world.start(&leads);
    let mut first = world.start(&other);
    let mut last = world.start(&later);
    leader.run().expect("nothing fails");
    first.answer(Ok(()));
    last.answer(Ok(()));
    assert!(matches!(last.result(), Some(Err(Error::Dropped { .. }))), "it was to be one of a group");
    first.run().expect("nothing fails");
    let found = [&b"before"[..], b"l", b"f", b"o", b"later"].map(|key| world.value(key).is_some());
    assert_eq!(found, [true, true, false, true, false]);
    assert!(world.writer.latched().is_none() && world.writer.queue.lock().leader.is_some());
}

/// The memory of waiting batches is bounded: a batch that finds no room waits before it is copied, and is
/// committed once another batch is done. A shared batch is not copied.
#[test]
fn waiting_batches_are_bounded() {
    let reserve = Reserve::of_batches(1000);
    let lengths = LogLengths { least: LOG_BYTES, most: LOG_BYTES };
    let world = World::with_reserve(LOG_BYTES, lengths, Arc::clone(&reserve));
    let waiting = || world.writer.queue.lock().waiting.len();
    let ops = [b"a", b"b", b"c"].map(|key| put(key, &[1; 600], Until::Written));
    let leader = world.start(&ops[0]);
    let mut second = world.start(&ops[1]);
    let mut third = world.start(&ops[2]);
    assert!(second.waits() && third.waits());
    assert_eq!(waiting(), 1, "the third has no room to wait in");
    assert!((600..1000).contains(&reserve.bytes(reserve::Role::Batches)));
    let (event, seen) = third.commit.waits_for().expect("it waits for room");
    leader.run().expect("nothing fails");
    assert_eq!(event.seen(), seen, "the second is not written yet");
    second.answer(Ok(()));
    assert_ne!(event.seen(), seen);
    third.answer(Ok(()));
    second.run().expect("it leads");
    third.run().expect("nothing fails");
    for key in [b"a", b"b", b"c"] {
        assert_eq!(world.value(key).expect("written").len(), 600);
    }
    assert_eq!((reserve.bytes(reserve::Role::Batches), waiting()), (0, 0));
    assert_eq!(reserve.counts(reserve::Role::Batches).waits, 1);

    let leader = world.start(&ops[0]);
    let shared = Arc::new(ops[1].items.clone());
    let op = CommitOp { shared: Some(&shared), ..ops[1].get() };
    let (second, _) = Commit::start(&op, &world.writer);
    assert_eq!(Arc::strong_count(&shared), 2, "it is not copied");
    leader.run().expect("nothing fails");
    drop(second);
    assert!(world.writer.queue.lock().leader.is_some());
}

fn seal() -> Op {
    Op {
        items: BatchItems::default(),
        keyspaces: Keyspaces::default(),
        until: Until::Written,
        seals: Seals::Yes,
    }
}

/// One machine and its last step.
struct Driven<'w> {
    world: &'w World,
    op: &'w Op,
    commit: Commit<&'w Writer>,
    step: MachineStep<WriteAsk, Result<()>>,
}

impl Driven<'_> {
    fn ask(&self) -> WriteAsk {
        match &self.step {
            MachineStep::Ask(ask) => *ask,
            other => panic!("it asks for nothing: {other:?}"),
        }
    }

    fn waits(&self) -> bool {
        matches!(self.step, MachineStep::Wait)
    }

    fn result(&self) -> Option<&Result<()>> {
        match &self.step {
            MachineStep::Done(result) => Some(result),
            _ => None,
        }
    }

    fn answer(&mut self, answer: Result<()>) {
        self.step = self.commit.resume(&self.op.get(), answer);
    }

    /// Answers the request by doing it.
    fn obey(&mut self) {
        let answer = match self.ask() {
            WriteAsk::Append { file, offset, .. } => self.world.disk.write(file, offset, self.commit.bytes()),
            WriteAsk::Sync { file } => self.world.disk.sync(file),
            WriteAsk::Room { .. } | WriteAsk::Pause { .. } => Ok(()),
        };
        self.answer(answer);
    }

    /// Runs the machine to its end; no other machine may be needed for it.
    fn run(mut self) -> Result<()> {
        for _ in 0..100 {
            match &self.step {
                MachineStep::Done(result) => return result.clone(),
                MachineStep::Ask(WriteAsk::Room { .. }) => panic!("there is no room"),
                MachineStep::Ask(_) => self.obey(),
                MachineStep::Touch => unreachable!("a commit takes no turns with others"),
                MachineStep::Wait => self.answer(Ok(())),
            }
        }
        panic!("it never ends");
    }
}

fn full() -> Error {
    Error::Full { file: "log".to_owned() }
}

fn failed() -> Error {
    let source = Arc::new(std::io::Error::other("told to"));
    Error::Io { operation: "sync", file: "log".to_owned(), offset: 0, source }
}

fn log(number: u64) -> FileName {
    FileName::new(FileKind::Log, number)
}

/// A leader takes the batches that queued before its append, with one append for all. A later batch leads
/// next, with those behind it. No item is visible before its append is answered.
#[test]
fn a_group_is_written_at_once() {
    let world = World::new();
    let ops: Vec<Op> = [b"a", b"b", b"c", b"d"].iter().map(|key| put(*key, b"1", Until::Written)).collect();
    let mut one = world.start(&ops[0]);
    let mut two = world.start(&ops[1]);
    let mut three = world.start(&ops[2]);
    assert!(matches!(one.ask(), WriteAsk::Append { .. }) && two.waits() && three.waits());
    assert_eq!(world.value(b"a"), None);
    one.obey();
    assert!(one.result().is_some_and(Result::is_ok) && world.value(b"a").is_some());
    // `two` leads now. It takes `three` and `four` into its group when it is resumed.
    let mut four = world.start(&ops[3]);
    two.answer(Ok(()));
    assert!(matches!(two.ask(), WriteAsk::Append { .. }));
    three.answer(Ok(()));
    assert!(three.waits() && world.value(b"c").is_none());
    two.obey();
    for driven in [&mut three, &mut four] {
        driven.answer(Ok(()));
        assert!(driven.result().is_some_and(Result::is_ok));
    }
    assert_eq!((world.writer.visible(), world.value(b"d")), (4, Some(b"1".to_vec())));
}

/// A seal that queues behind a leader seals. Regression: the seal was absorbed into the leader's group, so
/// that a flush beside writers flushed no generation.
#[test]
fn a_seal_is_no_part_of_a_group() {
    let world = World::new();
    world.put_standby(2);
    let (first, second, third) = (put(b"a", b"1", Until::Written), seal(), put(b"b", b"2", Until::Written));
    let mut one = world.start(&first);
    let (two, three) = (world.start(&second), world.start(&third));
    one.obey();
    assert_eq!(world.writer.sealed_count(), 0);
    two.run().expect("sealed");
    assert_eq!(world.writer.sealed_count(), 1);
    three.run().expect("written");
    let pin = world.epoch.pin();
    let generations = &world.views.load(&pin).get().generations;
    assert_eq!(generations.iter().map(|one| one.items()).collect::<Vec<_>>(), [1, 1]);
    assert_eq!((world.value(b"a"), world.value(b"b")), (Some(b"1".to_vec()), Some(b"2".to_vec())));
}

/// A sync covers earlier logs before its own, and the slot page follows. A second sync has nothing to do.
#[test]
fn earlier_logs_are_synced_first() {
    let world = World::new();
    world.put_standby(2);
    world.run(&put(b"a", b"1", Until::Written)).expect("written");
    world.run(&seal()).expect("sealed");
    let op = put(b"b", b"2", Until::Synced);
    let mut commit = world.start(&op);
    let mut asks = Vec::new();
    while commit.result().is_none() {
        asks.push(commit.ask());
        commit.obey();
    }
    assert!(matches!(asks[0], WriteAsk::Append { file, .. } if file == log(2)), "{asks:?}");
    assert_eq!(asks[1..3], [WriteAsk::Sync { file: log(1) }, WriteAsk::Sync { file: log(2) }]);
    assert_eq!(asks[3], WriteAsk::Append { file: log(2), offset: 4096, writeback: None });
    let sync = Op { until: Until::Synced, seals: Seals::No, ..seal() };
    assert!(world.start(&sync).result().is_some_and(Result::is_ok));
}

/// While a valid slot of the log exists, a sync is followed by a write of the witness, which no sync of the
/// log writes. A full disk is no failure of that write; any other error latches as one of the log does.
#[test]
fn the_witness_is_written_beside_the_log() {
    let world = World::new();
    world.run(&put(b"a", b"1", Until::Synced)).expect("written");
    for (key, answer) in [(b"b", Ok(())), (b"c", Err(Error::Full { file: "STORE".to_owned() }))] {
        let op = put(key, b"1", Until::Synced);
        let mut commit = world.start(&op);
        commit.obey();
        commit.obey();
        let witness = WriteAsk::Append { file: FileName::STORE, offset: WITNESS_OFFSET, writeback: None };
        assert_eq!(commit.ask(), witness);
        commit.answer(answer);
        commit.run().expect("durable");
        assert_eq!(world.value(key), Some(b"1".to_vec()));
    }
    let op = put(b"d", b"1", Until::Synced);
    let mut commit = world.start(&op);
    commit.obey();
    commit.obey();
    commit.answer(Err(failed()));
    assert!(commit.run().is_err() && world.writer.latched().is_some());
}

/// An earlier log that a flush has meanwhile synced and removed is durable, even if the commit's sync of it
/// fails.
#[test]
fn an_earlier_log_may_be_gone() {
    let world = World::new();
    world.put_standby(2);
    world.run(&put(b"a", b"1", Until::Written)).expect("written");
    world.run(&seal()).expect("sealed");
    let op = put(b"b", b"2", Until::Synced);
    let mut commit = world.start(&op);
    commit.obey();
    assert_eq!(commit.ask(), WriteAsk::Sync { file: log(1) });
    let sealed = world.writer.oldest_sealed().expect("one is sealed");
    assert!(sealed.logs[0].is_durable.set(()).is_ok());
    world.writer.flushed(&sealed);
    commit.answer(Err(failed()));
    assert_eq!(commit.ask(), WriteAsk::Sync { file: log(2) });
    commit.run().expect("durable");
    assert!(world.writer.latched().is_none());
}

/// A full disk fails the group, leaves the sequence unchanged, and clears by itself, also past the point up
/// to which writeback was requested.
#[test]
fn a_full_disk_clears() {
    let world = World::new();
    let (first, second) = (put(b"a", b"1", Until::Written), put(b"b", b"1", Until::Written));
    let mut one = world.start(&first);
    let mut two = world.start(&second);
    let Role::Leads(lead) = &mut one.commit.role else { panic!("it leads") };
    lead.leader.written_back = lead.leader.active.log.tail().bytes;
    one.answer(Err(full()));
    // Records that may have been written are erased.
    assert!(one.commit.bytes().iter().all(|byte| *byte == 0));
    one.obey();
    assert!(matches!(one.result(), Some(Err(Error::Full { .. }))));
    two.answer(Ok(()));
    two.obey();
    assert!(two.result().is_some_and(Result::is_ok));
    assert_eq!((world.writer.visible(), world.value(b"a")), (1, None));
    let mut leader = world.writer.queue.lock().leader.take().expect("nobody leads");
    let tail = leader.active.log.tail().bytes;
    assert!(leader.next_writeback().is_none() && leader.written_back <= tail);
}

/// A failed sync latches. Its group, waiting commits and later commits get an error, no item becomes visible,
/// and the lead is not lost.
#[test]
fn a_failed_sync_latches() {
    let world = World::new();
    let ops: Vec<Op> = [b"a", b"b", b"c"].iter().map(|key| put(*key, b"1", Until::Synced)).collect();
    let mut one = world.start(&ops[0]);
    let mut two = world.start(&ops[1]);
    one.obey();
    assert!(matches!(one.ask(), WriteAsk::Sync { .. }));
    one.answer(Err(failed()));
    assert!(matches!(one.result(), Some(Err(Error::Io { .. }))));
    two.answer(Ok(()));
    assert!(matches!(two.result(), Some(Err(Error::Latched { .. }))));
    assert!(matches!(world.run(&ops[2]), Err(Error::Latched { .. })));
    assert_eq!(world.writer.visible(), 0);
    assert!(world.writer.queue.lock().leader.is_some());
}

/// Without room a leader waits. It fails with the error that prevents new room, and continues once there is
/// room.
#[test]
fn room_is_waited_for() {
    let world = World::new();
    let big: Vec<Op> = (0u8..4).map(|key| put(&[key], &[7; GENERATION_BYTES / 3], Until::Written)).collect();
    world.run(&big[0]).expect("room");
    world.run(&big[1]).expect("room");
    let mut one = world.start(&big[2]);
    let mut two = world.start(&big[3]);
    assert!(matches!(one.ask(), WriteAsk::Room { .. }));
    let seen = world.writer.changed.seen();
    world.writer.set_stuck(Some(full()));
    assert_ne!(world.writer.changed.seen(), seen);
    one.obey();
    two.answer(Ok(()));
    for driven in [&one, &two] {
        assert!(matches!(driven.result(), Some(Err(Error::Full { .. }))));
    }
    world.writer.set_stuck(None);
    let mut three = world.start(&big[2]);
    assert!(matches!(three.ask(), WriteAsk::Room { .. }));
    world.put_standby(2);
    three.obey();
    three.run().expect("room now");
    assert_eq!(world.value(&[2]).map(|value| value.len()), Some(GENERATION_BYTES / 3));
}

/// A machine dropped half-way returns the lead: while queued, chosen to lead, waiting for room, or writing.
/// Only the last case latches, because it is unknown how much was written.
#[test]
fn dropped_machines_lose_no_lead() {
    let world = World::new();
    let ops: Vec<Op> = [b"a", b"b", b"c"].iter().map(|key| put(*key, b"1", Until::Written)).collect();
    let mut one = world.start(&ops[0]);
    let (two, mut three) = (world.start(&ops[1]), world.start(&ops[2]));
    one.obey();
    // `two` was chosen to lead and has not run since.
    drop(two);
    three.answer(Ok(()));
    three.run().expect("it leads now");

    let mut writes = world.start(&ops[0]);
    drop(world.start(&ops[1]));
    writes.obey();
    assert_eq!(world.writer.visible(), 3);

    let wide = put(b"w", &[7; GENERATION_BYTES / 3], Until::Written);
    world.run(&wide).expect("room");
    world.run(&wide).expect("room");
    let waits = world.start(&wide);
    assert!(matches!(waits.ask(), WriteAsk::Room { .. }));
    drop(waits);
    assert!(world.writer.latched().is_none());

    drop(world.start(&ops[0]));
    assert!(matches!(world.run(&ops[1]), Err(Error::Latched { .. })));
    assert!(world.writer.queue.lock().leader.is_some());
}

/// Closing takes the lead for good. A commit that was under way, or had paused, ends with an error and does
/// not wait for a leader that never comes.
#[test]
fn closing_strands_no_commit() {
    let world = World::new();
    let ops: Vec<Op> = [b"a", b"b"].iter().map(|key| put(*key, &[1; 100], Until::Written)).collect();
    world.writer.pressures.set_shared(pace::PRESSURE_MAX);
    let mut pauses = world.start(&ops[0]);
    assert!(matches!(pauses.ask(), WriteAsk::Pause { .. }));
    world.writer.begin_close();
    assert!(world.writer.try_close().is_some());
    pauses.obey();
    assert!(matches!(pauses.result(), Some(Err(Error::Closed))));
    assert!(matches!(world.run(&ops[1]), Err(Error::Closed)));
}
