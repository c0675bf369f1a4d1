//! The one error table: every failure a caller can see, with its gRPC status, HTTP status, metrics
//! label and machine-readable details.

mod text;

use std::{error::Error as _, fmt, time::Duration};

use tonic::{Code, Status, TimeoutExpired};
use tonic_types::{ErrorDetails, StatusExt};

pub use text::quoted;

use text::bounded;

/// Domain of the `ErrorInfo` detail on every status.
pub const DOMAIN: &str = "firstlight";

/// A failure as its caller sees it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A field of the request is wrong; `reason` names the value and the remedy.
    #[error("{field}: {reason}")]
    Invalid {
        /// The field, as in the proto.
        field: &'static str,
        /// What is wrong with its value, and what would be right.
        reason: String,
    },
    /// The request can never be admitted under the limits in force.
    #[error("request never fits: {limit} is {have}, the request needs {need}; {remedy}")]
    NeverFits {
        /// Name of the limit.
        limit: &'static str,
        /// The limit's value.
        have: u64,
        /// What the request needs of it.
        need: u64,
        /// The smallest change that would admit it.
        remedy: String,
    },
    /// Too many requests wait, or one stream's buffer is full.
    #[error("{reason}; retry after {} ms", retry_after.as_millis())]
    Full {
        /// Which bound was reached, with its value.
        reason: String,
        /// Computed from the measured drain rate.
        retry_after: Duration,
    },
    /// The deadline cannot be met or has passed.
    #[error("deadline exceeded: {0}")]
    Deadline(
        /// The wait so far by cause.
        String,
    ),
    /// No engine can serve the request.
    #[error("{reason}")]
    Unavailable {
        /// What is missing.
        reason: String,
        /// When to try again.
        retry_after: Duration,
    },
    /// No valid credentials.
    #[error("unauthenticated: {0}")]
    Unauthenticated(String),
    /// Valid credentials without this right.
    #[error("forbidden: {0}")]
    Forbidden(String),
    /// The caller went away or cancelled.
    #[error("cancelled: {0}")]
    Cancelled(String),
    /// A defect of ours; the id is in the log.
    #[error("internal error, logged under id {id}")]
    Bug {
        /// Finds the log line.
        id: String,
    },
}

/// The row of the table a failure belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// [`Failure::Invalid`]
    Invalid,
    /// [`Failure::NeverFits`]
    NeverFits,
    /// [`Failure::Full`]
    Full,
    /// [`Failure::Deadline`]
    Deadline,
    /// [`Failure::Unavailable`]
    Unavailable,
    /// [`Failure::Unauthenticated`]
    Unauthenticated,
    /// [`Failure::Forbidden`]
    Forbidden,
    /// [`Failure::Cancelled`]
    Cancelled,
    /// [`Failure::Bug`]
    Bug,
}

/// Kind, metrics label, gRPC code, HTTP status.
const TABLE: [(Kind, &str, Code, u16); 9] = [
    (Kind::Invalid, "invalid", Code::InvalidArgument, 400),
    (Kind::NeverFits, "never_fits", Code::InvalidArgument, 422),
    (Kind::Full, "full", Code::ResourceExhausted, 429),
    (Kind::Deadline, "deadline", Code::DeadlineExceeded, 504),
    (Kind::Unavailable, "unavailable", Code::Unavailable, 503),
    (Kind::Unauthenticated, "unauthenticated", Code::Unauthenticated, 401),
    (Kind::Forbidden, "forbidden", Code::PermissionDenied, 403),
    (Kind::Cancelled, "cancelled", Code::Cancelled, 499),
    (Kind::Bug, "bug", Code::Internal, 500),
];

impl Kind {
    /// Every kind, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    /// Value of the `kind` label in metrics and of `ErrorInfo.reason`.
    pub fn label(self) -> &'static str {
        self.row().1
    }

    /// gRPC status code.
    pub fn code(self) -> Code {
        self.row().2
    }

    /// HTTP status.
    pub fn http(self) -> u16 {
        self.row().3
    }

    /// The kind a status belongs to: by its `ErrorInfo` when it is ours, else by its code. A connection that broke is
    /// no bug of the server, and no cancel of the caller's: it reaches us as INTERNAL, UNKNOWN or CANCELLED made on
    /// this side.
    pub fn of(status: &Status) -> Self {
        let details = status.get_error_details();
        let ours = details.error_info().filter(|info| info.domain == DOMAIN);
        let by_label = ours.and_then(|info| TABLE.iter().find(|row| row.1 == info.reason));
        let by_code = || TABLE.iter().find(|row| row.2 == status.code());
        match by_label.or_else(by_code).map_or(Self::Bug, |row| row.0) {
            Self::Bug | Self::Cancelled if by_label.is_none() && connection_broke(status) => {
                Self::Unavailable
            }
            kind => kind,
        }
    }

    fn row(self) -> &'static (Self, &'static str, Code, u16) {
        &TABLE[self as usize]
    }
}

