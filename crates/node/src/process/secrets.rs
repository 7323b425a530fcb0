//! The values of the secrets of a function, on their way from where they are read to the instance
//! that gets them.
//!
//! Invariant: a value is in no text that this crate makes: `Debug` shows names only, and the output
//! of instances is [hidden](Secrets::hidden) before it is passed on. Values go to instances and,
//! over the connections of the cluster, to hosts that run these instances.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use snowmelt_types::{Digest, SandboxId};

/// The environment variable in which an instance finds its secrets, as JSON; the runtime takes it
/// out of the environment.
pub(crate) const VARIABLE: &str = "SNOWMELT_SECRET_VALUES";

/// The text that is shown instead of a value.
const HIDDEN: &str = "***";

/// The least length, in bytes, of values and lines of values that are hidden: shorter ones are
/// parts of many words.
const LEAST_HIDDEN: usize = 4;

/// The values of secrets by their names.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secrets(BTreeMap<String, String>);

/// A random part of fingerprints. It differs in each process, so that nobody finds a value by its
/// digest.
static SALT: LazyLock<Digest> = LazyLock::new(|| {
    // Each id has 74 random bits.
    Digest::of_parts((0..4).map(|_| SandboxId::new().as_str().to_owned()))
});

impl Secrets {
    /// Makes secrets of values by their names.
    pub fn new(values: BTreeMap<String, String>) -> Self {
        Self(values)
    }

    /// Returns whether there are no secrets.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a digest that tells instances with other values apart, within this process.
    pub fn fingerprint(&self) -> Digest {
        let values = self.0.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
        Digest::of_parts([SALT.as_str()].into_iter().chain(values))
    }

    /// Returns the variable that brings the secrets to an instance; `None` without any secrets.
    pub(crate) fn variable(&self) -> Option<(String, String)> {
        if self.0.is_empty() {
            return None;
        }
        let text = serde_json::to_string(&self.0).unwrap_or_default();
        Some((VARIABLE.to_owned(), text))
    }

    /// Returns a text without the values; if it `is_cut` at its end, also without the beginning of
    /// a value there.
    pub(crate) fn hidden(&self, text: String, is_cut: bool) -> String {
        let mut parts: Vec<&str> = self.0.values().flat_map(|value| parts(value)).collect();
        // A value may be a part of another one.
        parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
        let mut text = text;
        for part in &parts {
            if text.contains(part) {
                text = text.replace(part, HIDDEN);
            }
        }
        if is_cut && let Some(beginning) = parts.iter().filter_map(|part| begun(&text, part)).max()
        {
            text.truncate(text.len() - beginning);
            text.push_str(HIDDEN);
        }
        text
    }
}

/// Returns a value, and its lines if it has several, as far as they are long enough to be hidden.
fn parts(value: &str) -> impl Iterator<Item = &str> {
    let lines = value.lines().map(str::trim).filter(move |line| *line != value);
    std::iter::once(value).chain(lines).filter(|part| part.len() >= LEAST_HIDDEN)
}

/// Returns the number of bytes at the end of a text with which a value begins; `None` if it is too
/// few to be hidden.
fn begun(text: &str, value: &str) -> Option<usize> {
    let ends = value.char_indices().map(|(at, _)| at).filter(|at| *at >= LEAST_HIDDEN);
    ends.filter(|end| text.ends_with(&value[..*end])).max()
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(values: &[(&str, &str)]) -> Secrets {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Secrets::new(values.iter().map(owned).collect())
    }

    #[test]
    fn values_are_not_shown() {
        let one = secrets(&[("KEY", "very-secret")]);
        assert_eq!(format!("{one:?}"), "{\"KEY\"}");
        assert_eq!(one.hidden("key=very-secret.".to_owned(), false), "key=***.");
        assert!(!one.fingerprint().as_str().contains("very-secret"));
    }

    #[test]
    fn other_values_are_told_apart() {
        let one = secrets(&[("KEY", "a")]);
        assert_eq!(one.fingerprint(), secrets(&[("KEY", "a")]).fingerprint());
        assert_ne!(one.fingerprint(), secrets(&[("KEY", "b")]).fingerprint());
        assert_ne!(one.fingerprint(), secrets(&[("OTHER", "a")]).fingerprint());
    }

    #[test]
    fn values_of_several_lines_and_values_within_values_are_hidden() {
        let two = secrets(&[("A", "begin\nmiddle\nend"), ("B", "middle-of-it"), ("C", "x")]);
        let text = "middle-of-it begin\nmiddle\nend; middle, end, x".to_owned();
        assert_eq!(two.hidden(text, false), "*** ***; ***, end, x");
    }

    #[test]
    fn the_beginning_of_a_value_is_hidden_where_a_text_is_cut() {
        let one = secrets(&[("KEY", "very-secret-é")]);
        assert_eq!(one.hidden("it is very-sec".to_owned(), true), "it is ***");
        assert_eq!(one.hidden("it is very-sec".to_owned(), false), "it is very-sec");
        assert_eq!(one.hidden("it is ver".to_owned(), true), "it is ver");
    }
}
