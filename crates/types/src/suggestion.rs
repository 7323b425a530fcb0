//! "Did you mean": the known name that is most similar to an unknown one.

/// Returns the most similar of some names; `None` if none is similar enough.
pub fn nearest<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let unknown = unknown.to_lowercase();
    let score = |name: &str| strsim::jaro_winkler(&unknown, &name.to_lowercase());
    known
        .into_iter()
        .map(|name| (score(name), name))
        .filter(|(score, _)| *score > 0.75)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_is_matched_and_an_unrelated_name_is_not() {
        let known = ["l_quantity", "l_discount", "l_tax"];
        assert_eq!(nearest("l_quantty", known), Some("l_quantity"));
        assert_eq!(nearest("L_DISCONT", known), Some("l_discount"));
        assert_eq!(nearest("zebra", known), None);
    }
}
