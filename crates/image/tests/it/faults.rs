//! Registries that interrupt, stall, refuse and send wrong data.

use std::sync::Arc;
use std::time::Duration;

use snowmelt_image::block::{BlockSize, OciDigest};
use snowmelt_image::read::{BlockSource, RetryPolicy};
use snowmelt_image::source::{
    Credentials, ImagePlatform, OciLayout, Reference, Registry, RegistryOrigin,
};
use snowmelt_image::{Converted, Error, Options, Result, convert};

use super::server::{Pace, Reply, Request, Server};

/// The default number of attempts, without waits.
fn quick() -> RetryPolicy {
    RetryPolicy {
        within: Duration::ZERO,
        first_wait: Duration::from_millis(1),
        attempt: Duration::from_millis(500),
        ..RetryPolicy::default()
    }
}

fn registry(address: &str, login: Option<Credentials>) -> Registry {
    let reference: Reference = format!("{address}/team/app:v1").parse().unwrap();
    Registry::with_retry_policy(&reference, login, quick()).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// An image with one layer, as a registry stores it.
struct Original {
    layer: Vec<u8>,
    config: Vec<u8>,
    manifest: Vec<u8>,
}

impl Original {
    fn new() -> Self {
        let mut noise = vec![0; 300_000];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        let mut header = tar::Header::new_gnu();
        header.set_size(noise.len() as u64);
        header.set_mode(0o644);
        let mut builder = tar::Builder::new(Vec::new());
        builder.append_data(&mut header, "noise", &noise[..]).unwrap();
        let layer = builder.into_inner().unwrap();
        let diff_id = OciDigest::of(&layer);
        let config = format!(
            r#"{{"architecture":"amd64","os":"linux","rootfs":{{"type":"layers","diff_ids":["{diff_id}"]}}}}"#
        );
        let mut original = Self { layer, config: config.into_bytes(), manifest: Vec::new() };
        original.manifest = original.manifest_of(original.layer.len());
        original
    }

    /// A manifest with this layer size.
    fn manifest_of(&self, size: usize) -> Vec<u8> {
        format!(
            r#"{{"schemaVersion":2,"config":{{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"{}","size":{}}},"layers":[{{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"{}","size":{size}}}]}}"#,
            OciDigest::of(&self.config),
            self.config.len(),
            OciDigest::of(&self.layer),
        )
        .into_bytes()
    }

    /// The answers of a registry without faults, except for layers.
    fn document(&self, request: &Request) -> Option<Reply> {
        if request.path.contains("/manifests/") {
            return Some(Reply::new(200, self.manifest.clone()));
        }
        let config = OciDigest::of(&self.config);
        let is_config = request.path.ends_with(config.as_str());
        is_config.then(|| Reply::new(200, self.config.clone()))
    }

    /// The layer from the requested byte on.
    fn rest(&self, request: &Request) -> (usize, Reply) {
        let range = request.headers.get("range").map(|range| {
            range.strip_prefix("bytes=").unwrap().strip_suffix('-').unwrap().parse().unwrap()
        });
        match range {
            Some(from) => (from, Reply::new(206, &self.layer[from..])),
            None => (0, Reply::new(200, self.layer.clone())),
        }
    }
}

fn convert_from(server: &Server) -> Result<(Converted, tempfile::TempDir)> {
    let runtime = runtime();
    let reference: Reference = format!("{}/team/app:v1", server.address).parse().unwrap();
    let here = ImagePlatform::here();
    let open = RegistryOrigin::open(registry(&server.address, None), &reference, &here);
    let origin = runtime.block_on(open)?;
    let store = tempfile::tempdir().unwrap();
    let layout = OciLayout::create(store.path()).unwrap();
    let options = Options { block_size: BlockSize::MIN, ..Options::default() };
    let converted = convert(&origin, &layout, options);
    let left = std::fs::read_dir(store.path().join(".snowmelt/tmp")).unwrap().count();
    assert_eq!(left, 0, "no incomplete file is left");
    converted.map(|converted| (converted, store))
}

fn ranges(server: &Server) -> Vec<String> {
    server.requests().iter().filter_map(|request| request.headers.get("range").cloned()).collect()
}

#[test]
fn an_interrupted_layer_is_resumed() {
    for supports_ranges in [true, false] {
        let original = Arc::new(Original::new());
        let answering = Arc::clone(&original);
        let server = Server::new(move |request, _| {
            if let Some(reply) = answering.document(request) {
                return reply;
            }
            let (from, reply) = answering.rest(request);
            if supports_ranges {
                return Reply { cut: Some(90_000), ..reply };
            }
            Reply { cut: Some(from + 90_000), ..Reply::new(200, answering.layer.clone()) }
        });
        let (converted, _store) = convert_from(&server).unwrap();
        assert_eq!(converted.image.layers[0].raw_size, 303_104);
        let ranges = ranges(&server);
        assert_eq!(ranges, ["bytes=90000-", "bytes=180000-", "bytes=270000-"], "{supports_ranges}");
    }
}

#[test]
fn a_layer_that_cannot_be_resumed_is_an_error() {
    let original = Original::new();
    let server = Server::new(move |request, _| match original.document(request) {
        Some(reply) => reply,
        None if request.headers.contains_key("range") => Reply::new(503, "busy"),
        None => Reply { cut: Some(1000), ..Reply::new(200, original.layer.clone()) },
    });
    let error = convert_from(&server).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert_eq!(ranges(&server).len(), quick().attempts as usize);
}

#[test]
fn a_layer_of_another_size_or_content_is_damaged() {
    let original = Arc::new(Original::new());
    let size = original.layer.len();
    let mut other = original.layer.clone();
    other[1000] ^= 1;
    let lies = [
        (original.layer[..size - 2000].to_vec(), original.manifest.clone()),
        (original.layer.clone(), original.manifest_of(size + 1)),
        (other, original.manifest.clone()),
    ];
    for (index, (layer, manifest)) in lies.into_iter().enumerate() {
        let answering = Arc::clone(&original);
        let server = Server::new(move |request, _| {
            if request.path.contains("/manifests/") {
                return Reply::new(200, manifest.clone());
            }
            answering.document(request).unwrap_or_else(|| Reply::new(200, layer.clone()))
        });
        let error = convert_from(&server).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{index}: {error:?}");
    }
}

#[test]
fn a_document_with_a_wrong_digest_is_damaged() {
    let original = Original::new();
    let server = Server::new(move |request, _| match original.document(request) {
        Some(reply) if request.path.contains("/manifests/") => reply,
        _ => Reply::new(200, "{}"),
    });
    let error = convert_from(&server).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error:?}");
}

