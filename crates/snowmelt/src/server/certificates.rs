//! The certificate that the running server shows to clients on other hosts, for `snowmelt status` and
//! `snowmelt doctor`.

use snowmelt_api::CertificateStatus;
use snowmelt_node::doctor::{Check, CheckStatus};

use crate::terminal::text;

const DAY_MS: u64 = 24 * 3600 * 1000;
/// A certificate of files that lasts for less than this is to be renewed by now.
const SOON_MS: u64 = 14 * DAY_MS;

/// The state of the certificate.
pub fn words(status: &CertificateStatus) -> String {
    words_at(status, text::now_ms())
}

/// A row of `snowmelt doctor` about the certificate.
pub fn check(status: &CertificateStatus) -> Check {
    let now_ms = text::now_ms();
    let is_ordered = status.directory.is_some();
    let mend = match (is_ordered, &status.failure) {
        (false, _) => "renew the files of tls.cert and tls.key".to_owned(),
        (true, Some(failure)) => failure.hint.clone().unwrap_or_else(|| {
            "check tls.acme_directory, and that this machine reaches it".to_owned()
        }),
        (true, None) => "wait a moment and check again".to_owned(),
    };
    let found = health(status, now_ms);
    Check {
        name: "certificate for other hosts".to_owned(),
        status: found,
        found: words_at(status, now_ms),
        needed: "a certificate that lasts, and is renewed".to_owned(),
        mend: (found != CheckStatus::Ok).then_some(mend),
    }
}

fn health(status: &CertificateStatus, now_ms: u64) -> CheckStatus {
    let Some(expires_ms) = status.expires_ms.filter(|ends| *ends > now_ms) else {
        // The first order of a server that has just started.
        let is_waiting = status.expires_ms.is_none() && status.failure.is_none();
        return if is_waiting { CheckStatus::Warn } else { CheckStatus::Fail };
    };
    let is_late = status.directory.is_none() && expires_ms - now_ms < SOON_MS;
    match status.failure.is_some() || is_late {
        true => CheckStatus::Warn,
        false => CheckStatus::Ok,
    }
}

fn words_at(status: &CertificateStatus, now_ms: u64) -> String {
    let mut said = match status.expires_ms {
        None => "there is none yet, so no client on another host is served".to_owned(),
        Some(expires_ms) if expires_ms <= now_ms => "it has expired".to_owned(),
        Some(expires_ms) => match (expires_ms - now_ms) / DAY_MS {
            0 => "it lasts for less than a day".to_owned(),
            days => format!("it lasts for {}", text::counted(days, "day")),
        },
    };
    if let Some(failure) = &status.failure {
        said += &format!("; {}: {}", failure.code, failure.message);
    }
    if let Some(order_ms) = status.order_ms.filter(|_| status.directory.is_some()) {
        said += &match order_ms.saturating_sub(now_ms) {
            0 => "; one is being ordered".to_owned(),
            left if left < DAY_MS => format!("; the next is ordered in {} s", left.div_ceil(1000)),
            left => format!("; the next is ordered in {}", text::counted(left / DAY_MS, "day")),
        };
    }
    said
}

#[cfg(test)]
mod tests {
    use snowmelt_types::{Code, ErrorReport};

    use super::*;

    #[test]
    fn a_certificate_that_ends_or_is_not_renewed_shows() {
        let now = 100 * DAY_MS;
        let of_files = |expires_ms| CertificateStatus { expires_ms, ..Default::default() };
        let ordered = |expires_ms, failure| CertificateStatus {
            expires_ms,
            failure,
            directory: Some("https://authority.example/".to_owned()),
            order_ms: Some(now + 5_000),
        };
        let failure = || Some(ErrorReport::new(Code::CERTIFICATE_ORDER, "no answer"));
        for (status, expected, said) in [
            (of_files(Some(now + 40 * DAY_MS)), CheckStatus::Ok, "it lasts for 40 days"),
            (of_files(Some(now + 3 * DAY_MS)), CheckStatus::Warn, "it lasts for 3 days"),
            (of_files(Some(now - 1)), CheckStatus::Fail, "it has expired"),
            (
                ordered(Some(now + 1), None),
                CheckStatus::Ok,
                "it lasts for less than a day; the next is ordered in 5 s",
            ),
            (
                ordered(Some(now + 40 * DAY_MS), failure()),
                CheckStatus::Warn,
                "it lasts for 40 days; SM-0534: no answer; the next is ordered in 5 s",
            ),
            (
                ordered(None, None),
                CheckStatus::Warn,
                "there is none yet, so no client on another host is served; the next is ordered in 5 s",
            ),
            (
                ordered(None, failure()),
                CheckStatus::Fail,
                "there is none yet, so no client on another host is served; SM-0534: no answer; the next is ordered in 5 s",
            ),
        ] {
            assert_eq!(health(&status, now), expected, "{status:?}");
            assert_eq!(words_at(&status, now), said);
        }
    }
}
