//! `POST /batch`: puts and deletes that are written together or not at all.

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::Deserialize;

use crate::Service;
use crate::failure::Failure;
use crate::item::WriteQuery;
use crate::wire::Text;

/// One write: `{"op": "put", "key": "a", "value": "1"}`, with `"base64"` for values that are not UTF-8; or
/// `{"op": "delete", "key": "a"}`.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(crate) enum Change {
    Put {
        key: String,
        #[serde(flatten)]
        value: Text,
    },
    Delete {
        key: String,
    },
}

pub(crate) async fn commit(
    State(service): State<Service>,
    query: Result<Query<WriteQuery>, QueryRejection>,
    changes: Result<Json<Vec<Change>>, JsonRejection>,
) -> Result<StatusCode, Failure> {
    let (Query(query), Json(changes)) = (query?, changes?);
    let mut batch = service.db.batch();
    for (index, change) in changes.into_iter().enumerate() {
        add(&service, &mut batch, change).map_err(|failure| failure.of_item(index + 1))?;
    }
    batch.commit_async().durability(query.durability()).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn add(service: &Service, batch: &mut trine::Batch, change: Change) -> Result<(), Failure> {
    match change {
        Change::Put { key, value } => batch.put(&service.items, key, value.into_bytes()?)?,
        Change::Delete { key } => batch.delete(&service.items, key)?,
    }
    Ok(())
}
