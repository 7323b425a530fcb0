//! Identifiers. Identifiers that Snowmelt generates sort by creation time (UUIDv7).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

macro_rules! generated_identifier {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// A new, globally unique identifier.
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

generated_identifier!(
    /// The identifier of a query, from the command line to its answer.
    QueryId, "q"
);
generated_identifier!(
    /// The identifier of a call of a function.
    InvocationId, "i"
);
generated_identifier!(
    /// The identifier of a burst of a function over hosts, from its placement to the last answer.
    JobId, "j"
);
generated_identifier!(
    /// The identifier of a sandbox, from its first mount to its last.
    SandboxId, "s"
);

/// The owner of code: state of one tenant's code is never shared with another tenant. 1 to 64 of
/// `a-z A-Z 0-9 _ -`, beginning with a letter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Tenant(String);

impl Tenant {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Tenant {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

/// The name of a deployed function: 1 to 64 of `a-z A-Z 0-9 _ -`, beginning with a letter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
pub struct FunctionName(String);

impl FunctionName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name of a host: 1 to 64 of `a-z A-Z 0-9 _ -`, beginning with a letter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
pub struct HostName(String);

impl HostName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! chosen_name {
    ($name:ident, $what:literal) => {
        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                if is_name(text) {
                    return Ok(Self(text.to_owned()));
                }
                Err(format!(
                    "`{text}` is not {} name: use 1 to 64 letters, digits, `_` or `-`, beginning with a letter",
                    $what
                ))
            }
        }

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

chosen_name!(Tenant, "a tenant");
chosen_name!(FunctionName, "a function");
chosen_name!(HostName, "a host");

fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let begins_with_letter = text.starts_with(|c: char| c.is_ascii_alphabetic());
    begins_with_letter && text.len() <= 64 && text.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_identifiers_differ_and_sort_by_time() {
        let first = QueryId::new();
        let second = QueryId::new();
        assert!(first < second);
        assert!(first.as_str().starts_with("q-"));
    }

    #[test]
    fn the_rule_for_function_names_is_documented_verbatim() {
        let message = "My Function".parse::<FunctionName>().unwrap_err();
        assert!(include_str!("../../../docs/reference/errors.md").contains(&message), "{message}");
    }

    #[test]
    fn function_names_are_safe_as_folder_names() {
        for bad in ["", "../etc", "a/b", "1a", "a b", &"a".repeat(65)] {
            assert!(bad.parse::<FunctionName>().is_err(), "{bad}");
        }
        assert!("resize-image_2".parse::<FunctionName>().is_ok());
    }
}
