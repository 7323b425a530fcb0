//! The client that a login asks its issuer with.

use snowmelt_types::{Code, ErrorReport};

use super::contexts::ContextLogin;
use crate::access::oidc::documents::IssuerHttp;

/// Makes the error of an issuer that does not answer as it should.
pub(super) fn unanswered(problem: String) -> ErrorReport {
    ErrorReport::new(Code::ISSUER, problem)
}

/// Makes the client for the issuer of a login.
pub(super) fn http(login: &ContextLogin) -> Result<IssuerHttp, ErrorReport> {
    let wrong = |problem: String| ErrorReport::new(Code::OPTION, problem);
    let authorities = login.ca.as_ref().map(|file| {
        std::fs::read(file).map_err(|error| wrong(format!("{}: {error}", file.display())))
    });
    IssuerHttp::new(authorities.transpose()?.as_deref())
        .map_err(|problem| wrong(format!("the certificates for the issuer: {problem}")))
}
