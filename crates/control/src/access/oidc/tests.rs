//! Tokens that are forged, damaged or over, and an issuer that changes its keys or is down.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
    RSA_PKCS1_SHA512, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair, RsaPublicKeyComponents,
};
use serde_json::{Value, json};
use snowmelt_types::{Code, ErrorReport, Role, Tenant};

use super::*;

/// An issuer on this machine.
struct Issuer {
    url: String,
    shared: Arc<Shared>,
    rsa: RsaKeyPair,
    ec: EcdsaKeyPair,
    ed: Ed25519KeyPair,
    folder: tempfile::TempDir,
}

/// The documents that the issuer serves, and how often it was asked for its keys.
#[derive(Default)]
struct Shared {
    url: Mutex<String>,
    keys: Mutex<Value>,
    asked: AtomicUsize,
    is_down: AtomicBool,
}

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The server's time, in seconds since 1970.
fn now() -> i64 {
    i64::try_from(now_ms() / 1000).unwrap()
}

async fn configuration(State(shared): State<Arc<Shared>>) -> Result<String, StatusCode> {
    if shared.is_down.load(Ordering::Relaxed) {
        return Err(StatusCode::BAD_GATEWAY);
    }
    let url = shared.url.lock().unwrap().clone();
    Ok(json!({ "issuer": url, "jwks_uri": format!("{url}/keys") }).to_string())
}

async fn keys(State(shared): State<Arc<Shared>>) -> String {
    shared.asked.fetch_add(1, Ordering::Relaxed);
    json!({ "keys": *shared.keys.lock().unwrap() }).to_string()
}

impl Issuer {
    async fn new() -> Self {
        let shared = Arc::new(Shared::default());
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(configuration))
            .route("/keys", get(keys))
            .with_state(Arc::clone(&shared));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let ending = snowmelt_rpc::server::Ending::default();
        let token = snowmelt_rpc::Token::new("sixteen-characters").unwrap();
        tokio::spawn(snowmelt_rpc::server::serve(
            snowmelt_rpc::server::HostListener::new(listener, token),
            router,
            snowmelt_rpc::server::TENANTS,
            ending,
        ));
        let random = SystemRandom::new();
        let pem = include_str!("../../../testdata/issuer.key");
        let der: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let ec = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let ed = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let issuer = Self {
            url: url.clone(),
            rsa: RsaKeyPair::from_pkcs8(&STANDARD.decode(der).unwrap()).unwrap(),
            ec: EcdsaKeyPair::from_pkcs8(algorithm, ec.as_ref(), &random).unwrap(),
            ed: Ed25519KeyPair::from_pkcs8(ed.as_ref()).unwrap(),
            shared,
            folder: tempfile::tempdir().unwrap(),
        };
        *issuer.shared.url.lock().unwrap() = url;
        issuer.serve(json!([issuer.rsa_key("rsa"), issuer.ec_key("ec"), issuer.ed_key("ed")]));
        issuer
    }

    fn serve(&self, keys: Value) {
        *self.shared.keys.lock().unwrap() = keys;
    }

    fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::Relaxed)
    }

    fn rsa_key(&self, kid: &str) -> Value {
        let public: RsaPublicKeyComponents<Vec<u8>> = self.rsa.public().into();
        let RsaPublicKeyComponents { n, e } = public;
        let [n, e] = [n, e].map(encoded);
        json!({ "kty": "RSA", "kid": kid, "use": "sig", "n": n, "e": e })
    }

    fn ec_key(&self, kid: &str) -> Value {
        let point = self.ec.public_key().as_ref();
        let [x, y] = [encoded(&point[1..33]), encoded(&point[33..])];
        json!({ "kty": "EC", "crv": "P-256", "kid": kid, "x": x, "y": y })
    }

    fn ed_key(&self, kid: &str) -> Value {
        let x = encoded(self.ed.public_key());
        json!({ "kty": "OKP", "crv": "Ed25519", "kid": kid, "alg": "EdDSA", "x": x })
    }

    /// The issuers of a file with this one.
    fn issuers(&self, more: &str) -> Issuers {
        let path = self.folder.path().join("issuers.toml");
        let text = format!(
            r#"
            [[issuer]]
            url = "{}"
            audience = ["snowmelt", "other-name"]
            client_id = "cli"
            {more}
            [[issuer.rules]]
            claims = {{ groups = "acme-admins" }}
            tenant = "acme"
            role = "administrator"
            [[issuer.rules]]
            claims = {{ groups = "team-*" }}
            tenant = "{{groups}}"
            role = "developer"
            [[issuer.rules]]
            claims = {{ sub = "root" }}
            role = "operator"
            "#,
            self.url
        );
        std::fs::write(&path, text).unwrap();
        Issuers::open(&path, None).unwrap()
    }

    /// Claims that are accepted, with some of them replaced; `null` removes one.
    fn claims(&self, other: Value) -> Value {
        let mut claims = json!({
            "iss": self.url,
            "aud": "snowmelt",
            "sub": "al",
            "iat": now(),
            "exp": now() + 300,
            "groups": ["acme-admins"],
        });
        for (name, value) in other.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        claims
    }

    fn sign_rsa(&self, signed: &str, padding: &'static dyn RsaEncoding) -> Vec<u8> {
        let mut signature = vec![0; self.rsa.public().modulus_len()];
        let random = SystemRandom::new();
        self.rsa.sign(padding, &random, signed.as_bytes(), &mut signature).unwrap();
        signature
    }

    /// A token with this header, signed as its algorithm says.
    fn signed(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
        let signature = match header["alg"].as_str().unwrap_or_default() {
            "PS256" => self.sign_rsa(&signed, &RSA_PSS_SHA256),
            "RS512" => self.sign_rsa(&signed, &RSA_PKCS1_SHA512),
            "ES256" => {
                let signature = self.ec.sign(&SystemRandom::new(), signed.as_bytes());
                signature.unwrap().as_ref().to_vec()
            }
            "EdDSA" => self.ed.sign(signed.as_bytes()).as_ref().to_vec(),
            _ => self.sign_rsa(&signed, &RSA_PKCS1_SHA256),
        };
        format!("{signed}.{}", encoded(signature))
    }

    fn token(&self, claims: Value) -> String {
        self.signed(&json!({ "alg": "RS256", "kid": "rsa" }), &self.claims(claims))
    }
}

