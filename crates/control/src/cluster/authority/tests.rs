//! Tests of the authority: who gets a certificate, and who gets none.

use snowmelt_rpc::Meant;
use snowmelt_rpc::membership::authority::HostKey;

use super::*;
use crate::platform::rig::{IdlePlatform, idle_platform};

const LIFE: Duration = Duration::from_secs(3600);

struct Cluster {
    authority: ClusterAuthority,
    idle: IdlePlatform,
    state: tempfile::TempDir,
}

async fn cluster() -> Cluster {
    let idle = idle_platform().await;
    let state = tempfile::tempdir().unwrap();
    let authority = opened(&state, &idle).await;
    Cluster { authority, idle, state }
}

async fn opened(state: &tempfile::TempDir, idle: &IdlePlatform) -> ClusterAuthority {
    let records = idle.records.clone();
    ClusterAuthority::open(state.path(), name("one"), LIFE, records).await.unwrap()
}

fn name(name: &str) -> HostName {
    name.parse().unwrap()
}

fn ask(token: &str, host: &str) -> JoinAsk {
    let request = HostKey::make().unwrap().request().unwrap();
    JoinAsk { token: token.to_owned(), name: name(host), request }
}

impl Cluster {
    async fn token(&self, only: Option<&str>, ttl_ms: Option<u64>) -> String {
        let ask = JoinTokenRequest { name: only.map(name), ttl_ms };
        self.authority.make_token(ask).await.unwrap().token
    }

    async fn refused(&self, ask: &JoinAsk, is_there: bool) -> Code {
        self.authority.join(ask, is_there).await.unwrap_err().known_code()
    }
}

#[tokio::test]
async fn a_token_admits_one_host_once_and_again_if_its_answer_was_lost() {
    let cluster = cluster().await;
    let token = cluster.token(None, None).await;
    let two = ask(&token, "two");
    let certified = cluster.authority.join(&two, false).await.unwrap();
    assert!(Meant::Host(name("two")).is_named_by(&certified.certificate));
    assert!(!Meant::Control.is_named_by(&certified.certificate));
    cluster.authority.join(&two, true).await.unwrap();
    for other in [ask(&token, "two"), ask(&token, "three"), JoinAsk { name: name("x"), ..two }] {
        assert_eq!(cluster.refused(&other, false).await, Code::JOIN_TOKEN_OVER);
    }
}

#[tokio::test]
async fn a_token_that_is_wrong_has_expired_or_is_for_another_host_admits_nobody() {
    let cluster = cluster().await;
    let token = cluster.token(None, None).await;
    let expired = cluster.token(None, Some(1)).await;
    let for_two = cluster.token(Some("two"), None).await;
    tokio::time::sleep(Duration::from_millis(2)).await;
    let fingerprint = token.rsplit_once('-').unwrap().1;
    let guessed = JoinToken::make(fingerprint).unwrap().text();
    // The identifier of a real one, with another secret.
    let parts: Vec<&str> = token.split('-').collect();
    let secret = "0".repeat(64);
    let forged = ["snowmelt", "join", parts[2], &secret, parts[4]].join("-");
    for wrong in ["", "two", &token[..token.len() - 1], &token.replace('-', "_")] {
        assert_eq!(cluster.refused(&ask(wrong, "two"), false).await, Code::JOIN_TOKEN);
    }
    for wrong in [&guessed, &forged] {
        assert_eq!(cluster.refused(&ask(wrong, "two"), false).await, Code::JOIN_TOKEN);
    }
    assert_eq!(cluster.refused(&ask(&expired, "two"), false).await, Code::JOIN_TOKEN_OVER);
    assert_eq!(cluster.refused(&ask(&for_two, "three"), false).await, Code::JOIN_NAME);
    // Nothing of that has used a token up.
    cluster.authority.join(&ask(&token, "five"), false).await.unwrap();
    cluster.authority.join(&ask(&for_two, "two"), false).await.unwrap();
}

