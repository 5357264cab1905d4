//! The fields of a csv or tsv row that make an item.
//!
//! Every column is stored, unless the user leaves it out. Two cases that would lose a column are errors: a
//! column `value` beside others, and two columns of a requested name.

use serde_json::{Map, Value};

use super::write::GUARD;
use super::{Shape, from_hex};

/// The columns of a file, and those of the item. The first row determines them.
pub(crate) struct Columns {
    names: Vec<String>,
    key: usize,
    value: Source,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Column(usize),
    /// As `Column`, and a second column with flags for the encoding of the fields.
    Flagged(usize, usize),
    WholeRow,
}

impl Columns {
    /// Chooses the columns by the options, or by the names `key`, `value` and `hex`.
    pub(crate) fn of(names: Vec<String>, shape: &Shape) -> Result<Columns, String> {
        let key = match &shape.key {
            Some(wanted) => named(&names, wanted)?,
            None if names.iter().any(|name| name == "key") => named(&names, "key")?,
            None => 0,
        };
        let value = match &shape.value {
            Some(wanted) => Source::Column(named(&names, wanted)?),
            None if shape.key.is_none() => by_default(&names, key, shape)?,
            None => Source::WholeRow,
        };
        if value == Source::WholeRow {
            let twice = names.iter().enumerate().find(|(index, name)| names[..*index].contains(name));
            if let Some((_, name)) = twice {
                return Err(format!(
                    "two columns are called {name:?}, and a row as JSON can hold one of them; give them \
                     different names, or take one column with --value"
                ));
            }
        }
        Ok(Columns { names, key, value })
    }

    pub(crate) fn count(&self) -> usize {
        self.names.len()
    }

    /// The key and the value of a row, which has one field for each column.
    pub(crate) fn item(&self, mut fields: Vec<Vec<u8>>) -> Result<(Vec<u8>, Vec<u8>), String> {
        let value = match self.value {
            Source::WholeRow => whole_row(&self.names, &fields)?,
            Source::Column(index) | Source::Flagged(index, _) => fields[index].clone(),
        };
        let flags = match self.value {
            Source::Flagged(_, index) => std::mem::take(&mut fields[index]),
            Source::Column(_) | Source::WholeRow => Vec::new(),
        };
        let key = std::mem::take(&mut fields[self.key]);
        let (of_key, of_value) = match flags.as_slice() {
            [] => (None, None),
            [of_key @ (b'k' | b'K')] => (Some(*of_key), None),
            [of_value @ (b'v' | b'V')] => (None, Some(*of_value)),
            [of_key @ (b'k' | b'K'), of_value @ (b'v' | b'V')] => (Some(*of_key), Some(*of_value)),
            _ => {
                let message = "the column hex must be empty or of the letters k, v, K and V, one for each of \
                               key and value; name --key and --value if it is data";
                return Err(message.to_string());
            }
        };
        Ok((unflagged("key", key, of_key)?, unflagged("value", value, of_value)?))
    }
}

/// Undoes the encoding of a field. A lower-case flag marks hexadecimal digits, an upper-case flag an
/// apostrophe in front.
fn unflagged(what: &str, mut field: Vec<u8>, flag: Option<u8>) -> Result<Vec<u8>, String> {
    match flag {
        None => Ok(field),
        Some(flag) if flag.is_ascii_lowercase() => from_hex(what, &field),
        Some(_) if field.first() == Some(&GUARD) => Ok(field.split_off(1)),
        Some(_) => Err(format!("the {what} should have an apostrophe before it, as the column hex says")),
    }
}

/// The index of the only column with that name.
fn named(names: &[String], wanted: &str) -> Result<usize, String> {
    let mut found = (0..names.len()).filter(|index| names[*index] == wanted);
    match (found.next(), found.next()) {
        (Some(index), None) => Ok(index),
        (Some(_), Some(_)) => Err(format!("two columns are called {wanted:?}; give them different names")),
        _ => Err(format!("there is no column {wanted:?}; there are {}", names.join(", "))),
    }
}

/// The value if neither --key nor --value is given.
fn by_default(names: &[String], key: usize, shape: &Shape) -> Result<Source, String> {
    if !shape.header {
        return Ok(if names.len() == 2 { Source::Column(1) } else { Source::WholeRow });
    }
    if !names.iter().any(|name| name == "value") {
        return Ok(Source::WholeRow);
    }
    let value = named(names, "value")?;
    let hex = names.iter().position(|name| name == "hex").filter(|_| names.len() == 3 && key != value);
    if let Some(hex) = hex.filter(|hex| *hex != key) {
        return Ok(Source::Flagged(value, hex));
    }
    match (0..names.len()).find(|index| *index != key && *index != value) {
        None => Ok(Source::Column(value)),
        Some(other) => Err(format!(
            "the column {:?} would be left out; --value takes one column alone, --key NAME without it the \
             whole row",
            names[other]
        )),
    }
}

fn whole_row(names: &[String], fields: &[Vec<u8>]) -> Result<Vec<u8>, String> {
    let mut object = Map::new();
    for (name, field) in names.iter().zip(fields) {
        let text = std::str::from_utf8(field).map_err(|_| {
            format!("the column {name:?} is not UTF-8, and cannot be JSON; take one column with --value")
        })?;
        object.insert(name.clone(), Value::from(text));
    }
    Ok(Value::Object(object).to_string().into_bytes())
}
