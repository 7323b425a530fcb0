//! Rights, the roles that have them, and patterns of names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::nearest;

/// A right, of which a route of the API needs one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// To see names, signatures, and answers whose identifier is known.
    Look,
    /// To call functions.
    Call,
    /// To read logs, metrics and history.
    Read,
    /// To bring code: deploy, register, query, burst, and remove what is the tenant's own.
    Develop,
    /// To make, show and revoke keys of the own tenant.
    Administer,
    /// To manage the platform for all tenants.
    Operate,
}

/// A set of rights, which a key or a user of the socket has.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Sees names and reads logs and metrics.
    Reader,
    /// Sees names and calls functions.
    Caller,
    /// Does everything with code of its tenant.
    Developer,
    /// A developer who manages the keys of the tenant as well.
    Administrator,
    /// Does everything, for every tenant.
    Operator,
}

impl Right {
    /// All rights.
    pub const ALL: [Self; 6] =
        [Self::Look, Self::Call, Self::Read, Self::Develop, Self::Administer, Self::Operate];

    /// The name of the right.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Call => "call",
            Self::Read => "read",
            Self::Develop => "develop",
            Self::Administer => "administer",
            Self::Operate => "operate",
        }
    }
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 5] =
        [Self::Reader, Self::Caller, Self::Developer, Self::Administrator, Self::Operator];

    /// Whether the role has a right.
    pub fn has(self, right: Right) -> bool {
        match right {
            Right::Look => true,
            Right::Call => self != Self::Reader,
            Right::Read => self != Self::Caller,
            Right::Develop => self >= Self::Developer,
            Right::Administer => self >= Self::Administrator,
            Right::Operate => self == Self::Operator,
        }
    }

    /// Whether the role has all rights of another one.
    pub fn includes(self, other: Self) -> bool {
        Right::ALL.into_iter().all(|right| !other.has(right) || self.has(right))
    }

    /// The name of the role.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Caller => "caller",
            Self::Developer => "developer",
            Self::Administrator => "administrator",
            Self::Operator => "operator",
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str);
            let meant = nearest(text, names.iter().copied());
            let meant = meant.map(|name| format!(", did you mean `{name}`?")).unwrap_or_default();
            format!("`{text}` is not a role{meant}: use {}", names.join(", "))
        })
    }
}

/// A pattern of names of functions, in which `*` stands for any text, also none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
pub struct NamePattern(String);

impl NamePattern {
    /// The pattern as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a name fits the pattern.
    pub fn matches(&self, name: &str) -> bool {
        fits(self.0.as_bytes(), name.as_bytes())
    }

    /// Whether a name fits the pattern if upper and lower case are the same, as in SQL.
    pub fn matches_any_case(&self, name: &str) -> bool {
        fits(self.0.to_ascii_lowercase().as_bytes(), name.to_ascii_lowercase().as_bytes())
    }

    /// Whether every name that fits another pattern fits this one.
    pub fn includes(&self, other: &Self) -> bool {
        // A `*` of the other is a character that only a `*` of this one stands for.
        self.matches(&other.0)
    }
}

/// Compares from left to right, and where it fails goes back to the last `*` only: the time is
/// bounded by the product of the lengths.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let mut at = 0;
    let mut seen = 0;
    let mut back: Option<(usize, usize)> = None;
    while seen < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                back = Some((at + 1, seen));
                at += 1;
            }
            Some(byte) if *byte == name[seen] => {
                at += 1;
                seen += 1;
            }
            _ => {
                let Some((after, from)) = back else { return false };
                back = Some((after, from + 1));
                at = after;
                seen = from + 1;
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

impl FromStr for NamePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_-*".contains(c);
        if (1..=64).contains(&text.len()) && text.chars().all(allowed) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "`{text}` is not a pattern of names: use 1 to 64 letters, digits, `_`, `-` or `*`"
        ))
    }
}

impl TryFrom<String> for NamePattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<NamePattern> for String {
    fn from(pattern: NamePattern) -> Self {
        pattern.0
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_have_their_rights() {
        use Right::{Administer, Call, Develop, Look, Operate, Read};
        let rights = |role: Role| -> Vec<_> {
            Right::ALL.into_iter().filter(|right| role.has(*right)).collect()
        };
        assert_eq!(rights(Role::Reader), [Look, Read]);
        assert_eq!(rights(Role::Caller), [Look, Call]);
        assert_eq!(rights(Role::Developer), [Look, Call, Read, Develop]);
        assert_eq!(rights(Role::Administrator), [Look, Call, Read, Develop, Administer]);
        assert_eq!(rights(Role::Operator), [Look, Call, Read, Develop, Administer, Operate]);
    }

    #[test]
    fn a_role_includes_those_with_fewer_rights() {
        assert!(Role::Developer.includes(Role::Reader) && Role::Developer.includes(Role::Caller));
        assert!(!Role::Reader.includes(Role::Caller) && !Role::Caller.includes(Role::Reader));
        assert!(!Role::Administrator.includes(Role::Operator));
        assert!(Role::ALL.into_iter().all(|role| Role::Operator.includes(role)));
    }

    #[test]
    fn roles_are_read_as_they_are_written() {
        for role in Role::ALL {
            assert_eq!(role.to_string().parse(), Ok(role));
            assert_eq!(serde_json::to_value(role).unwrap(), role.as_str());
        }
        let wrong = "develper".parse::<Role>().unwrap_err();
        assert!(wrong.contains("did you mean `developer`?"), "{wrong}");
    }

    fn pattern(text: &str) -> NamePattern {
        text.parse().unwrap()
    }

    #[test]
    fn a_pattern_fits_names() {
        for (text, fits, others) in [
            ("score", &["score"][..], &["scores", "Score", "a-score", ""][..]),
            ("score-*", &["score-", "score-a"], &["score", "xscore-a"]),
            ("*-v*-eu", &["a-v1-eu", "a-v1-eu-v2-eu"], &["a-v1-us", "-v-e"]),
            ("*", &["a", ""], &[]),
            ("a**b", &["ab", "axb"], &["a", "b"]),
        ] {
            for name in fits {
                assert!(pattern(text).matches(name), "{text} {name}");
            }
            for name in others {
                assert!(!pattern(text).matches(name), "{text} {name}");
            }
        }
        assert!(pattern("Score*").matches_any_case("sCORE1"));
        let long = pattern(&"*a".repeat(32));
        assert!(!long.matches(&"a".repeat(31)) && long.matches(&"a".repeat(64)));
    }

    #[test]
    fn a_pattern_includes_narrower_ones() {
        assert!(pattern("*").includes(&pattern("a-*")));
        assert!(
            pattern("a-*").includes(&pattern("a-b*c")) && pattern("a-*").includes(&pattern("a-b"))
        );
        for (wide, narrow) in [("a-*", "*"), ("a-*", "a*"), ("a-b", "a-*"), ("a*b", "a*")] {
            assert!(!pattern(wide).includes(&pattern(narrow)), "{wide} {narrow}");
        }
    }

    #[test]
    fn patterns_have_characters_of_names_only() {
        for wrong in ["", "a b", "a/b", "é", "a?", &"a".repeat(65)] {
            assert!(wrong.parse::<NamePattern>().is_err(), "{wrong}");
        }
    }
}