#[tokio::test]
async fn nobody_gets_the_name_of_a_host_that_is_there() {
    let cluster = cluster().await;
    let token = cluster.token(None, None).await;
    assert_eq!(cluster.refused(&ask(&token, "one"), false).await, Code::JOIN_NAME);
    assert_eq!(cluster.refused(&ask(&token, "two"), true).await, Code::JOIN_NAME);
    let made =
        cluster.authority.make_token(JoinTokenRequest { name: Some(name("one")), ttl_ms: None });
    assert_eq!(made.await.unwrap_err().known_code(), Code::JOIN_NAME);
    cluster.authority.join(&ask(&token, "two"), false).await.unwrap();
    assert!(cluster.authority.removed().await.unwrap().is_empty());
    // An operator says that this is the host from now on: the one before is refused.
    let token = cluster.token(Some("two"), None).await;
    cluster.authority.join(&ask(&token, "two"), true).await.unwrap();
    let member = cluster.idle.records.member(&name("two")).await.unwrap().value.unwrap();
    let removed = cluster.authority.removed().await.unwrap();
    assert_eq!(removed.get(&name("two")), Some(&member.serial));
    assert_eq!(cluster.authority.credential().removed(), removed);
}

#[tokio::test]
async fn a_removed_host_stays_removed_until_it_joins_again() {
    let cluster = cluster().await;
    let unknown = cluster.authority.remove(&name("two")).await.unwrap_err();
    assert_eq!(unknown.known_code(), Code::HOST_UNKNOWN);
    let token = cluster.token(None, None).await;
    cluster.authority.join(&ask(&token, "two"), false).await.unwrap();
    let request = HostKey::make().unwrap().request().unwrap();
    let first = cluster.idle.records.member(&name("two")).await.unwrap().value.unwrap().serial;
    cluster.authority.renew(&name("two"), first, &request).await.unwrap();
    let before = cluster.idle.records.member(&name("two")).await.unwrap().value.unwrap();
    cluster.authority.remove(&name("two")).await.unwrap();
    // Also with a connection that it has still.
    let renewed = cluster.authority.renew(&name("two"), before.serial, &request).await;
    assert_eq!(renewed.unwrap_err().known_code(), Code::HOST_REMOVED);
    // Also after a restart.
    for authority in [cluster.authority.clone(), opened(&cluster.state, &cluster.idle).await] {
        let removed = authority.credential().removed();
        assert!(removed[&name("two")] > before.serial);
    }
    let token = cluster.token(None, None).await;
    cluster.authority.join(&ask(&token, "two"), false).await.unwrap();
    let after = cluster.idle.records.member(&name("two")).await.unwrap().value.unwrap();
    assert!(after.serial >= cluster.authority.credential().removed()[&name("two")]);
    let stranger = cluster.authority.renew(&name("three"), u64::MAX, &request).await.unwrap_err();
    assert_eq!(stranger.known_code(), Code::HOST_REMOVED);
}

#[tokio::test]
async fn the_authority_is_the_same_after_a_restart_and_its_key_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let cluster = cluster().await;
    let again = opened(&cluster.state, &cluster.idle).await;
    assert_eq!(again.0.authority.fingerprint(), cluster.authority.0.authority.fingerprint());
    let mode = |path: &str| {
        let path = cluster.state.path().join(path);
        path.metadata().unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode("cluster"), mode("cluster/authority.json")), (0o700, 0o600));
    // What hosts get of it has no private key.
    let token = cluster.token(None, None).await;
    let certified = cluster.authority.join(&ask(&token, "two"), false).await.unwrap();
    assert!(!certified.authority.contains("PRIVATE") && !certified.certificate.contains("PRIVATE"));
    // The store has no text of a token.
    let record = &cluster.idle.records.join_tokens().await.unwrap()[0];
    assert!(!serde_json::to_string(record).unwrap().contains(&token));
}

#[tokio::test]
async fn a_damaged_file_of_the_authority_is_an_error_and_no_new_authority() {
    let cluster = cluster().await;
    let path = cluster.state.path().join("cluster/authority.json");
    std::fs::write(&path, "{").unwrap();
    let records = cluster.idle.records.clone();
    let opened = ClusterAuthority::open(cluster.state.path(), name("one"), LIFE, records).await;
    assert_eq!(opened.unwrap_err().known_code(), Code::STORAGE);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{");
}
