//! Tests of settings, of times and of the files of orders. Orders of a real authority are in
//! `tests/e2e/test_acme.py`.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use snowmelt_rpc::tls::{Certificate, ProofOfName, Validity};
use tokio_util::sync::CancellationToken;

use super::folder::{AcmeFolder, KeptAccount, Plan};
use super::order::{OrderFailure, local};
use super::renewals::{due, pause};
use super::*;
use crate::access::certificates::in_ms;

const DIRECTORY: &str = "https://authority.example/directory";
const DAY: Duration = Duration::from_secs(24 * 3600);

fn settings(names: &[&str]) -> Result<AcmeSettings, ErrorReport> {
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    AcmeSettings::new(DIRECTORY, &names, &["admin@example.com".to_owned()], None)
}

fn renewals(names: &[&str]) -> Renewals {
    Renewals::new(settings(names).unwrap(), Certificate::awaited().unwrap()).unwrap()
}

#[test]
fn settings_are_checked() {
    let read = settings(&["b.example", "A.example", "b.example", "host"]).unwrap();
    assert_eq!(read.ordered.names, ["a.example", "b.example", "host"]);
    assert_eq!(read.contact, ["mailto:admin@example.com"]);
    for name in ["", "*.example", "10.0.0.1", "a..b", "a b", "a_b", "a.", &"a".repeat(64)] {
        let refused = settings(&[name]).unwrap_err();
        assert_eq!(refused.known_code(), Code::OPTION, "{name}");
    }
    settings(&[]).unwrap_err();
    let names = ["a.example".to_owned()];
    for url in ["http://a.example/", "a.example", "", "https://user:word@a.example/"] {
        let refused = AcmeSettings::new(url, &names, &[], None).unwrap_err();
        assert!(refused.message.contains("not an https:// address"), "{}", refused.message);
    }
    let wrong = AcmeSettings::new(DIRECTORY, &names, &[], Some(b"none".to_vec())).unwrap();
    let refused = Renewals::new(wrong, Certificate::awaited().unwrap()).unwrap_err();
    assert!(refused.message.contains("no PEM certificate"), "{}", refused.message);
}

#[test]
fn a_certificate_is_renewed_after_two_thirds_of_its_time() {
    let now = SystemTime::now();
    let from = |from: SystemTime| Validity { from, until: from + 90 * DAY };
    for _ in 0..100 {
        let next = due(from(now), now);
        assert!(next <= now + 60 * DAY && next > now + 58 * DAY, "{next:?}");
    }
    // Signed by a clock that is behind: not again and again.
    assert_eq!(due(from(now - 200 * DAY), now), now + 15 * DAY);
}

#[test]
fn pauses_grow_and_are_as_long_as_the_authority_asks() {
    let failure = |is_refusal, wait| OrderFailure { message: String::new(), is_refusal, wait };
    let unreached = failure(false, None);
    let within = |paused: Duration, s: u64| {
        let least = Duration::from_secs(s);
        assert!(paused >= least && paused <= least.mul_f64(1.25), "{paused:?} for {s} s");
    };
    for (failures, s) in [(0, 5), (1, 10), (3, 40), (20, 600), (u32::MAX, 600)] {
        within(pause(&unreached, failures), s);
    }
    for (failures, s) in [(0, 120), (1, 240), (9, 43_200)] {
        within(pause(&failure(true, None), failures), s);
    }
    assert_eq!(pause(&failure(true, Some(DAY)), 0), DAY);
    assert_eq!(pause(&failure(true, Some(30 * DAY)), 0), 7 * DAY);
    within(pause(&failure(false, Some(Duration::from_secs(1))), 0), 5);
}

