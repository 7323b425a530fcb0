//! Statements that define functions: a worker parses them for the platform, which parses no SQL.
//!
//! The platform sends a [`Statement`] and receives a [`Definition`]. The code of a function is not
//! sent back: the worker says where in the statement it is.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::Signature;

/// A statement that may define a function.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Statement {
    /// The text of the statement.
    pub sql: String,
}

/// The function that a statement defines or removes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Definition {
    /// `CREATE FUNCTION`.
    Create(Box<CreateFunction>),
    /// `DROP FUNCTION`.
    Drop {
        /// The name of the function.
        name: String,
        /// Whether an unknown function is no error.
        if_exists: bool,
    },
    /// A statement that defines no function.
    Other,
}

/// A `CREATE FUNCTION` statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateFunction {
    /// The declared types, and the options.
    pub signature: Signature,
    /// Whether a function of the same name gets another version.
    pub or_replace: bool,
    /// The Python packages that the function needs, in pip's syntax.
    pub packages: Vec<String>,
    /// References to secrets, by the names that the code uses.
    #[serde(default)]
    pub secrets: BTreeMap<String, String>,
    /// The block image to run in. `None` for the platform's own files.
    pub image: Option<String>,
    /// The range of the statement's bytes that is the code.
    pub code: Range<usize>,
}