#[test]
fn each_status_has_its_error_and_transient_ones_are_retried() {
    let attempts = quick().attempts as usize;
    type Is = fn(&Error) -> bool;
    let cases: [(u16, usize, Is); 8] = [
        (400, 1, |error| matches!(error, Error::Refused { .. })),
        (401, 1, |error| matches!(error, Error::Denied { .. })),
        (403, 1, |error| matches!(error, Error::Denied { .. })),
        (404, 1, |error| matches!(error, Error::Missing { .. })),
        (408, attempts, |error| matches!(error, Error::Unreachable { .. })),
        (429, attempts, |error| matches!(error, Error::Unreachable { .. })),
        (500, attempts, |error| matches!(error, Error::Unreachable { .. })),
        (503, attempts, |error| matches!(error, Error::Unreachable { .. })),
    ];
    for (status, attempts, is) in cases {
        let server = Server::new(move |_, _| Reply::new(status, "the registry's message"));
        let error = runtime().block_on(registry(&server.address, None).manifest("v1")).unwrap_err();
        assert!(is(&error), "{status}: {error:?}");
        assert_eq!(server.requests().len(), attempts, "{status}");
    }
}

#[test]
fn retry_after_is_honoured() {
    let server = Server::new(|_, before| match before {
        0 => Reply::new(429, "").header("retry-after", "1"),
        _ => Reply::new(200, "{}"),
    });
    let began = std::time::Instant::now();
    runtime().block_on(registry(&server.address, None).manifest("v1")).unwrap();
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn a_silent_registry_times_out_and_is_retried() {
    let server = Server::new(|_, before| match before {
        0 | 1 => Reply { silent: true, ..Reply::default() },
        _ => Reply::new(200, "{}"),
    });
    runtime().block_on(registry(&server.address, None).manifest("v1")).unwrap();
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn manifests_are_retried_as_long_as_blocks() {
    let server = Server::new(|_, before| match before {
        0..20 => Reply::new(503, "starting"),
        _ => Reply::new(200, "{}"),
    });
    let reference: Reference = format!("{}/team/app:v1", server.address).parse().unwrap();
    let within = Duration::from_secs(600);
    let longest_wait = Duration::from_millis(2);
    let policy = RetryPolicy { within, longest_wait, ..quick() };
    let registry = Registry::with_retry_policy(&reference, None, policy).unwrap();
    runtime().block_on(registry.manifest("v1")).unwrap();
    assert_eq!(server.requests().len(), 21);
}

#[test]
fn a_refused_connection_is_reported() {
    let error = runtime().block_on(registry("127.0.0.1:1", None).manifest("v1")).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
}

#[test]
fn an_identity_token_is_exchanged_for_an_access_token() {
    let tokens = Server::new(|_, _| Reply::new(200, r#"{"access_token": "t0k"}"#));
    let challenge = format!(
        r#"Bearer realm="http://{}/token",service="s&s",scope="repository:team/app:pull""#,
        tokens.address
    );
    let server = Server::new(move |request, _| match request.headers.get("authorization") {
        Some(header) if header == "Bearer t0k" => Reply::new(206, "text"),
        _ => Reply::new(401, "").header("www-authenticate", challenge.clone()),
    });
    let login = Credentials { user: String::new(), secret: "iden tity".to_owned() };
    let registry = registry(&server.address, Some(login));
    let bytes = runtime().block_on(registry.fetch(&OciDigest::of(b"text"), 0..4)).unwrap();
    assert_eq!(bytes, "text");
    let request = &tokens.requests()[0];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/token"));
    assert!(!request.headers.contains_key("authorization"));
    let form = String::from_utf8(request.body.clone()).unwrap();
    for part in
        ["grant_type=refresh_token", "refresh_token=iden+tity", "service=s%26s", "client_id="]
    {
        assert!(form.split('&').any(|field| field.starts_with(part)), "{part}: {form}");
    }
}

#[test]
fn a_failed_upload_is_restarted() {
    let server = Server::new(|request, _| match request.method.as_str() {
        "HEAD" => Reply::new(404, ""),
        "POST" => Reply::new(202, "").header("location", "/v2/team/app/blobs/uploads/1?state=a"),
        _ => Reply::new(201, ""),
    });
    let broken = Server::new(|request, before| match request.method.as_str() {
        "HEAD" => Reply::new(404, ""),
        "POST" => Reply::new(202, "").header("location", "/v2/team/app/blobs/uploads/1?state=a"),
        _ if before < 3 => Reply::new(500, ""),
        // The registry was restarted and has lost the upload.
        _ if before < 5 => Reply::new(404, ""),
        _ => Reply::new(201, ""),
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "text").unwrap();
    let digest = OciDigest::of(b"text");
    for (server, puts) in [(server, 1), (broken, 3)] {
        let registry = registry(&server.address, None);
        assert!(runtime().block_on(registry.push_blob(&digest, file.path())).unwrap());
        let requests = server.requests();
        let uploads: Vec<_> = requests.iter().filter(|request| request.method == "PUT").collect();
        assert_eq!(uploads.len(), puts);
        assert!(uploads.iter().all(|request| request.body == b"text"));
        assert!(uploads[0].path.contains("state=a&digest=sha256"), "{}", uploads[0].path);
    }
}

#[test]
fn an_upload_may_take_longer_than_the_idle_timeout() {
    let answer = |request: &Request, _| match request.method.as_str() {
        "HEAD" => Reply::new(404, ""),
        "POST" => Reply::new(202, "").header("location", "/v2/team/app/blobs/uploads/1"),
        _ => Reply::new(201, ""),
    };
    let content = vec![7; 32 << 20];
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &content).unwrap();
    let digest = OciDigest::of(&content);
    let push = |server: &Server, policy| {
        let reference: Reference = format!("{}/team/app:v1", server.address).parse().unwrap();
        let registry = Registry::with_retry_policy(&reference, None, policy).unwrap();
        runtime().block_on(registry.push_blob(&digest, file.path()))
    };
    // Three seconds in total, without an idle period.
    let pace = Pace { bytes: 1 << 20, pause: Duration::from_millis(100) };
    let server = Server::slow(pace, answer);
    let policy = RetryPolicy { attempt: Duration::from_secs(2), attempts: 1, ..quick() };
    assert!(push(&server, policy).unwrap());

    let silent = Pace { bytes: usize::MAX, pause: Duration::from_secs(600) };
    let server = Server::slow(silent, answer);
    let error = push(&server, RetryPolicy { attempts: 1, ..quick() }).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
}
