//! An HTTP service over one ordered keyspace of a Trine store, with axum.
//!
//! Requests read and write through the store's futures, so that no thread of the executor blocks. Opening,
//! closing and statistics block, so they run on tokio's threads for blocking work.

mod batch;
mod failure;
mod item;
mod range;
mod wire;

use std::path::PathBuf;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use trine::{Db, Keyspace, Ordered};

use failure::Failure;

/// An error that ends the service.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Largest body of a request, in bytes. The store's own limit for a value is 1 MiB.
const BODY_BYTES_MAX: usize = 2 << 20;
/// Largest body of a batch, in bytes.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// Time limit of requests in progress once the service stops.
const DRAIN: Duration = Duration::from_secs(10);

/// The store and its keyspace. Clones are handles of the same store.
#[derive(Clone, Debug)]
pub struct Service {
    db: Db,
    items: Keyspace<Ordered>,
}

impl Service {
    /// Opens the store in `directory`, or creates it.
    ///
    /// # Errors
    /// As [`Db::open`].
    pub async fn open(directory: impl Into<PathBuf>) -> Result<Service, Failed> {
        let directory = directory.into();
        let opened = spawn_blocking(move || {
            let db = Db::open(directory)?;
            let items = db.ordered("items").open()?;
            trine::Result::Ok(Service { db, items })
        });
        Ok(opened.await??)
    }

    /// Closes the store for all handles. Later requests get status 503.
    ///
    /// # Errors
    /// As [`Db::close`].
    pub async fn close(self) -> Result<(), Failed> {
        Ok(spawn_blocking(|| self.db.close()).await??)
    }
}

/// Serves requests until `stop` is ready, then waits for requests in progress, and closes the store.
///
/// # Errors
/// Those of the listener and of [`Service::close`].
pub async fn serve(
    service: Service,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Failed> {
    let (stopping, stopped) = oneshot::channel::<()>();
    let stop = async {
        stop.await;
        drop(stopping);
    };
    let server = axum::serve(listener, router(service.clone())).with_graceful_shutdown(stop);
    let give_up = async {
        stopped.await.unwrap_or_default();
        tokio::time::sleep(DRAIN).await;
    };
    let served = tokio::select! {
        served = server.into_future() => served,
        () = give_up => Ok(()),
    };
    service.close().await?;
    Ok(served?)
}

/// The endpoints.
pub fn router(service: Service) -> Router {
    Router::new()
        .route("/items", get(range::page))
        .route("/items/{*key}", get(item::read).put(item::write).delete(item::delete))
        .route("/export", get(range::export))
        .route("/stats", get(stats))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .route("/batch", post(batch::commit).layer(DefaultBodyLimit::max(BATCH_BYTES_MAX)))
        .fallback(async || Failure::new(StatusCode::NOT_FOUND, "no_endpoint", "there is no such endpoint"))
        .method_not_allowed_fallback(async || {
            let message = "the endpoint does not take this method";
            Failure::new(StatusCode::METHOD_NOT_ALLOWED, "method", message)
        })
        .with_state(service)
}

/// The store's statistics. Collecting them walks over all write buffers, so it runs on another thread.
async fn stats(State(service): State<Service>) -> Result<Response, Failure> {
    let text = spawn_blocking(move || serde_json::to_string(&service.db.stats()));
    let text = text.await.map_err(Failure::internal)?.map_err(Failure::internal)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}
