//! The JSON form of items.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use trine::Value;

use crate::failure::Failure;

/// An item: `{"key": "a", "value": "text"}`, or `{"key": "a", "base64": "/w=="}` if its value is not UTF-8.
#[derive(Debug, Serialize)]
pub(crate) struct Item {
    pub(crate) key: String,
    #[serde(flatten)]
    value: Text,
}

impl Item {
    /// # Errors
    /// If the key is not UTF-8, which only another program can write.
    pub(crate) fn new((key, value): (Value, Value)) -> Result<Item, Failure> {
        let key = String::from_utf8(key.into())
            .map_err(|error| Failure::internal(format!("a key of the store is not UTF-8: {error}")))?;
        Ok(Item { key, value: value.into() })
    }

    /// Bytes of key and value.
    pub(crate) fn bytes(&self) -> usize {
        let value = [&self.value.value, &self.value.base64].into_iter().flatten();
        self.key.len() + value.map(String::len).sum::<usize>()
    }
}

/// A value of any bytes, in one of two fields.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Text {
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

impl From<Value> for Text {
    fn from(value: Value) -> Text {
        match String::from_utf8(value.into()) {
            Ok(text) => Text { value: Some(text), base64: None },
            Err(error) => Text { value: None, base64: Some(STANDARD.encode(error.as_bytes())) },
        }
    }
}

impl Text {
    /// The bytes of the value.
    ///
    /// # Errors
    /// If there is no field, if there are both, or if the text is not base64.
    pub(crate) fn into_bytes(self) -> Result<Vec<u8>, Failure> {
        match (self.value, self.base64) {
            (Some(text), None) => Ok(text.into_bytes()),
            (None, Some(text)) => STANDARD
                .decode(text)
                .map_err(|error| Failure::bad_request(format!("its value is not base64: {error}"))),
            _ => Err(Failure::bad_request("a put has either a value or base64")),
        }
    }
}
