//! A real registry (docker-registry) on loopback: downloads of images and blocks, uploads of
//! images.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use snowmelt_image::block::{BlockSize, OciDigest};
use snowmelt_image::mount::{Form, LazyMount};
use snowmelt_image::read::{BlockSource, BlockStore, Retried, RetryPolicy, conformance};
use snowmelt_image::source::{
    Access, Credentials, FolderOrigin, ImagePlatform, OciLayout, Reference, Registry,
    RegistryOrigin,
};
use snowmelt_image::{Error, Image, Options, collect, convert, exchange};

use super::convert::{check, layout_by_umoci, run};
use super::mounts::is_root;

/// The registry's process.
pub struct Served {
    child: Child,
    pub address: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

pub fn serve(folder: &Path, more: &str) -> Served {
    let address = format!("127.0.0.1:{}", free_port());
    let config = folder.join("registry.yml");
    let text = format!(
        "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
         http: {{addr: \"{address}\"}}\n{more}",
        folder.join("registry").display()
    );
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new("docker-registry");
    command.arg("serve").arg(&config).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    let began = Instant::now();
    while std::net::TcpStream::connect(&address).is_err() {
        assert!(began.elapsed() < Duration::from_secs(60), "the registry does not start");
        thread::sleep(Duration::from_millis(20));
    }
    Served { child, address }
}

fn reference(address: &str) -> Reference {
    format!("{address}/team/app:v1").parse().unwrap()
}

pub fn registry(address: &str, login: Option<(&str, &str)>) -> Registry {
    let login =
        login.map(|(user, secret)| Credentials { user: user.into(), secret: secret.into() });
    Registry::with_credentials(&reference(address), login).unwrap()
}

/// Converts the image of the registry on a thread that may block.
fn convert_from(
    served: &Served,
    login: Option<(&str, &str)>,
    store: &OciLayout,
) -> snowmelt_image::Result<snowmelt_image::Converted> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let name = reference(&served.address);
    let here = ImagePlatform::here();
    let open = RegistryOrigin::open(registry(&served.address, login), &name, &here);
    let origin = runtime.block_on(open)?;
    convert(&origin, store, Options { block_size: BlockSize::MIN, ..Options::default() })
}

async fn push(registry: &Registry, store: &OciLayout, image: &Image) {
    for digest in image.blobs().map(|blob| &blob.digest).chain([&image.config.digest]) {
        registry.push_blob(digest, &store.blob_path(digest)).await.unwrap();
    }
    let bytes = image.encode().unwrap();
    registry
        .push_manifest("blocks", snowmelt_image::manifest::OCI_MANIFEST, bytes.into())
        .await
        .unwrap();
}

#[test]
fn an_image_is_converted_from_and_pushed_to_a_registry_and_mounted() {
    if !is_root() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let served = serve(scratch.path(), "");
    let layout = layout_by_umoci(scratch.path());
    let image = format!("oci:{}:it", layout.display());
    let target = format!("docker://{}/team/app:v1", served.address);
    run("skopeo", &["copy", "--insecure-policy", "--dest-tls-verify=false", &image, &target]);

    let again = scratch.path().join("again");
    let local = format!("{}:it", layout.display());
    run("umoci", &["unpack", "--image", &local, again.to_str().unwrap()]);

    let store = OciLayout::create(&scratch.path().join("store")).unwrap();
    let converted = convert_from(&served, None, &store).unwrap();
    check(&converted, &store, &again.join("rootfs"));

    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let source = registry(&served.address, None);
    let image = runtime.block_on(async {
        push(&source, &store, &converted.image).await;
        push(&source, &store, &converted.image).await;
        let (found, bytes) = source.manifest("blocks").await.unwrap();
        assert_eq!(found.digest, converted.manifest.digest);
        Image::decode(&bytes).unwrap()
    });
    let blocks =
        Arc::new(BlockStore::new(Arc::new(Retried::new(source, RetryPolicy::default())), None));
    let mounted = LazyMount::new(&image, &blocks, runtime.handle(), Form::Erofs).unwrap();
    let root = std::os::fd::AsRawFd::as_raw_fd(&mounted.root());
    let kept = std::fs::read_to_string(format!("/proc/self/fd/{root}/lib/deep/kept")).unwrap();
    assert_eq!(kept, "usr/lib/deep/kept".repeat(3000));
}

#[test]
fn a_pulled_image_is_kept_until_it_is_named_and_not_uploaded_again() {
    let scratch = tempfile::tempdir().unwrap();
    let served = serve(scratch.path(), "");
    let folder = scratch.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("file"), "text".repeat(100_000)).unwrap();
    let layout = |name: &str| OciLayout::create(&scratch.path().join(name)).unwrap();
    let from = layout("from");
    let to = layout("to");
    let origin = FolderOrigin::open(&folder).unwrap();
    let made = convert(&origin, &from, Options::default()).unwrap();
    let name: Reference = format!("{}/team/app:blocks", served.address).parse().unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let quiet = |_: usize, _: usize, _: u64| ();
    let send = || {
        runtime.block_on(exchange::push(&from, &made.image, &name, &Access::own(), &quiet)).unwrap()
    };
    let blobs = made.image.blobs().map(|blob| &blob.digest).chain([&made.image.config.digest]);
    let sent = send();
    assert_eq!(sent.blobs.iter().collect::<Vec<_>>(), blobs.collect::<Vec<_>>());
    assert_eq!(send(), exchange::UploadCounts::default());

    let pulled = runtime.block_on(exchange::pull(&name, &to, &Access::own(), &quiet)).unwrap();
    assert_eq!((&pulled.manifest.digest, &pulled.image), (&made.manifest.digest, &made.image));
    assert!(matches!(collect(&to, false), Err(Error::Refused { .. })), "it has no name yet");
    to.tag("app", &pulled.manifest).unwrap();
    drop(pulled);
    assert_eq!(collect(&to, false).unwrap().blobs, 0);
    to.untag("app").unwrap();
    assert_eq!(collect(&to, false).unwrap().blobs, 4);
}

#[test]
fn a_registry_conforms_as_a_source_of_blocks() {
    let scratch = tempfile::tempdir().unwrap();
    let served = serve(scratch.path(), "");
    let path = scratch.path().join("content");
    let content = conformance::content();
    std::fs::write(&path, &content).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let registry = registry(&served.address, None);
        registry.push_blob(&OciDigest::of(&content), &path).await.unwrap();
        conformance::check(&registry, &content).await;
    });
}

