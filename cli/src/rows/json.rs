//! JSON lines: one object a line. A string stands for its text, anything else for its JSON as it was written.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;

use super::{Shape, from_hex};

/// The key and the value of a line.
pub(crate) fn item(line: &[u8], shape: &Shape) -> Result<(Vec<u8>, Vec<u8>), String> {
    let object: HashMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(line).map_err(|error| {
        let reason = error.to_string();
        // The line and column it knows are those within this one line.
        let reason = reason.split(" at line ").next().unwrap_or_default();
        format!("this is not a JSON object: {reason}, at column {}", error.column())
    })?;
    let key = match (&shape.key, object.get("key"), object.get("key_hex")) {
        (Some(name), _, _) => {
            let value = object.get(name.as_str()).ok_or_else(|| format!("there is no field {name:?}"))?;
            key_text(name, value)?
        }
        (None, Some(value), _) => key_text("key", value)?,
        (None, None, Some(value)) => from_hex("key", &text(value)?)?,
        (None, None, None) => return Err("there is no field \"key\"; name another with --key".to_string()),
    };
    let plain = shape.key.is_none();
    let value = match (&shape.value, object.get("value"), object.get("value_hex")) {
        (Some(name), _, _) => {
            let value = object.get(name.as_str()).ok_or_else(|| format!("there is no field {name:?}"))?;
            text(value)?
        }
        (None, Some(value), _) if plain => text(value)?,
        (None, None, Some(value)) if plain => from_hex("value", &text(value)?)?,
        _ => line.trim_ascii().to_vec(),
    };
    Ok((key, value))
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