fn tenant(name: &str) -> Tenant {
    name.parse().unwrap()
}

/// Why a token is refused, as text.
fn why(refused: Result<TokenBearer, ErrorReport>) -> String {
    let report = refused.map(|bearer| bearer.principal).unwrap_err();
    assert_eq!(report.code, Code::TOKEN_REFUSED.code, "{report}");
    report.message
}

#[tokio::test]
async fn a_token_gives_its_holder_a_tenant_until_it_expires() {
    let issuer = Issuer::new().await;
    let issuers = issuer.issuers("");
    let claims = issuer.claims(json!({ "groups": ["team-a", "acme-admins", "team-b"] }));
    for header in [
        json!({ "alg": "RS256", "kid": "rsa" }),
        json!({ "alg": "RS512", "kid": "rsa", "typ": "at+JWT" }),
        json!({ "alg": "PS256", "kid": "rsa", "typ": "JWT" }),
        json!({ "alg": "ES256", "kid": "ec" }),
        json!({ "alg": "EdDSA", "kid": "ed" }),
    ] {
        let token = issuer.signed(&header, &claims);
        assert!(issuers.reads(&token));
        let bearer = issuers.bearer(&token).await.unwrap();
        assert_eq!(bearer.principal, format!("al at {}", issuer.url), "{header}");
        // 60 s for the clocks.
        let KeyLife::Fixed(Some(end)) = bearer.life else { panic!("{bearer:?}") };
        assert_eq!(end, u64::try_from(claims["exp"].as_i64().unwrap() + 60).unwrap() * 1000);
        let of = |named: Option<&str>| bearer.membership(named.map(tenant).as_ref());
        assert_eq!(of(None).unwrap().role, Role::Administrator);
        assert_eq!(of(Some("b")).unwrap().role, Role::Developer);
        let refused = of(Some("c")).unwrap_err();
        assert_eq!(refused.code, Code::TENANT_REFUSED.code);
        assert!(refused.message.contains("acts for `acme`, `a`, `b`"), "{refused}");
    }
    assert_eq!(issuer.asked(), 1);
    let root = issuers.bearer(&issuer.token(json!({ "sub": "root", "groups": [] }))).await;
    let given = root.unwrap().membership(Some(&tenant("any"))).unwrap();
    assert_eq!((given.tenant, given.role), (Tenant::default(), Role::Operator));
    let nobody = issuers.bearer(&issuer.token(json!({ "groups": ["x"] }))).await.unwrap();
    let refused = nobody.membership(None).unwrap_err();
    assert!(refused.message.contains("no rule gives al at"), "{refused}");
}