#[test]
fn credentials_are_used_when_required() {
    let scratch = tempfile::tempdir().unwrap();
    let users = scratch.path().join("users");
    std::fs::write(&users, format!("me:{BCRYPT_OF_SECRET}\n")).unwrap();
    let auth = format!("auth: {{htpasswd: {{realm: test, path: {}}}}}\n", users.display());
    let served = serve(scratch.path(), &auth);
    let path = scratch.path().join("content");
    let content = conformance::content();
    std::fs::write(&path, &content).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let blob = OciDigest::of(&content);
        for login in [None, Some(("me", "wrong"))] {
            let error = registry(&served.address, login).fetch(&blob, 0..1).await.unwrap_err();
            assert!(matches!(error, Error::Denied { .. }), "{error}");
        }
        let registry = registry(&served.address, Some(("me", "secret")));
        registry.push_blob(&blob, &path).await.unwrap();
        conformance::check(&registry, &content).await;
    });
}

/// Bcrypt hash of the password `secret`.
const BCRYPT_OF_SECRET: &str = "$2b$04$uMuHH20Fj2r/Z6o359ELZObQfTP4kp5WvwPAVBnOhxAeFMdCZkbyS";

/// A registry that answers each request with the next of these answers, regardless of the request.
fn scripted(answers: Vec<String>) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let _ = stream.write_all(answer.as_bytes());
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read(&mut [0; 1]);
        }
    });
    address
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    )
}

#[test]
fn transient_failures_of_a_registry_are_retried() {
    let cut = "HTTP/1.1 206 Partial\r\nconnection: close\r\ncontent-length: 4\r\n\r\nte".to_owned();
    let address = scripted(vec![
        answer("500 Oops", "", "internal"),
        answer("429 Slow down", "retry-after: 0\r\n", ""),
        cut,
        answer("206 Partial Content", "", "text"),
    ]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let policy = RetryPolicy { first_wait: Duration::from_millis(1), ..RetryPolicy::default() };
    let source = Retried::new(registry(&address, None), policy);
    let blob = OciDigest::of(b"text");
    assert_eq!(runtime.block_on(source.fetch(&blob, 0..4)).unwrap(), "text");
}

#[test]
fn tokens_are_fetched_from_the_realm_of_the_challenge() {
    let tokens = scripted(vec![answer("200 OK", "", r#"{"token": "t0k"}"#)]);
    let challenge =
        format!("www-authenticate: Bearer realm=\"http://{tokens}/t\",service=\"s\"\r\n");
    let address = scripted(vec![
        answer("401 Who", &challenge, ""),
        // Does not support ranges.
        answer("200 OK", "", "the text"),
        answer("403 No", "", "forbidden"),
    ]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let source = registry(&address, None);
    let blob = OciDigest::of(b"the text");
    assert_eq!(runtime.block_on(source.fetch(&blob, 4..8)).unwrap(), "text");
    let error = runtime.block_on(source.fetch(&blob, 4..8)).unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{error}");
}

#[test]
fn a_challenge_cannot_cause_a_secret_to_be_sent_unencrypted() {
    let challenge = "www-authenticate: Bearer realm=\"http://192.0.2.1/t\"\r\n";
    let address = scripted(vec![answer("401 Who", challenge, "")]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let source = registry(&address, Some(("me", "secret")));
    let error = runtime.block_on(source.fetch(&OciDigest::of(b""), 0..1)).unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{error}");
}