#[test]
fn a_start_does_not_order_what_is_there_or_was_just_refused() {
    let now = SystemTime::now();
    let close = |next_ms: u64, expected: SystemTime| {
        assert!(next_ms.abs_diff(in_ms(expected)) < 2 * 24 * 3600 * 1000, "{next_ms}");
    };
    let orders = renewals(&["a.example"]);
    let plan = |names: &[&str], failures, next: SystemTime| {
        let ordered = settings(names).unwrap().ordered;
        Some(Plan { ordered, failures, next_ms: in_ms(next) })
    };
    // No certificate.
    assert_eq!(orders.first_plan(None, now).next_ms, in_ms(now));
    assert_eq!(orders.first_plan(plan(&["a.example"], 0, now + DAY), now).next_ms, in_ms(now));
    // Refused before: not at once, and not as late as without a start.
    let next = orders.first_plan(plan(&["a.example"], 3, now + DAY), now);
    assert_eq!((next.failures, next.next_ms), (3, in_ms(now + Duration::from_secs(900))));
    let soon = now + Duration::from_secs(10);
    let next = orders.first_plan(plan(&["a.example"], 3, soon), now);
    assert_eq!(next.next_ms, in_ms(soon));
    // Refused for other names.
    assert_eq!(orders.first_plan(plan(&["b.example"], 3, soon), now).next_ms, in_ms(now));

    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(["a.example".to_owned()]).unwrap();
    params.not_before = now.into();
    params.not_after = (now + 90 * DAY).into();
    let text = params.self_signed(&key).unwrap().pem();
    orders.shown().replace(text.as_bytes(), key.serialize_pem().as_bytes()).unwrap();
    close(orders.first_plan(plan(&["a.example"], 0, now + 59 * DAY), now).next_ms, now + 59 * DAY);
    // A time that another clock has left.
    close(orders.first_plan(plan(&["a.example"], 0, now + 900 * DAY), now).next_ms, now + 60 * DAY);
    // Other names than those of the certificate.
    assert_eq!(orders.first_plan(plan(&["b.example"], 0, now + DAY), now).next_ms, in_ms(now));
}

#[tokio::test]
async fn files_of_orders_are_private_and_shown_by_every_control() {
    let shared = tempfile::tempdir().unwrap();
    let folder = AcmeFolder::below(shared.path());
    folder.make().unwrap();
    let account = KeptAccount { contact: vec![], credentials: serde_json::json!({"key": 1}) };
    folder.keep_account(DIRECTORY, &account).unwrap();
    assert!(folder.account("https://other.example").is_none());
    let proof = ProofOfName { name: "a.example".to_owned(), digest: [7; 32] };
    folder.keep_proofs(std::slice::from_ref(&proof)).unwrap();
    assert_eq!(folder.proofs(), [proof]);
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(["a.example".to_owned()]).unwrap();
    let text = params.self_signed(&key).unwrap().pem();
    folder.keep_certificate(&text, &key.serialize_pem()).unwrap();

    let standby = renewals(&["a.example"]);
    let over = CancellationToken::new();
    over.cancel();
    standby.clone().follow(shared.path(), over).await;
    assert!(standby.shown().validity().is_some());

    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&shared.path().join("acme")), 0o700);
    let files: Vec<_> = std::fs::read_dir(shared.path().join("acme")).unwrap().collect();
    assert_eq!(files.len(), 3);
    files.into_iter().for_each(|file| assert_eq!(mode(&file.unwrap().path()), 0o600));
    folder.keep_proofs(&[]).unwrap();
    folder.keep_proofs(&[]).unwrap();
    assert!(folder.proofs().is_empty());
    folder.forget_account(DIRECTORY).unwrap();
    assert!(folder.account(DIRECTORY).is_none());
}

#[tokio::test]
async fn an_authority_that_is_not_there_is_tried_again() {
    let shared = tempfile::tempdir().unwrap();
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let names = ["a.example".to_owned()];
    let settings = AcmeSettings::new(&format!("https://{unused}/"), &names, &[], None).unwrap();
    let orders = Renewals::new(settings, Certificate::awaited().unwrap()).unwrap();
    let over = CancellationToken::new();
    let keeping = tokio::spawn({
        let orders = orders.clone();
        let over = over.clone();
        let path = shared.path().to_owned();
        async move { orders.keep(&path, false, over).await }
    });
    let failure = loop {
        match orders.status().failure {
            Some(failure) => break failure,
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    assert_eq!(failure.known_code(), Code::CERTIFICATE_ORDER);
    assert!(failure.message.contains("refused"), "{}", failure.message);
    over.cancel();
    keeping.await.unwrap();
    let status = orders.status();
    assert!(status.order_ms.unwrap() > in_ms(SystemTime::now()), "{status:?}");
    assert_eq!(AcmeFolder::below(shared.path()).plan().unwrap().failures, 1);
    assert!(!local("this side").is_refusal);
}