/// A status that came over the wire has no source; one with a source stands for a failure of the
/// connection, seen from this side of it, unless this side itself gave up waiting.
fn connection_broke(status: &Status) -> bool {
    let mut source = status.source();
    let broke = source.is_some();
    while let Some(error) = source {
        if error.is::<TimeoutExpired>() {
            return false;
        }
        source = error.source();
    }
    broke
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl Failure {
    /// The row of the table.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Invalid { .. } => Kind::Invalid,
            Self::NeverFits { .. } => Kind::NeverFits,
            Self::Full { .. } => Kind::Full,
            Self::Deadline(_) => Kind::Deadline,
            Self::Unavailable { .. } => Kind::Unavailable,
            Self::Unauthenticated(_) => Kind::Unauthenticated,
            Self::Forbidden(_) => Kind::Forbidden,
            Self::Cancelled(_) => Kind::Cancelled,
            Self::Bug { .. } => Kind::Bug,
        }
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let kind = failure.kind();
        let mut details = ErrorDetails::new();
        details.set_error_info(kind.label(), DOMAIN, []);
        match &failure {
            Failure::Invalid { field, reason } => {
                details.add_bad_request_violation(*field, bounded(reason.clone()));
            }
            Failure::NeverFits { limit, have, need, remedy } => {
                let metadata = [
                    ("limit".to_owned(), (*limit).to_owned()),
                    ("have".to_owned(), have.to_string()),
                    ("need".to_owned(), need.to_string()),
                    ("remedy".to_owned(), bounded(remedy.clone())),
                ];
                details.set_error_info(kind.label(), DOMAIN, metadata);
            }
            Failure::Full { retry_after, .. } | Failure::Unavailable { retry_after, .. } => {
                details.set_retry_info(Some(*retry_after));
            }
            _ => {}
        }
        Self::with_error_details(kind.code(), bounded(failure.to_string()), details)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_of_each() -> Vec<Failure> {
        let retry_after = Duration::from_millis(250);
        vec![
            Failure::Invalid { field: "max_new_tokens", reason: "0 is too few; at least 1".into() },
            Failure::NeverFits {
                limit: "context_length",
                have: 8,
                need: 9,
                remedy: "ask for 1 fewer".into(),
            },
            Failure::Full { reason: "4 requests wait, max_pending is 4".into(), retry_after },
            Failure::Deadline("waited 5 ms".into()),
            Failure::Unavailable { reason: "no engine is attached".into(), retry_after },
            Failure::Unauthenticated("no token".into()),
            Failure::Forbidden("not yours".into()),
            Failure::Cancelled("client went away".into()),
            Failure::Bug { id: "7".into() },
        ]
    }

    #[test]
    fn each_kind_survives_the_wire() {
        let kinds: Vec<Kind> = one_of_each().iter().map(Failure::kind).collect();
        assert_eq!(kinds, Kind::all().collect::<Vec<_>>());
        for failure in one_of_each() {
            let kind = failure.kind();
            assert_eq!(Kind::of(&Status::from(failure)), kind);
        }
    }

    #[test]
    fn the_table_is_in_the_order_of_the_kinds() {
        for (i, row) in TABLE.iter().enumerate() {
            assert_eq!(row.0 as usize, i);
        }
    }

    #[test]
    fn a_full_queue_says_when_to_come_back() {
        let status = Status::from(one_of_each().swap_remove(2));
        let details = status.get_error_details();
        assert_eq!(details.retry_info().unwrap().retry_delay, Some(Duration::from_millis(250)));
    }

    #[test]
    fn a_status_fits_into_the_headers_of_any_client() {
        let long = "ä".repeat(100_000);
        for failure in [
            Failure::Invalid { field: "model", reason: long.clone() },
            Failure::NeverFits { limit: "context", have: 1, need: 2, remedy: long.clone() },
            Failure::Deadline(long),
        ] {
            let headers = Status::from(failure).into_http::<()>().headers().clone();
            let bytes: usize =
                headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum();
            assert!(bytes < 7 * 1024, "{bytes} bytes of headers");
        }
    }

    #[test]
    fn a_foreign_status_is_known_by_its_code() {
        assert_eq!(Kind::of(&Status::unavailable("connection refused")), Kind::Unavailable);
        assert_eq!(Kind::of(&Status::data_loss("?")), Kind::Bug);
    }

    #[test]
    fn a_connection_that_broke_is_unavailable_and_no_bug() {
        let broken = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert_eq!(Kind::of(&Status::from_error(Box::new(broken()))), Kind::Unavailable);
        let mut internal = Status::internal("h2 protocol error: error reading a body from connection");
        assert_eq!(Kind::of(&internal), Kind::Bug, "the server itself said so");
        internal.set_source(std::sync::Arc::new(broken()));
        assert_eq!(Kind::of(&internal), Kind::Unavailable);
        let mut ours = Status::from(Failure::Bug { id: "7".into() });
        ours.set_source(std::sync::Arc::new(broken()));
        assert_eq!(Kind::of(&ours), Kind::Bug, "our own word counts");
        let mut cancelled = Status::cancelled("operation was canceled");
        assert_eq!(Kind::of(&cancelled), Kind::Cancelled, "the server itself said so");
        cancelled.set_source(std::sync::Arc::new(broken()));
        assert_eq!(Kind::of(&cancelled), Kind::Unavailable);
    }
}
