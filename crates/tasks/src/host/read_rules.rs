//! The rules of the operator about what queries may read.

use std::path::PathBuf;

use snowmelt_wire::HttpSource;

/// The rules about what queries may read.
#[derive(Debug)]
pub(crate) struct ReadRules {
    /// The folder of secrets, whose files no query may read.
    pub(crate) secrets: PathBuf,
    /// The HTTP servers whose files queries may read.
    pub(crate) http: Vec<HttpSource>,
}
