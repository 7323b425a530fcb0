//! Error reports for failures of S3, which name the wrong variable instead of the server's XML.

use object_store::Error;
use snowmelt_types::{Code, ErrorReport};

/// The server's error codes, with a message that names the variable.
const REFUSALS: [(&str, &str); 9] = [
    ("InvalidAccessKeyId", "the key in AWS_ACCESS_KEY_ID does not exist"),
    (
        "SignatureDoesNotMatch",
        "AWS_SECRET_ACCESS_KEY does not belong to the key in AWS_ACCESS_KEY_ID",
    ),
    ("InvalidToken", "AWS_SESSION_TOKEN is not valid"),
    ("ExpiredToken", "AWS_SESSION_TOKEN has expired"),
    ("TokenRefreshRequired", "AWS_SESSION_TOKEN has expired"),
    ("RequestTimeTooSkewed", "this machine's clock differs too much from that of S3"),
    ("AuthorizationHeaderMalformed", REGION),
    ("PermanentRedirect", REGION),
    ("IllegalLocationConstraintException", REGION),
];

const REGION: &str = "AWS_REGION is not the region of the bucket";

/// The report of a failure to read something, named by `what`. `anonymous` if no keys were set.
pub(crate) fn report(error: &Error, what: &str, anonymous: bool) -> ErrorReport {
    report_of(error, what, anonymous, "read", "read")
}

/// The report of a failure to write something.
pub(crate) fn report_write(error: &Error, what: &str, anonymous: bool) -> ErrorReport {
    report_of(error, what, anonymous, "written", "write")
}

/// Makes the report of a failure. `done` and `permission` name the action that was tried.
fn report_of(
    error: &Error,
    what: &str,
    anonymous: bool,
    done: &str,
    permission: &str,
) -> ErrorReport {
    if let Some(report) = super::http::report(error, what) {
        return report;
    }
    let text = error.to_string();
    let new = |code, why: &str| {
        ErrorReport::new(code, format!("{what} cannot be {done}: {why}"))
            .excerpt(server_message(&text))
    };
    if let Some((_, why)) = REFUSALS.iter().find(|(code, _)| code_of(&text) == Some(*code)) {
        let region = part(&text, "<Region>", "</Region>").filter(|_| *why == REGION);
        let why = match region {
            Some(region) => format!("{why}, which is {region}"),
            None => (*why).to_owned(),
        };
        return new(Code::S3_SETTING, &why);
    }
    if code_of(&text) == Some("NoSuchBucket") {
        return new(Code::TABLE_MISSING, "the bucket does not exist");
    }
    if text.contains("redirect without LOCATION") || text.contains("301 Moved Permanently") {
        return new(Code::S3_SETTING, REGION);
    }
    if refused(error, &text) {
        return match anonymous {
            true => new(
                Code::S3_SETTING,
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, and the bucket is not public",
            ),
            false => new(
                Code::S3_SETTING,
                &format!("the key in AWS_ACCESS_KEY_ID has no {permission} permission"),
            ),
        };
    }
    if throttled(error) {
        return new(Code::STORAGE, "S3 was too busy until the retries ended")
            .hint("try again later, or with fewer --workers");
    }
    if text.contains("HTTP error: ") {
        return new(Code::STORAGE, "the store does not respond")
            .hint("check AWS_ENDPOINT_URL, or AWS_REGION if it is not set");
    }
    new(Code::STORAGE, &first_line(&text))
}

/// True if the server requests a later retry.
pub(crate) fn throttled(error: &Error) -> bool {
    let text = error.to_string();
    ["status code: 503", "status code: 429", "<Code>SlowDown</Code>"]
        .iter()
        .any(|sign| text.contains(sign))
}

fn refused(error: &Error, text: &str) -> bool {
    matches!(error, Error::PermissionDenied { .. } | Error::Unauthenticated { .. })
        || ["status code: 403", "status code: 401"].iter().any(|sign| text.contains(sign))
}

fn code_of(text: &str) -> Option<&str> {
    part(text, "<Code>", "</Code>")
}

/// The server's own message, which may have more details.
fn server_message(text: &str) -> Option<String> {
    let message = part(text, "<Message>", "</Message>")?;
    Some(first_line(message)).filter(|line| !line.is_empty())
}

fn part<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(part, _)| part)
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(status: &str, body: &str) -> Error {
        let text =
            format!("Error performing GET - Server returned non-2xx status code: {status}: {body}");
        Error::Generic { store: "S3", source: text.into() }
    }

    #[test]
    fn the_wrong_variable_is_named() {
        for (status, body, code, word) in [
            (
                "403 Forbidden",
                "<Code>InvalidAccessKeyId</Code><Message>m</Message>",
                "SM-0117",
                "AWS_ACCESS_KEY_ID",
            ),
            (
                "403 Forbidden",
                "<Code>SignatureDoesNotMatch</Code>",
                "SM-0117",
                "AWS_SECRET_ACCESS_KEY",
            ),
            (
                "400 Bad Request",
                "<Code>AuthorizationHeaderMalformed</Code><Region>eu-west-3</Region>",
                "SM-0117",
                "which is eu-west-3",
            ),
            (
                "403 Forbidden",
                "<Code>AccessDenied</Code>",
                "SM-0117",
                "AWS_SECRET_ACCESS_KEY are not set",
            ),
            ("404 Not Found", "<Code>NoSuchBucket</Code>", "SM-0105", "bucket does not exist"),
            ("503 Slow Down", "<Code>SlowDown</Code>", "SM-0108", "too busy"),
        ] {
            let report = report(&error(status, body), "`s3://b/k`", true).to_string();
            assert!(report.contains(code) && report.contains(word), "{report}");
            assert!(!report.contains('<'), "{report}");
        }
    }

    #[test]
    fn with_keys_a_refusal_is_about_permissions() {
        let report = report(&error("403 Forbidden", ""), "`s3://b/k`", false).to_string();
        assert!(report.contains("has no read permission"), "{report}");
        let report = report_write(&error("403 Forbidden", ""), "`s3://b/k`", false).to_string();
        assert!(report.contains("cannot be written") && report.contains("no write permission"));
    }
}