#[tokio::test]
async fn claims_that_do_not_hold_are_refused() {
    let issuer = Issuer::new().await;
    let issuers = issuer.issuers("");
    for (claims, flaw) in [
        (json!({ "exp": now() - 61 }), TokenFlaw::Expired),
        (json!({ "exp": null }), TokenFlaw::Times),
        (json!({ "exp": "soon" }), TokenFlaw::Times),
        (json!({ "exp": -1 }), TokenFlaw::Times),
        (json!({ "exp": 1e300 }), TokenFlaw::Times),
        (json!({ "nbf": now() + 90 }), TokenFlaw::Early),
        (json!({ "iat": now() + 90 }), TokenFlaw::Issued),
        (json!({ "aud": "snowmelts" }), TokenFlaw::Audience),
        (json!({ "aud": ["a", "b"] }), TokenFlaw::Audience),
        (json!({ "aud": null }), TokenFlaw::Audience),
        (json!({ "iss": "https://login.example" }), TokenFlaw::Issuer),
        (json!({ "iss": format!("{}/", issuer.url) }), TokenFlaw::Issuer),
        (json!({ "iss": null }), TokenFlaw::Issuer),
        (json!({ "sub": null }), TokenFlaw::Subject),
        (json!({ "sub": "" }), TokenFlaw::Subject),
        (json!({ "sub": "a\u{1b}[2J" }), TokenFlaw::Subject),
        (json!({ "sub": "x".repeat(256) }), TokenFlaw::Subject),
    ] {
        let refused = why(issuers.bearer(&issuer.token(claims.clone())).await);
        assert!(refused.ends_with(&flaw.to_string()), "{claims}: {refused}");
    }
    for claims in [
        json!({ "exp": now() - 50 }),
        json!({ "exp": now() as f64 + 0.5 }),
        json!({ "nbf": now() + 50, "iat": now() + 50 }),
        json!({ "aud": ["a", "other-name"] }),
    ] {
        issuers.bearer(&issuer.token(claims)).await.unwrap();
    }
}

