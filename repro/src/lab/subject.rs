//! Any preset behind one interface: the lab's, and `default`, the store itself.

use std::path::Path;

use serde_json::{Map, Value, json};
use trine::lab::{Knobs, Lab, Preset};
use trine::{Db, Keyspace, Ordered};
use trine_workload::failure::Failure;

/// The store to open: a preset with its knobs, or Trine with its settings.
#[derive(Clone)]
pub(crate) enum Target {
    Lab { preset: Preset, knobs: Knobs },
    Store { value_bytes: usize, sets: Vec<(String, String)> },
}

/// The name of the store itself among the presets.
pub(crate) const DEFAULT: &str = "default";
/// The default length of the store's values: Lemur's.
const VALUE_BYTES: u64 = 20;

impl Target {
    /// The preset of that name with `NAME=VALUE`s changed.
    pub(crate) fn parse(preset: &str, value_bytes: Option<u64>, sets: &[String]) -> Result<Target, Failure> {
        let pairs: Result<Vec<(&str, &str)>, Failure> = sets
            .iter()
            .map(|set| {
                set.split_once('=').ok_or_else(|| Failure::Usage(format!("--set {set}: it is NAME=VALUE")))
            })
            .collect();
        let pairs = pairs?;
        if preset == DEFAULT {
            let sets = pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
            let value_bytes = value_bytes.unwrap_or(VALUE_BYTES) as usize;
            return Ok(Target::Store { value_bytes, sets });
        }
        let preset = Preset::named(preset).map_err(|error| match error {
            trine::Error::Invalid { faults } => {
                Failure::Usage(format!("{}, and {DEFAULT}: the store itself", faults.join("; ")))
            }
            other => Failure::Store(other),
        })?;
        let mut target = Target::of(preset);
        if let Some(value_bytes) = value_bytes {
            target = target.with("value_bytes", value_bytes)?;
        }
        for (name, value) in pairs {
            target = target.with(name, value)?;
        }
        Ok(target)
    }

    pub(crate) fn of(preset: Preset) -> Target {
        Target::Lab { preset, knobs: preset.knobs() }
    }

    pub(crate) fn store(value_bytes: usize) -> Target {
        Target::Store { value_bytes, sets: Vec::new() }
    }

    /// With a changed knob or setting.
    pub(crate) fn with(mut self, name: &str, value: impl ToString) -> Result<Target, Failure> {
        match &mut self {
            Target::Lab { knobs, .. } => {
                knobs.set(name, &value.to_string()).map_err(|error| match error {
                    trine::Error::Invalid { faults } => Failure::Usage(faults.join("; ")),
                    other => Failure::Store(other),
                })?
            }
            Target::Store { sets, .. } => sets.push((name.to_string(), value.to_string())),
        }
        Ok(self)
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Target::Lab { preset, .. } => preset.name(),
            Target::Store { .. } => DEFAULT,
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let sets: Map<String, Value> = match self {
            Target::Lab { knobs, .. } => {
                knobs.values().into_iter().map(|one| (one.name.to_string(), json!(one.value))).collect()
            }
            Target::Store { sets, .. } => {
                sets.iter().map(|(name, value)| (name.clone(), json!(value))).collect()
            }
        };
        json!({"preset": self.name(), "knobs": sets, "value_bytes": self.value_bytes()})
    }

    pub(crate) fn value_bytes(&self) -> usize {
        match self {
            Target::Lab { knobs, .. } => {
                knobs.get("value_bytes").ok().and_then(|value| value.parse().ok()).unwrap_or(0)
            }
            Target::Store { value_bytes, .. } => *value_bytes,
        }
    }

    /// Opens or makes the store in the directory.
    pub(crate) fn open(&self, directory: &Path) -> Result<Subject, Failure> {
        match self {
            Target::Lab { knobs, .. } => {
                if knobs.get("key_bytes")? != "4" {
                    return Err(Failure::Usage("key_bytes is fixed here: keys are numbers of 4".to_string()));
                }
                Ok(Subject::Lab(Box::new(Lab::open(directory, knobs)?)))
            }
            Target::Store { sets, .. } => open_store(directory, sets),
        }
    }
}

