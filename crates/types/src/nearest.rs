//! "Did you mean": the known name that is nearest to an unknown one.

/// The nearest of some names, unless none is near.
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
    fn finds_a_slip_and_not_a_stranger() {
        let known = ["l_quantity", "l_discount", "l_tax"];
        assert_eq!(nearest("l_quantty", known), Some("l_quantity"));
        assert_eq!(nearest("L_DISCONT", known), Some("l_discount"));
        assert_eq!(nearest("zebra", known), None);
    }
}
