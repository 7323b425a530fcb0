//! The header of a request that names its tenant.

use axum::http::HeaderMap;
use snowmelt_api::TENANT_HEADER;
use snowmelt_types::{Code, ErrorReport, Tenant};

/// Returns the tenant that the header names.
pub(crate) fn named(headers: &HeaderMap) -> Result<Option<Tenant>, ErrorReport> {
    let mut values = headers.get_all(TENANT_HEADER).iter();
    let wrong = |why: &str| ErrorReport::new(Code::OPTION, format!("`{TENANT_HEADER}`: {why}"));
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(wrong("a request is for one tenant")),
        (Some(value), None) => {
            let text = value.to_str().map_err(|_| wrong("the name is not text"))?;
            text.parse().map(Some).map_err(|why: String| wrong(&why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_contains_one_valid_name() {
        let mut headers = HeaderMap::new();
        assert_eq!(named(&headers).unwrap(), None);
        headers.insert(TENANT_HEADER, "acme".parse().unwrap());
        assert_eq!(named(&headers).unwrap(), Some("acme".parse().unwrap()));
        headers.append(TENANT_HEADER, "other".parse().unwrap());
        assert!(named(&headers).is_err());
        headers.insert(TENANT_HEADER, "../acme".parse().unwrap());
        assert!(named(&headers).is_err());
    }
}
