//! A user's own prices.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A file with prices. The driver reads it, because it is untrusted input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceFile {
    /// The name of the file, for errors.
    pub file: String,
    /// The content of the file, which is TOML.
    pub text: String,
}
