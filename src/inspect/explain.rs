//! The steps of a get: the places it searched, the outcome of each, and the cost. `Explainer` traces a real
//! get.

use crate::base::id::ItemKind;
use crate::base::sync::Arc;
use crate::io::env::Clock;
use crate::read::trace::{Saw, Stage, Tracer};

/// A get of one key, step by step.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// let users = db.ordered("users").open()?;
/// users.put(b"ann", b"1")?;
/// db.flush()?;
/// let explained = users.explain(b"ann")?;
/// assert_eq!(explained.value_bytes, Some(1));
/// let last = explained.steps.last().unwrap();
/// assert_eq!((last.name, last.level, last.said.as_str()), ("DBSeek", Some(0), "a put"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// Length of the value; `None` if there is none.
    pub value_bytes: Option<u64>,
    /// Name of the key's partition, which need not exist; `None` if the keyspace is not divided.
    pub partition: Option<Vec<u8>>,
    /// The steps in the order of execution.
    pub steps: Vec<Step>,
}

/// One step of a get: a search of one place.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// let users = db.ordered("users").open()?;
/// users.put(b"ann", b"1")?;
/// let first = &users.explain(b"ann")?.steps[0];
/// assert_eq!((first.name, first.said.as_str()), ("MtGet", "a put, in the write buffer in use"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// MtGet, FileFind, FBLoad, FBMatch, IBLoad, IBSeek, DBLoad or DBSeek: see
    /// [`TraceStep`](crate::TraceStep).
    pub name: &'static str,
    /// The level of the table; `None` in memory.
    pub level: Option<u32>,
    /// The number of the run in its level; 0 is the newest.
    pub run: u32,
    /// The table's file; empty in memory.
    pub file: String,
    /// Offset of a data block in the file.
    pub offset: Option<u64>,
    /// The outcome, in words.
    pub said: String,
    /// Duration in nanoseconds.
    pub ns: u64,
    /// Bytes loaded or searched.
    pub bytes: u64,
}

/// A tracer that records the steps of a get.
pub(crate) struct Explainer {
    clock: Arc<dyn Clock>,
    since_ns: u64,
    /// Level, run and file of the table that the get searches.
    place: Option<(u32, u32, String)>,
    /// Offset of the data block to search.
    offset: Option<u64>,
    steps: Vec<Step>,
}

impl Explainer {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Explainer {
        Explainer { since_ns: clock.now_ns(), clock, place: None, offset: None, steps: Vec::new() }
    }

    pub(crate) fn finish(mut self, value_bytes: Option<u64>) -> Explanation {
        self.charge();
        // After a load the get repeats steps whose outcome is known; these have no text.
        self.steps.retain(|step| !step.said.is_empty());
        Explanation { value_bytes, partition: None, steps: self.steps }
    }

    fn charge(&mut self) {
        let now_ns = self.clock.now_ns();
        if let Some(step) = self.steps.last_mut() {
            step.ns += now_ns.saturating_sub(self.since_ns);
        }
        self.since_ns = now_ns;
    }
}

impl Tracer for Explainer {
    fn enter(&mut self, stage: Stage, bytes: usize) {
        self.charge();
        let is_data = matches!(stage, Stage::DBLoad | Stage::DBSeek);
        let (level, run, file) = match &self.place {
            Some((level, run, file)) => (Some(*level), *run, file.clone()),
            None => (None, 0, String::new()),
        };
        let said = match stage {
            Stage::FBLoad | Stage::IBLoad | Stage::DBLoad => "read".to_owned(),
            _ => String::new(),
        };
        let offset = self.offset.filter(|_| is_data);
        self.steps.push(Step {
            name: stage.name(),
            level,
            run,
            file,
            offset,
            said,
            ns: 0,
            bytes: bytes as u64,
        });
    }

    fn saw(&mut self, saw: Saw<'_>) {
        let is_new =
            |place: &Option<(u32, u32, String)>, now: &(u32, u32, String)| place.as_ref() != Some(now);
        let said = match saw {
            Saw::Memory { generation: 0, kind } => format!("{}, in the write buffer in use", word(kind)),
            Saw::Memory { generation, kind } => {
                format!("{}, in the write buffer {generation} before the one in use", word(kind))
            }
            Saw::NoMemory => "not in the write buffers".to_owned(),
            Saw::Table { level, run, table } => {
                let place = (level as u32, run as u32, table.file().name().to_string());
                if !is_new(&self.place, &place) {
                    return;
                }
                self.offset = None;
                if let Some(step) = self.steps.last_mut() {
                    (step.level, step.run, step.file) = (Some(place.0), place.1, place.2.clone());
                }
                self.place = Some(place);
                "the bounds admit the key".to_owned()
            }
            Saw::NoItems => "only range tombstones are there".to_owned(),
            Saw::RuledOut => "no".to_owned(),
            Saw::Maybe => "maybe".to_owned(),
            Saw::Unasked => "not asked, for it is not in memory".to_owned(),
            Saw::Block(address) => {
                self.offset = Some(address.offset);
                format!("the block at {}", address.offset)
            }
            Saw::Item(kind) => word(kind).to_owned(),
            Saw::NoItem => "not in the block".to_owned(),
            Saw::Hidden => "deleted by a range tombstone of the table".to_owned(),
        };
        if let Some(step) = self.steps.last_mut() {
            step.said = if step.said.is_empty() { said } else { format!("{}; {said}", step.said) };
        }
    }
}

fn word(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Put => "a put",
        ItemKind::Delete => "a tombstone",
        ItemKind::DeleteRange => "a range tombstone",
    }
}
