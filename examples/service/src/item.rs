//! One item: `GET`, `PUT` and `DELETE /items/{key}`. The body is the value, of any bytes.

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use trine::Durability;

use crate::Service;
use crate::failure::Failure;

type Key = Result<Path<String>, PathRejection>;
type Written = Result<Query<WriteQuery>, QueryRejection>;

/// `?sync=1`: the response comes after a sync to the device.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteQuery {
    #[serde(default)]
    sync: Sync,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
enum Sync {
    #[default]
    #[serde(rename = "0")]
    No,
    #[serde(rename = "1")]
    Yes,
}

impl WriteQuery {
    pub(crate) fn durability(&self) -> Durability {
        match self.sync {
            Sync::No => Durability::Buffered,
            Sync::Yes => Durability::Sync,
        }
    }
}

/// The stored value, moved from the store's answer into the response body without a copy.
pub(crate) async fn read(State(service): State<Service>, key: Key) -> Result<Bytes, Failure> {
    let Path(key) = key?;
    match service.items.get_async(&key).await? {
        Some(value) => Ok(value.into()),
        None => {
            let message = format!("there is no item with the key {key:?}");
            Err(Failure::new(StatusCode::NOT_FOUND, "no_item", message))
        }
    }
}

pub(crate) async fn write(
    State(service): State<Service>,
    key: Key,
    query: Written,
    value: Result<Bytes, BytesRejection>,
) -> Result<StatusCode, Failure> {
    let (Path(key), Query(query), value) = (key?, query?, value?);
    service.items.put_async(key, value).durability(query.durability()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The response is the same for present and absent items: a delete does not look for the item.
pub(crate) async fn delete(
    State(service): State<Service>,
    key: Key,
    query: Written,
) -> Result<StatusCode, Failure> {
    let (Path(key), Query(query)) = (key?, query?);
    service.items.delete_async(key).durability(query.durability()).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After the store is closed, requests in progress get the error that it is closed.
    #[tokio::test]
    async fn a_closed_store_is_unavailable() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let service = Service::open(directory.path()).await.expect("it opens");
        service.clone().close().await.expect("it closes");
        let key = || Ok(Path("ann".to_owned()));
        let query = || Ok(Query(WriteQuery::default()));
        let state = || State(service.clone());
        for failure in [
            read(state(), key()).await.expect_err("it is closed"),
            write(state(), key(), query(), Ok(Bytes::new())).await.expect_err("it is closed"),
            delete(state(), key(), query()).await.expect_err("it is closed"),
        ] {
            assert_eq!((failure.status.as_u16(), failure.kind), (503, "closed"));
        }
    }
}
