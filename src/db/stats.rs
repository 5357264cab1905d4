//! Settings as callers read them. Statistics are plain structs of `engine`.

use crate::base::settings::{self, Setting};

/// A setting and its value.
///
/// ```
/// # fn main() -> trine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trine::Db::open(dir.path().join("data"))?;
/// for one in db.settings() {
///     assert!((one.min..=one.max).contains(&one.default), "{}: {}", one.name, one.about);
/// }
/// assert!(db.settings().iter().any(|one| one.name == "memory_bytes"));
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SettingValue {
    /// Name of the setting, as the builders' `set` takes it.
    pub name: &'static str,
    /// The current value.
    pub value: u64,
    /// The default value.
    pub default: u64,
    /// Smallest allowed value.
    pub min: u64,
    /// Largest allowed value.
    pub max: u64,
    /// Names of the values from 0 on; empty if the values are plain numbers.
    pub words: &'static [&'static str],
    /// Meaning of the setting, and the effect of larger and smaller values.
    pub about: &'static str,
}

impl SettingValue {
    pub(crate) fn new((setting, value): (&'static Setting, u64)) -> SettingValue {
        SettingValue {
            name: setting.name,
            value,
            default: setting.default,
            min: setting.min,
            max: setting.max,
            words: setting.words,
            about: setting.about,
        }
    }

    /// The value as [`KeyspaceBuilder::set`](crate::KeyspaceBuilder::set) takes it: its name if it has one,
    /// else the number.
    ///
    /// ```
    /// # fn main() -> trine::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trine::Db::open(dir.path().join("data"))?;
    /// let users = db.ordered("users").set("size_ratio", 10).open()?;
    /// let ratio = users.settings().into_iter().find(|one| one.name == "size_ratio").unwrap();
    /// assert_eq!(ratio.text(), "10");
    /// # Ok(()) }
    /// ```
    pub fn text(&self) -> String {
        settings::text(self.words, self.value)
    }
}
