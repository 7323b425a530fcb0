//! Tests of TLS, and of a user with a password.

use std::time::Duration;

use super::server::{Certificates, EtcdProcess};
use crate::etcd::{Etcd, EtcdSettings};
use crate::{Error, Expect, Since, Store};

fn server(certificates: &Certificates) -> EtcdProcess {
    let [certificate, key, ca] =
        ["cert.pem", "key.pem", "ca.pem"].map(|name| certificates.text(name));
    EtcdProcess::with(
        "https",
        &[
            "--cert-file",
            &certificate,
            "--key-file",
            &key,
            "--trusted-ca-file",
            &ca,
            "--client-cert-auth",
        ],
    )
}

fn settings(server: &EtcdProcess, certificates: &Certificates) -> EtcdSettings {
    let location = format!("etcds://{}/test", server.address());
    EtcdSettings {
        ca: Some(certificates.path("ca.pem")),
        certificate: Some(certificates.path("cert.pem")),
        key: Some(certificates.path("key.pem")),
        timeout: Duration::from_secs(1),
        ..EtcdSettings::parse(&location).unwrap()
    }
}

#[tokio::test]
async fn a_connection_needs_the_certificates_of_both_sides() {
    let certificates = Certificates::make();
    let server = server(&certificates);
    let right = settings(&server, &certificates);
    let patient = EtcdSettings { timeout: Duration::from_secs(20), ..right.clone() };
    Etcd::new(patient).unwrap().put("k", "1".into(), Expect::Absent).await.unwrap();
    let strange = Certificates::make();
    let wrong = [
        EtcdSettings { ca: Some(strange.path("ca.pem")), ..right.clone() },
        EtcdSettings { certificate: None, key: None, ..right.clone() },
        EtcdSettings { tls: false, ca: None, certificate: None, key: None, ..right.clone() },
    ];
    for settings in wrong {
        let refused = Etcd::new(settings).unwrap().get("k").await.unwrap_err();
        assert!(matches!(refused, Error::Unreachable { .. }), "{refused}");
    }
    let missing = EtcdSettings { ca: Some("/absent.pem".into()), ..right };
    let missing = Etcd::new(missing).unwrap_err();
    assert!(missing.to_string().contains("/absent.pem cannot be read"), "{missing}");
}

#[tokio::test]
async fn a_user_logs_in_again_when_its_token_is_forgotten() {
    let mut server = EtcdProcess::start();
    server.ctl(&["user", "add", "root:secret"]);
    server.ctl(&["user", "add", "snowmelt:right"]);
    server.ctl(&["role", "add", "platform"]);
    server.ctl(&["role", "grant-permission", "platform", "--prefix=true", "readwrite", "test/"]);
    server.ctl(&["user", "grant-role", "snowmelt", "platform"]);
    server.ctl(&["auth", "enable"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "right\n").unwrap();
    let right = EtcdSettings {
        user: Some("snowmelt".to_owned()),
        password_file: Some(file.clone()),
        ..server.settings()
    };
    let store = Etcd::new(right.clone()).unwrap();
    let version = store.put("k", "1".into(), Expect::Absent).await.unwrap();
    let mut watch = store.watch("", Since::Now).await.unwrap();

    let elsewhere = EtcdSettings { prefix: "other".to_owned(), ..right.clone() };
    let refused = Etcd::new(elsewhere).unwrap().get("k").await.unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    let refused = server.store().get("k").await.unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    std::fs::write(&file, "wrong").unwrap();
    let refused = Etcd::new(right.clone()).unwrap().get("k").await.unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    std::fs::write(&file, "right").unwrap();

    // Another user changes the revision of the users; tokens are in memory.
    server.ctl(&["--user=root:secret", "user", "add", "late:late"]);
    let version = store.put("k", "2".into(), Expect::Version(version)).await.unwrap();
    server.kill();
    server.start_again();
    store.put("k", "3".into(), Expect::Version(version)).await.unwrap();
    for _ in 0..2 {
        let event = futures::StreamExt::next(&mut watch).await.unwrap().unwrap();
        assert_eq!(event.key, "k");
    }
}
