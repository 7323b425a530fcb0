//! Keys over records in memory.

use http::HeaderMap;
use snowmelt_rpc::Peer;
use snowmelt_store::Clock;
use snowmelt_store::memory::Memory;

use super::*;

async fn records() -> Records {
    Records::over(Arc::new(Memory::new(Clock::real()))).await.unwrap()
}

fn operator(tenant: &str) -> Identity {
    Identity::new(Peer::User(0), Some(tenant.parse().unwrap())).unwrap()
}

fn of(keys: &Keys, made: &MadeKey) -> Identity {
    Identity::of_key(keys.holder(&made.text).unwrap().0, &HeaderMap::new()).unwrap()
}

fn request(role: Role) -> KeyRequest {
    let note = "of a test".to_owned();
    KeyRequest { role, grants: Vec::new(), note, expires_ms: None, ttl_ms: None }
}

fn code<T: std::fmt::Debug>(done: Result<T, ErrorReport>) -> Code {
    done.unwrap_err().known_code()
}

#[tokio::test]
async fn a_key_is_recognised_also_after_a_restart_until_it_is_revoked() {
    let records = records().await;
    let keys = Keys::open(records.clone()).await.unwrap();
    let made = keys.make(&operator("acme"), request(Role::Caller)).await.unwrap();
    assert_eq!((made.key.used_ms, &*made.key.created_by), (None, "user 0"));
    assert!(!format!("{made:?}").contains(&made.text));
    let stored = format!("{:?}", records.keys().await.unwrap());
    assert!(!stored.contains(made.text.rsplit('-').next().unwrap()), "the text is not stored");
    let identity = of(&keys, &made);
    let id = &made.key.id;
    assert_eq!((identity.tenant.as_str(), identity.who()), ("acme", format!("key {id}")));
    keys.tidy().await.unwrap();
    let again = Keys::open(records).await.unwrap();
    assert!(again.list(&operator("acme")).await.unwrap()[0].used_ms.is_some());
    let (_, mut life) = again.holder(&made.text).unwrap();
    assert!(!life.is_over());
    again.revoke(&operator("acme"), id).await.unwrap();
    life.over().await;
    assert!(again.holder(&made.text).is_none());
    assert_eq!(code(again.revoke(&operator("acme"), id).await), Code::KEY_MISSING);
}

#[tokio::test]
async fn a_text_with_another_secret_is_no_key() {
    let keys = Keys::open(records().await).await.unwrap();
    let made = keys.make(&operator("acme"), request(Role::Caller)).await.unwrap();
    let other = keys.make(&operator("acme"), request(Role::Caller)).await.unwrap();
    let secret = other.text.rsplit('-').next().unwrap();
    for wrong in [
        String::new(),
        format!("snowmelt-{}-{secret}", made.key.id),
        made.text[..made.text.len() - 1].to_owned(),
    ] {
        assert!(keys.holder(&wrong).is_none(), "{wrong}");
    }
}

#[tokio::test]
async fn nobody_makes_or_manages_a_key_that_may_do_more() {
    let keys = Keys::open(records().await).await.unwrap();
    let first = keys.make(&operator("acme"), request(Role::Administrator)).await.unwrap();
    let all = of(&keys, &first);
    let grants = |text: &str| vec![text.parse().unwrap()];
    let limited = KeyRequest { grants: grants("a-*"), ..request(Role::Administrator) };
    let limited = of(&keys, &keys.make(&all, limited).await.unwrap());
    assert_eq!(code(keys.make(&limited, request(Role::Reader)).await), Code::RIGHT_MISSING);
    let wider = KeyRequest { grants: grants("a*"), ..request(Role::Reader) };
    assert_eq!(code(keys.make(&limited, wider).await), Code::RIGHT_MISSING);
    let within = KeyRequest { grants: grants("a-b"), ..request(Role::Reader) };
    keys.make(&limited, within).await.unwrap();
    assert_eq!(code(keys.make(&all, request(Role::Operator)).await), Code::OPTION);
    // One for all names, one that is limited, and one of that.
    assert_eq!(keys.list(&all).await.unwrap().len(), 3);
    assert_eq!(keys.list(&limited).await.unwrap().len(), 2);
    let first = first.key.id;
    let rotated = keys.rotate(&limited, &first, &KeyRotation::default()).await;
    assert_eq!(code(rotated), Code::KEY_MISSING);
    assert_eq!(code(keys.revoke(&limited, &first).await), Code::KEY_MISSING);
    let other = keys.make(&operator("other"), request(Role::Administrator)).await.unwrap();
    assert_eq!(code(keys.revoke(&of(&keys, &other), &first).await), Code::KEY_MISSING);
    assert_eq!(keys.list(&operator("default")).await.unwrap().len(), 4, "of all tenants");
    assert_eq!(keys.list(&operator("other")).await.unwrap().len(), 1);
}

#[tokio::test]
async fn operators_have_keys_in_the_tenant_of_root_only() {
    let keys = Keys::open(records().await).await.unwrap();
    for (tenant, role, is_allowed) in [
        ("default", Role::Operator, true),
        ("default", Role::Developer, false),
        ("acme", Role::Operator, false),
        ("acme", Role::Administrator, true),
    ] {
        let made = keys.make(&operator(tenant), request(role)).await;
        assert_eq!(made.is_ok(), is_allowed, "{tenant} {role}");
    }
}

