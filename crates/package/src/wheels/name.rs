//! Names of distributions.

/// The normalised name of a distribution (PEP 503).
pub(crate) fn normalized(name: &str) -> String {
    let words = name.split(['-', '_', '.']).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}
