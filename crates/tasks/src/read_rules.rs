//! What the operator of a platform lets queries read.

use std::path::PathBuf;

use snowmelt_wire::HttpSource;

/// What queries may read.
#[derive(Debug)]
pub(crate) struct ReadRules {
    /// Not this folder.
    pub(crate) secrets: PathBuf,
    /// Files of these servers of HTTP.
    pub(crate) http: Vec<HttpSource>,
}
