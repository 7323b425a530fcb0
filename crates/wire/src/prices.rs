//! A user's own prices.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A file with prices. It is read by the driver, because it is untrusted input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceFile {
    /// Its name, for errors.
    pub file: String,
    /// Its content, which is TOML.
    pub text: String,
}