#[tokio::test]
async fn a_rotated_key_has_the_same_limits_and_the_old_one_ends() {
    let keys = Keys::open(records().await).await.unwrap();
    let grants = vec!["score-*".parse().unwrap()];
    let asked = KeyRequest { grants, ttl_ms: Some(600_000), ..request(Role::Caller) };
    let old = keys.make(&operator("acme"), asked).await.unwrap();
    let (_, mut life) = keys.holder(&old.text).unwrap();
    let rotation = KeyRotation { overlap_ms: 50 };
    let new = keys.rotate(&operator("acme"), &old.key.id, &rotation).await.unwrap();
    assert_ne!(new.text, old.text);
    assert_eq!((new.key.role, &new.key.grants), (old.key.role, &old.key.grants));
    let lasts = |key: &KeySummary| key.expires_ms.unwrap() - key.created_ms;
    assert_eq!(lasts(&new.key), lasts(&old.key));
    life.over().await;
    assert!(keys.holder(&old.text).unwrap().1.is_over());
    assert!(!keys.holder(&new.text).unwrap().1.is_over());
    let again = keys.rotate(&operator("acme"), &old.key.id, &rotation).await;
    assert_eq!(code(again), Code::OPTION, "it has expired");
}

#[tokio::test]
async fn wrong_requests_are_refused() {
    let keys = Keys::open(records().await).await.unwrap();
    let valid = request(Role::Caller);
    let grants = vec!["a".parse().unwrap(); MAX_GRANTS + 1];
    for wrong in [
        KeyRequest { expires_ms: Some(1), ..valid.clone() },
        KeyRequest { ttl_ms: Some(0), ..valid.clone() },
        KeyRequest { expires_ms: Some(u64::MAX), ttl_ms: Some(1), ..valid.clone() },
        KeyRequest { note: "x".repeat(MAX_NOTE + 1), ..valid.clone() },
        KeyRequest { note: "two\nlines".to_owned(), ..valid.clone() },
        KeyRequest { grants, ..valid.clone() },
    ] {
        let refused = keys.make(&operator("acme"), wrong.clone()).await;
        assert_eq!(code(refused), Code::OPTION, "{wrong:?}");
    }
    for shown in ["0f0f", "snowmelt-0f-secret"] {
        let refused = keys.revoke(&operator("acme"), shown).await.unwrap_err();
        assert_eq!(refused.message.contains(shown), shown == "0f0f", "{refused}");
    }
}

#[tokio::test]
async fn a_tenant_has_a_bound_and_expired_keys_make_room() {
    let records = records().await;
    let made = NewKey::make().unwrap();
    let record = |number: usize, expires_ms| KeyRecord {
        id: format!("{number:016x}"),
        tenant: "acme".parse().unwrap(),
        role: Role::Reader,
        grants: Vec::new(),
        note: String::new(),
        digest: made.digest.clone(),
        created_ms: 1,
        created_by: String::new(),
        expires_ms,
    };
    let all: Vec<_> = (0..MAX_OF_TENANT).map(|number| record(number, None)).collect();
    for some in all.chunks(100) {
        records.put_keys(some).await.unwrap();
    }
    let keys = Keys::open(records.clone()).await.unwrap();
    let refused = keys.make(&operator("acme"), request(Role::Reader)).await.unwrap_err();
    assert_eq!(refused.known_code(), Code::KEYS_MOST);
    assert!(refused.message.contains("`acme`"), "{refused}");
    keys.make(&operator("other"), request(Role::Reader)).await.unwrap();
    records.put_keys(&[record(0, Some(2))]).await.unwrap();
    let keys = Keys::open(records.clone()).await.unwrap();
    keys.make(&operator("acme"), request(Role::Reader)).await.unwrap();
    assert_eq!(keys.list(&operator("acme")).await.unwrap().len(), MAX_OF_TENANT);
    // One that has expired long ago is removed in any case.
    records.put_keys(&[record(1, Some(2))]).await.unwrap();
    let keys = Keys::open(records).await.unwrap();
    keys.tidy().await.unwrap();
    assert_eq!(keys.list(&operator("acme")).await.unwrap().len(), MAX_OF_TENANT - 1);
}

/// The body of a request can take longer to arrive than its key lasts.
#[tokio::test]
async fn a_key_that_was_revoked_makes_no_successor() {
    let keys = Keys::open(records().await).await.unwrap();
    let made = keys.make(&operator("acme"), request(Role::Administrator)).await.unwrap();
    let other = keys.make(&operator("acme"), request(Role::Caller)).await.unwrap().key.id;
    let thief = of(&keys, &made);
    keys.revoke(&operator("acme"), &made.key.id).await.unwrap();
    assert_eq!(code(keys.make(&thief, request(Role::Caller)).await), Code::TOKEN_REFUSED);
    let rotated = keys.rotate(&thief, &other, &KeyRotation::default()).await;
    assert_eq!(code(rotated), Code::TOKEN_REFUSED);
    assert_eq!(keys.list(&operator("acme")).await.unwrap().len(), 1);
}

#[tokio::test]
async fn no_key_outlasts_the_one_that_made_it() {
    let keys = Keys::open(records().await).await.unwrap();
    let hour = KeyRequest { ttl_ms: Some(3_600_000), ..request(Role::Administrator) };
    let made = keys.make(&operator("acme"), hour).await.unwrap();
    let end = made.key.expires_ms.unwrap();
    let short = of(&keys, &made);
    assert_eq!(keys.make(&short, request(Role::Reader)).await.unwrap().key.expires_ms, Some(end));
    let rotated = keys.rotate(&short, &made.key.id, &KeyRotation::default()).await.unwrap();
    assert_eq!(rotated.key.expires_ms, Some(end));
    let minute = KeyRequest { ttl_ms: Some(60_000), ..request(Role::Reader) };
    assert!(keys.make(&short, minute).await.unwrap().key.expires_ms.unwrap() < end);
    // An operator renews it.
    let renewed = keys.rotate(&operator("acme"), &rotated.key.id, &KeyRotation::default()).await;
    assert!(renewed.unwrap().key.expires_ms.is_some());
}
