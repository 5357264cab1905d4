//! Settings as they are read back. Statistics are `engine`'s own plain structs.

use crate::base::settings::Setting;

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
    /// Its name, as the builders' `set` takes it.
    pub name: &'static str,
    /// Its value now.
    pub value: u64,
    /// Its default.
    pub default: u64,
    /// Smallest allowed value.
    pub min: u64,
    /// Largest allowed value.
    pub max: u64,
    /// What it is, and what larger and smaller values do.
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
            about: setting.about,
        }
    }
}