#[tokio::test]
async fn signatures_that_are_forged_are_refused() {
    let issuer = Issuer::new().await;
    let issuers = issuer.issuers("");
    let claims = issuer.claims(json!({}));
    let signed = |header: Value| issuer.signed(&header, &claims);
    let good = issuer.token(json!({}));
    let parts: Vec<_> = good.split('.').collect();
    let other = encoded(issuer.claims(json!({ "sub": "root" })).to_string());
    // The public key as the secret of a code.
    let header = encoded(json!({ "alg": "HS256", "kid": "rsa" }).to_string());
    let secret = issuer.rsa_key("rsa")["n"].as_str().unwrap().to_owned();
    let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
    let code = ring::hmac::sign(&secret, format!("{header}.{}", parts[1]).as_bytes());
    let own = issuer.ec_key("ec");
    for (token, flaw) in [
        (format!("{}.{other}.{}", parts[0], parts[2]), TokenFlaw::Signature),
        (format!("{}.{}.", parts[0], parts[1]), TokenFlaw::Signature),
        (format!("{header}.{}.{}", parts[1], encoded(code)), TokenFlaw::Algorithm),
        (signed(json!({ "alg": "none" })), TokenFlaw::Algorithm),
        (signed(json!({ "alg": "None", "kid": "rsa" })), TokenFlaw::Algorithm),
        (signed(json!({ "alg": "RS1", "kid": "rsa" })), TokenFlaw::Algorithm),
        // A key of another type than the algorithm's, and one that is for another algorithm.
        (signed(json!({ "alg": "ES256", "kid": "rsa" })), TokenFlaw::KeyType),
        (signed(json!({ "alg": "RS256", "kid": "ec" })), TokenFlaw::KeyType),
        (signed(json!({ "alg": "ES384", "kid": "ec" })), TokenFlaw::KeyType),
        // Another padding than the header's.
        (signed(json!({ "alg": "RS384", "kid": "rsa" })), TokenFlaw::Signature),
        (signed(json!({ "alg": "RS256", "kid": "gone" })), TokenFlaw::Key),
        // No name, of several keys.
        (signed(json!({ "alg": "RS256" })), TokenFlaw::Key),
        // Keys of the token's own.
        (signed(json!({ "alg": "ES256", "kid": "x", "jwk": own })), TokenFlaw::Key),
        (signed(json!({ "alg": "RS256", "jku": "https://evil.example/keys" })), TokenFlaw::Key),
        (signed(json!({ "alg": "RS256", "kid": "rsa", "crit": ["exp"] })), TokenFlaw::Critical),
        (signed(json!({ "alg": "RS256", "kid": "rsa", "typ": "logout+jwt" })), TokenFlaw::Type),
        (format!("{}.{}", parts[0], parts[1]), TokenFlaw::Form),
        (format!("{}=.{}.{}", parts[0], parts[1], parts[2]), TokenFlaw::Form),
        (format!("{}.{}.{}.{}", parts[0], parts[1], parts[2], parts[2]), TokenFlaw::Form),
        (issuer.token(json!({ "note": "x".repeat(16 << 10) })), TokenFlaw::Length),
        (format!("{}.{}.{}", encoded("[]"), parts[1], parts[2]), TokenFlaw::Form),
        (
            format!("{}.{}.{}", encoded(r#"{"alg":"none","alg":"RS256"}"#), parts[1], parts[2]),
            TokenFlaw::Form,
        ),
    ] {
        let refused = why(issuers.bearer(&token).await);
        assert!(refused.ends_with(&flaw.to_string()), "{token}: {refused}");
        assert!(!refused.contains(parts[1]), "{refused}");
    }
    issuers.bearer(&good).await.unwrap();
}

#[tokio::test]
async fn a_flood_of_unknown_keys_asks_the_issuer_once() {
    let issuer = Issuer::new().await;
    let issuers = Arc::new(issuer.issuers(""));
    let mut asking = Vec::new();
    for number in 0..200 {
        let header = json!({ "alg": "RS256", "kid": format!("{number}") });
        let token = issuer.signed(&header, &issuer.claims(json!({})));
        let issuers = Arc::clone(&issuers);
        asking.push(tokio::spawn(async move { issuers.bearer(&token).await }));
        if number % 3 == 0 {
            // Clients that do not wait do not have others ask again.
            tokio::task::yield_now().await;
            asking.pop().unwrap().abort();
        }
    }
    for asked in asking {
        why(asked.await.unwrap());
    }
    assert_eq!(issuer.asked(), 1);
    issuers.bearer(&issuer.token(json!({}))).await.unwrap();
}

#[tokio::test]
async fn keys_are_used_while_the_issuer_is_down_up_to_a_limit() {
    let issuer = Issuer::new().await;
    let issuers = issuer.issuers("keys_kept = \"1s\"");
    let token = issuer.token(json!({}));
    issuers.bearer(&token).await.unwrap();
    issuer.shared.is_down.store(true, Ordering::Relaxed);
    issuers.bearer(&token).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let refused = issuers.bearer(&token).await.map(|bearer| bearer.principal).unwrap_err();
    assert_eq!(refused.code, Code::ISSUER.code, "{refused}");
}

#[tokio::test]
async fn an_issuer_that_serves_another_ones_configuration_is_not_believed() {
    let issuer = Issuer::new().await;
    let issuers = issuer.issuers("");
    *issuer.shared.url.lock().unwrap() = "http://127.0.0.1:1".to_owned();
    let refused = issuers.bearer(&issuer.token(json!({}))).await;
    let refused = refused.map(|bearer| bearer.principal).unwrap_err();
    assert!(refused.message.contains("of another issuer"), "{refused}");
    assert_eq!(issuer.asked(), 0);
}

#[tokio::test]
async fn the_only_key_of_an_issuer_needs_no_name() {
    let issuer = Issuer::new().await;
    let mut key = issuer.ec_key("ec");
    key.as_object_mut().unwrap().remove("kid");
    // Entries that are no keys for signatures.
    let secret = json!({ "kty": "oct", "k": "AAAA" });
    let encrypts = json!({ "kty": "RSA", "use": "enc", "n": "AQAB", "e": "AQAB" });
    issuer.serve(json!([key, secret, encrypts, 1]));
    let issuers = issuer.issuers("");
    let token = issuer.signed(&json!({ "alg": "ES256" }), &issuer.claims(json!({})));
    issuers.bearer(&token).await.unwrap();
}

#[test]
fn only_what_looks_like_a_token_is_one() {
    assert!(!Issuers::default().reads("eyA.B.C"));
    assert!(Issuers::open(Path::new("/none/issuers.toml"), None).is_err());
}
