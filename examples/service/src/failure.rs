//! Responses to failed requests: a status, and a JSON body with the reason.

use std::fmt::Display;

use axum::Json;
use axum::extract::rejection::{BytesRejection, JsonRejection, PathRejection, QueryRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// The status and reason of a failed request.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    /// A word for programs; for an error of the store, its [`trine::Error::kind`].
    pub(crate) kind: &'static str,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, kind: &'static str, message: impl Display) -> Failure {
        Failure { status, kind, message: message.to_string() }
    }

    pub(crate) fn bad_request(message: impl Display) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    pub(crate) fn internal(message: impl Display) -> Failure {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    /// Adds the number of the batch's item with the fault, counted from 1.
    pub(crate) fn of_item(mut self, number: usize) -> Failure {
        self.message = format!("item {number} of the batch, which is not written: {}", self.message);
        self
    }
}

impl From<trine::Error> for Failure {
    fn from(error: trine::Error) -> Failure {
        let status = match error.kind() {
            "invalid" => StatusCode::BAD_REQUEST,
            "too_large" => StatusCode::PAYLOAD_TOO_LARGE,
            "full" | "memory" => StatusCode::INSUFFICIENT_STORAGE,
            "closed" | "latched" | "read_only" => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Failure::new(status, error.kind(), &error)
    }
}

macro_rules! from_rejections {
    ($($rejection:ty),*) => {
        $(impl From<$rejection> for Failure {
            fn from(rejection: $rejection) -> Failure {
                Failure::new(rejection.status(), "bad_request", rejection.body_text())
            }
        })*
    };
}

from_rejections!(BytesRejection, JsonRejection, PathRejection, QueryRejection);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.status, Json(json!({ "error": self.kind, "message": self.message }))).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each kind of store error has the expected status, kind and message.
    #[test]
    fn errors_have_a_status() {
        let full = || trine::Error::Full { file: "log".to_owned() };
        let io = std::io::Error::from(std::io::ErrorKind::TimedOut);
        let io = trine::Error::Io { operation: "read", file: "log".to_owned(), offset: 0, source: io.into() };
        for (error, status, kind) in [
            (trine::Error::Invalid { faults: vec![] }, 400, "invalid"),
            (trine::Error::TooLarge { what: "value", limit: 1, given: 2 }, 413, "too_large"),
            (full(), 507, "full"),
            (trine::Error::Memory { role: "manifest", limit: 1, wanted: 2 }, 507, "memory"),
            (trine::Error::Closed, 503, "closed"),
            (trine::Error::Latched { cause: Box::new(full()) }, 503, "latched"),
            (io, 500, "io"),
        ] {
            let message = error.to_string();
            let failure = Failure::from(error);
            assert_eq!((failure.status.as_u16(), failure.kind, failure.message), (status, kind, message));
        }
    }
}
