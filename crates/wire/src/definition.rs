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
    /// Its text.
    pub sql: String,
}

/// What a statement defines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Definition {
    /// `CREATE FUNCTION`.
    Create(Box<CreateFunction>),
    /// `DROP FUNCTION`.
    Drop {
        /// The function.
        name: String,
        /// Whether it is no error if there is no such function.
        if_exists: bool,
    },
    /// No function.
    Other,
}

/// A `CREATE FUNCTION` statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateFunction {
    /// The declared types, and the options.
    pub signature: Signature,
    /// Whether a function of the same name gets another version.
    pub or_replace: bool,
    /// Requirements in pip's syntax.
    pub packages: Vec<String>,
    /// Secrets by the names that the code uses, as references.
    #[serde(default)]
    pub secrets: BTreeMap<String, String>,
    /// The block image to run in.
    pub image: Option<String>,
    /// The bytes of the statement that are the code.
    pub code: Range<usize>,
}