/// The prefix of a setting's name that is the store's and not the keyspace's.
const OF_STORE: &str = "store.";

fn open_store(directory: &Path, sets: &[(String, String)]) -> Result<Subject, Failure> {
    let mut builder = Db::builder(directory);
    for (name, value) in sets {
        if let Some(name) = name.strip_prefix(OF_STORE) {
            builder = match value.parse::<u64>() {
                Ok(number) => builder.set(name, number),
                Err(_) => builder.set(name, value.as_str()),
            };
        }
    }
    let db = builder.open()?;
    let mut keyspace = db.ordered("items");
    for (name, value) in sets.iter().filter(|(name, _)| !name.starts_with(OF_STORE)) {
        keyspace = match value.parse::<u64>() {
            Ok(number) => keyspace.set(name, number),
            Err(_) => keyspace.set(name, value.as_str()),
        };
    }
    let items = keyspace.open()?;
    Ok(Subject::Store { db, items })
}

/// An open store.
pub(crate) enum Subject {
    Lab(Box<Lab>),
    Store { db: Db, items: Keyspace<Ordered> },
}

impl Subject {
    pub(crate) fn put(&mut self, key: u32, value: &[u8]) -> Result<(), Failure> {
        let key = key.to_be_bytes();
        match self {
            Subject::Lab(lab) => Ok(lab.put(&key, value)?),
            Subject::Store { items, .. } => Ok(items.put(key, value)?),
        }
    }

    pub(crate) fn delete(&mut self, key: u32) -> Result<(), Failure> {
        let key = key.to_be_bytes();
        match self {
            Subject::Lab(lab) => Ok(lab.delete(&key)?),
            Subject::Store { items, .. } => Ok(items.delete(key)?),
        }
    }

    pub(crate) fn get(&self, key: u32) -> Result<Option<Vec<u8>>, Failure> {
        let key = key.to_be_bytes();
        match self {
            Subject::Lab(lab) => Ok(lab.get(&key)?),
            Subject::Store { items, .. } => Ok(items.get(key)?.map(|value| value.to_vec())),
        }
    }

    pub(crate) fn contains(&self, key: u32) -> Result<bool, Failure> {
        let key = key.to_be_bytes();
        match self {
            Subject::Lab(lab) => Ok(lab.contains(&key)?),
            Subject::Store { items, .. } => Ok(items.contains(key)?),
        }
    }

    /// Calls `each` with every item, in key order.
    pub(crate) fn scan(&self, mut each: impl FnMut(u32, &[u8])) -> Result<(), Failure> {
        let number = |key: &[u8]| <[u8; 4]>::try_from(key).map_or(u32::MAX, u32::from_be_bytes);
        match self {
            Subject::Lab(lab) => lab.scan(|key, value| each(number(key), value))?,
            Subject::Store { items, .. } => {
                let mut cursor = items.cursor(..);
                while let Some((key, value)) = cursor.next()? {
                    each(number(key), value);
                }
            }
        }
        Ok(())
    }

    /// Waits for background work, of which the lab has none.
    pub(crate) fn settle(&self) -> Result<(), Failure> {
        match self {
            Subject::Lab(_) => Ok(()),
            Subject::Store { db, .. } => Ok(db.settle()?),
        }
    }

    /// Saves and closes.
    pub(crate) fn close(self) -> Result<(), Failure> {
        match self {
            Subject::Lab(lab) => Ok(lab.close()?),
            Subject::Store { db, items } => {
                drop(items);
                Ok(db.close()?)
            }
        }
    }

    /// Pages, or blocks, read from files since it was opened.
    pub(crate) fn reads(&self) -> u64 {
        match self {
            Subject::Lab(lab) => lab.stats().page_reads,
            Subject::Store { db, .. } => db.stats().io.device_reads,
        }
    }
}
