//! JSON lines: one object a line. A string stands for its text, any other value for its JSON text as written.
//!
//! No field is lost silently: two fields of one name are an error, and so are fields beside `key` and
//! `value`, unless an option leaves them out.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Shape, from_hex};

/// The fields of an object in order, including fields with equal names.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Deserialize<'a> for Fields<'a> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Fields<'a>, D::Error> {
        struct Collect;
        impl<'a> Visitor<'a> for Collect {
            type Value = Fields<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Fields<'a>, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

impl<'a> Fields<'a> {
    fn of(line: &'a [u8]) -> Result<Fields<'a>, String> {
        let fields: Fields<'a> = serde_json::from_slice(line).map_err(|error| {
            let reason = error.to_string();
            // The parser's line number is always 1, since it sees one line.
            let reason = reason.split(" at line ").next().unwrap_or_default();
            format!("this is not a JSON object: {reason}, at column {}", error.column())
        })?;
        fields.refuse_doubles(line)?;
        Ok(fields)
    }

    fn refuse_doubles(&self, line: &[u8]) -> Result<(), String> {
        let mut order: Vec<usize> = (0..self.0.len()).collect();
        order.sort_by_key(|index| self.0.get(*index).map(|(name, _)| name));
        let same = order.windows(2).filter_map(|pair| {
            let (first, second) = (self.0.get(*pair.first()?)?, self.0.get(*pair.last()?)?);
            (first.0 == second.0).then_some(second)
        });
        match same.min_by_key(|field| field.1.get().as_ptr()) {
            None => Ok(()),
            Some((name, value)) => {
                let column = (value.get().as_ptr() as usize).wrapping_sub(line.as_ptr() as usize) + 1;
                Err(format!("two fields are called {name:?}; the second one's value is at column {column}"))
            }
        }
    }

    fn get(&self, wanted: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(name, _)| name == wanted).map(|(_, value)| *value)
    }

    fn named(&self, wanted: &str) -> Result<&'a RawValue, String> {
        self.get(wanted).ok_or_else(|| format!("there is no field {wanted:?}"))
    }
}

/// The key and the value of a line.
pub(crate) fn item(line: &[u8], shape: &Shape) -> Result<(Vec<u8>, Vec<u8>), String> {
    let fields = Fields::of(line)?;
    let (key_name, key) = match (&shape.key, fields.get("key"), fields.get("key_hex")) {
        (Some(name), _, _) => (name.as_str(), key_text(name, fields.named(name)?)?),
        (None, Some(value), _) => ("key", key_text("key", value)?),
        (None, None, Some(value)) => ("key_hex", from_hex("key", &text(value)?)?),
        (None, None, None) => return Err("there is no field \"key\"; name another with --key".to_string()),
    };
    let plain = shape.key.is_none();
    let (value_name, value) = match (&shape.value, fields.get("value"), fields.get("value_hex")) {
        (Some(name), _, _) => return Ok((key, text(fields.named(name)?)?)),
        (None, Some(value), _) if plain => ("value", text(value)?),
        (None, None, Some(value)) if plain => ("value_hex", from_hex("value", &text(value)?)?),
        _ => return Ok((key, line.trim_ascii().to_vec())),
    };
    match fields.0.iter().find(|(name, _)| name != key_name && name != value_name) {
        None => Ok((key, value)),
        Some((other, _)) => Err(format!(
            "the field {other:?} would be left out; --value takes one field alone, --key NAME without it the \
             whole object"
        )),
    }
}

fn key_text(name: &str, value: &RawValue) -> Result<Vec<u8>, String> {
    match value.get().as_bytes().first() {
        Some(b'{' | b'[' | b'n') => {
            Err(format!("the field {name:?} is no string or number, and cannot be a key"))
        }
        _ => text(value),
    }
}

fn text(value: &RawValue) -> Result<Vec<u8>, String> {
    let json = value.get();
    if !json.starts_with('"') {
        return Ok(json.as_bytes().to_vec());
    }
    serde_json::from_str::<String>(json)
        .map(String::into_bytes)
        .map_err(|error| format!("a string is not valid: {error}"))
}
