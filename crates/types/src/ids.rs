//! Identifiers. Those made by Snowmelt sort by the time at which they were made (UUIDv7).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! made_identifier {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// A fresh identifier, unique on every machine.
            #[allow(clippy::new_without_default)]
            pub fn new() -> Self {
                Self(format!(concat!($prefix, "-{}"), uuid::Uuid::now_v7().simple()))
            }

            /// The identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

made_identifier!(
    /// One query, from the command line to its answer.
    QueryId, "q"
);
made_identifier!(
    /// One call of a function.
    InvocationId, "i"
);
made_identifier!(
    /// One sandbox, from its first mount to its last.
    SandboxId, "s"
);

/// The name of a deployed function: 1 to 64 of `a-z A-Z 0-9 _ -`, beginning with a letter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FunctionName(String);

impl FunctionName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FunctionName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let begins_with_letter = text.starts_with(|c: char| c.is_ascii_alphabetic());
        if begins_with_letter && text.len() <= 64 && text.chars().all(allowed) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "`{text}` is not a function name: use 1 to 64 letters, digits, `_` or `-`, beginning with a letter"
        ))
    }
}

impl TryFrom<String> for FunctionName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<FunctionName> for String {
    fn from(name: FunctionName) -> Self {
        name.0
    }
}

impl fmt::Display for FunctionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_identifiers_differ_and_sort_by_time() {
        let (first, second) = (QueryId::new(), QueryId::new());
        assert!(first < second);
        assert!(first.as_str().starts_with("q-"));
    }

    #[test]
    fn function_names_cannot_leave_a_folder() {
        for bad in ["", "../etc", "a/b", "1a", "a b", &"a".repeat(65)] {
            assert!(bad.parse::<FunctionName>().is_err(), "{bad}");
        }
        assert!("resize-image_2".parse::<FunctionName>().is_ok());
    }
}
