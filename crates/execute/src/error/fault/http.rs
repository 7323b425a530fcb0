//! Why a file cannot be read from a server of HTTP.

use object_store::Error;
use snowmelt_types::{Code, ErrorReport};

use super::changed;

/// The setting that has the operator's list of servers, for messages.
const SETTING: &str = "server.http_sources";
const FILE: &str = "/etc/snowmelt/config.toml";

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HttpFault {
    /// The server is not on the operator's list.
    #[error("{from}{server} is not a server that the operator of the platform allows")]
    NotListed {
        /// The address of the server.
        server: String,
        /// Words for the server that refers to this one, or an empty text.
        from: String,
    },
    /// The name leads to an address that only a list which names it can allow.
    #[error(
        "{host} has the address {address}, which is one of this machine, a link-local or a reserved one"
    )]
    Inside { host: String, address: String },
    #[error("the server refers to other addresses again and again")]
    ManyRedirects,
    #[error("the server refers to another address, and does not say which")]
    Redirect,
    /// An answer that no repetition changes.
    #[error("the server refuses it: status code: {0}")]
    Refused(u16),
    #[error("the file does not exist there: status code: {0}")]
    Missing(u16),
    /// An answer that may be another one later.
    #[error("the server failed: status code: {0}")]
    Failed(u16),
    #[error("the file has changed")]
    Changed,
    #[error("{0}")]
    Answer(String),
    /// No whole answer came.
    #[error("{0}")]
    Connection(String),
}

impl HttpFault {
    /// True if the same request may be answered.
    pub(crate) fn is_transient(&self) -> bool {
        // A busy server (429, 503) is asked again for longer by the callers of stores.
        matches!(self, Self::Connection(_) | Self::Failed(500 | 502 | 504))
    }

    /// Converts the fault into an error of a store.
    pub(crate) fn of_file(self, path: &str) -> Error {
        let path = path.to_owned();
        match self {
            Self::Missing(_) => Error::NotFound { path, source: Box::new(self) },
            Self::Changed => Error::Precondition { path, source: Box::new(self) },
            other => Error::Generic { store: "HTTP", source: Box::new(other) },
        }
    }
}

/// The report of an error of a server of HTTP about something, named by `what`; `None` for errors of
/// other stores.
pub(crate) fn report(error: &Error, what: &str) -> Option<ErrorReport> {
    let (Error::Generic { source, .. }
    | Error::NotFound { source, .. }
    | Error::Precondition { source, .. }) = error
    else {
        return None;
    };
    let fault = source.downcast_ref::<HttpFault>()?;
    let new = |code| ErrorReport::new(code, format!("{what} cannot be read: {fault}"));
    Some(match fault {
        HttpFault::NotListed { .. } => new(Code::HTTP_SOURCE).hint(format!(
            "the operator lists servers of files in {SETTING} of {FILE}, and starts the server again"
        )),
        HttpFault::Inside { .. } => new(Code::HTTP_SOURCE).hint(format!(
            "if queries shall read from there, the operator lists the address itself in {SETTING} of {FILE}"
        )),
        HttpFault::Missing(_) => {
            ErrorReport::new(Code::TABLE_MISSING, format!("{what} does not exist"))
                .hint("check the URL; nothing is listed over HTTP, so it names one file")
        }
        HttpFault::Changed => changed(what.trim_matches('`')),
        HttpFault::Refused(_) => new(Code::STORAGE)
            .hint("requests are sent without credentials: use a file that anybody may read"),
        HttpFault::Failed(429 | 503) => new(Code::STORAGE)
            .hint("the server is too busy: try again later, or with fewer --workers"),
        HttpFault::Answer(_) => new(Code::STORAGE)
            .hint("download the file, or put it on a server that answers requests for ranges"),
        HttpFault::ManyRedirects | HttpFault::Redirect | HttpFault::Failed(_) => {
            new(Code::STORAGE).hint("look whether the server can be read with other programs")
        }
        HttpFault::Connection(_) => new(Code::STORAGE)
            .hint("look whether the server runs, and can be reached from the platform's machines"),
    })
}
