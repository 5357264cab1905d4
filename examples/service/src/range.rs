//! Items in key order: `GET /items` by pages, `GET /export` as one stream.

use std::future::ready;
use std::ops::Bound;
use std::pin::pin;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use trine::{Keyspace, Ordered, Value};

use crate::Service;
use crate::failure::Failure;
use crate::wire::Item;

/// Default number of items on a page.
const PAGE_ITEMS: usize = 100;
/// Limit of items on a page.
const PAGE_ITEMS_MAX: usize = 1_000;
/// A page with this many bytes of keys and values is full.
const PAGE_BYTES: usize = 1 << 20;

/// The items to select. Each given field narrows the selection.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RangeQuery {
    /// The first key.
    from: Option<String>,
    /// The key at which the selection ends, itself excluded.
    to: Option<String>,
    /// The prefix of the keys.
    prefix: Option<String>,
    /// The key after which the selection begins: `next` of the previous page.
    after: Option<String>,
    /// The limit of items.
    limit: Option<usize>,
}

impl RangeQuery {
    /// The range to read. It starts at `prefix` or later, so that keys with the prefix are its first keys.
    fn bounds(&self) -> (Bound<&str>, Bound<&str>) {
        let from = self.from.as_deref().max(self.prefix.as_deref());
        let start = match (self.after.as_deref(), from) {
            (Some(after), from) if from.is_none_or(|from| from <= after) => Bound::Excluded(after),
            (_, Some(from)) => Bound::Included(from),
            (_, None) => Bound::Unbounded,
        };
        (start, self.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded))
    }

    /// The items, read while the stream is polled. The stream sees the store's state at this call.
    fn select(&self, items: &Keyspace<Ordered>) -> impl Stream<Item = trine::Result<(Value, Value)>> + use<> {
        let prefix = self.prefix.clone().unwrap_or_default();
        let has_prefix = move |(key, _): &(Value, Value)| ready(Ok(key.starts_with(prefix.as_bytes())));
        items.range_async(self.bounds()).try_take_while(has_prefix)
    }
}

/// A page of a range.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Page {
    items: Vec<Item>,
    /// The `after` of the next page, if there are more items.
    next: Option<String>,
}

pub(crate) async fn page(
    State(service): State<Service>,
    query: Result<Query<RangeQuery>, QueryRejection>,
) -> Result<Json<Page>, Failure> {
    let Query(query) = query?;
    let limit = query.limit.unwrap_or(PAGE_ITEMS);
    if !(1..=PAGE_ITEMS_MAX).contains(&limit) {
        return Err(Failure::bad_request(format!("limit is {limit}, and may be 1 to {PAGE_ITEMS_MAX}")));
    }
    let (mut page, mut bytes) = (Page::default(), 0);
    let mut items = pin!(query.select(&service.items));
    while let Some(item) = items.try_next().await? {
        if page.items.len() == limit || bytes >= PAGE_BYTES {
            page.next = page.items.last().map(|last| last.key.clone());
            break;
        }
        let item = Item::new(item)?;
        bytes += item.bytes();
        page.items.push(item);
    }
    Ok(Json(page))
}

/// All items of one moment, one line of JSON each. An error aborts the connection, so that no client takes a
/// part for the whole.
pub(crate) async fn export(
    State(service): State<Service>,
    query: Result<Query<RangeQuery>, QueryRejection>,
) -> Result<Response, Failure> {
    let Query(query) = query?;
    let items = query.select(&service.items).take(query.limit.unwrap_or(usize::MAX));
    let lines = items.map(|item| line(item?));
    let lines = lines.map_err(|failure| failure.message);
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

fn line(item: (Value, Value)) -> Result<String, Failure> {
    let mut line = serde_json::to_string(&Item::new(item)?).map_err(Failure::internal)?;
    line.push('\n');
    Ok(line)
}
