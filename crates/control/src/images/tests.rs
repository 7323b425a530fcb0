//! Tests of the service with its client, over a connection.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::middleware::from_fn;
use snowmelt_api::{
    ClientImage, ConversionRequest, ConvertedImage, DifferenceRequest, ImageRequest, ImageSource,
    PathChange, PruneRequest, RegistryLogin,
};
use snowmelt_image::block::OciDigest;
use snowmelt_image::source::{Config, ConversionSource, Described, FolderOrigin};
use snowmelt_rpc::Peer;
use snowmelt_rpc::client::InProcess;
use snowmelt_rpc::server::{AcceptedConnection, Ending, LOCAL, Listener, serve};
use tokio::net::UnixStream;
use tokio::sync::{Notify, mpsc};

use super::*;
use crate::client::{ApiClient, LocalImage};
use crate::gateway;
use crate::gateway::entry::identify;
use crate::server::image_server::ImageServer;

fn served() -> (tempfile::TempDir, ImageServer) {
    let state = tempfile::tempdir().unwrap();
    let images = ImageServer::start(state.path(), ImageSettings::default()).unwrap();
    (state, images)
}

fn request(name: &str, image: ClientImage) -> ConversionRequest {
    ConversionRequest {
        name: name.to_owned(),
        source: ImageSource::Client(image),
        block_size: None,
        access: RegistryAccess::default(),
    }
}

async fn convert(
    client: &ApiClient,
    name: &str,
    origin: impl ConversionSource + Send + Sync + 'static,
) -> Result<ConvertedImage, ErrorReport> {
    let Described { config, layers, .. } = origin.describe().unwrap();
    let config = config.map(|config| String::from_utf8(config).unwrap());
    let request = request(name, ClientImage { config, layers, original: None });
    let image = LocalImage { name: "the test".to_owned(), origin: Arc::new(origin) };
    client.convert(&request, Some(image), &mut |_| ()).await
}

fn folder(text: &str) -> (tempfile::TempDir, FolderOrigin) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), text).unwrap();
    let origin = FolderOrigin::open(folder.path()).unwrap();
    (folder, origin)
}

fn by_name(image: &str) -> ImageRequest {
    ImageRequest { image: image.to_owned(), access: RegistryAccess::default() }
}

/// Files of unfinished writers.
fn partial(state: &Path) -> usize {
    std::fs::read_dir(state.join("images/.snowmelt/tmp")).unwrap().count()
}

#[tokio::test]
async fn what_a_killed_server_left_is_removed_when_its_lock_is_free() {
    let state = tempfile::tempdir().unwrap();
    let over = CancellationToken::new();
    let images = Images::new(state.path(), ImageSettings::default(), over);
    let layout = OciLayout::create(&state.path().join("images")).unwrap();
    let killed = layout.keep_collectors_away().unwrap();
    std::fs::write(state.path().join("images/.snowmelt/tmp/left"), "half").unwrap();
    images.sweep();
    assert_eq!(partial(state.path()), 1);
    drop(killed);
    let removed = async {
        while partial(state.path()) > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), removed).await.unwrap();
}

#[tokio::test]
async fn an_image_that_is_sent_is_the_one_that_is_read_directly() {
    let (_state, images) = served();
    let (_one, origin) = folder("one");
    let direct = tempfile::tempdir().unwrap();
    let layout = OciLayout::create(direct.path()).unwrap();
    let expected =
        snowmelt_image::convert(&origin, &layout, snowmelt_image::Options::default()).unwrap();
    let made = convert(images.client(), "one:v1", origin).await.unwrap();
    assert_eq!(made.manifest, expected.manifest.digest.to_string());
    assert_eq!((made.layers, made.reused), (1, 0));
    let (_two, origin) = folder("two");
    convert(images.client(), "two:v1", origin).await.unwrap();

    let client = images.client();
    let listed = client.images().await.unwrap();
    let names: Vec<_> = listed.iter().map(|image| image.name.as_str()).collect();
    assert_eq!(names, ["one:v1", "two:v1"]);
    assert_eq!(listed[0].manifest, made.manifest);
    let shown = client.image(&by_name("one:v1")).await.unwrap();
    assert_eq!((shown.name.as_str(), shown.blobs.len()), ("one:v1", 2));
    let verified = client.verify_image(&by_name("one:v1"), &mut |_| ()).await.unwrap();
    assert!(verified.blocks > 0 && verified.damages.is_empty());
    let first = "one:v1".to_owned();
    let second = "two:v1".to_owned();
    let both = DifferenceRequest { first, second, access: RegistryAccess::default() };
    let found = client.compare_images(&both, &mut |_| ()).await.unwrap();
    assert_eq!(found.changes, [("/file".to_owned(), PathChange::Content)]);

    let name = "one:v1".parse::<Reference>().unwrap().to_string();
    client.remove_image(&name).await.unwrap();
    let missing = client.image(&by_name("one:v1")).await.unwrap_err();
    assert_eq!(missing.known_code(), Code::IMAGE_MISSING);
    let request = PruneRequest { dry_run: false, blocks: true };
    let pruned = client.prune_images(&request).await.unwrap();
    assert!(pruned.blobs > 0 && pruned.block_bytes == Some(0));
    images.end().await;
}

/// An image with a configuration, whose layers are counted when they are read.
struct CountingImage {
    layer: Vec<u8>,
    config: Vec<u8>,
    read: Arc<AtomicU64>,
}

impl CountingImage {
    fn new(expected: &OciDigest, layer: Vec<u8>) -> (Self, Arc<AtomicU64>) {
        let config = Config::plain(vec![expected.clone()]).encode().unwrap();
        let read = Arc::new(AtomicU64::new(0));
        (Self { layer, config, read: Arc::clone(&read) }, read)
    }
}

impl ConversionSource for CountingImage {
    fn describe(&self) -> snowmelt_image::Result<Described> {
        Ok(Described { config: Some(self.config.clone()), layers: 1, original: None })
    }

    fn layer(&self, _index: usize) -> snowmelt_image::Result<Box<dyn Read + '_>> {
        self.read.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(&self.layer[..]))
    }
}

fn archive() -> Vec<u8> {
    let (_folder, origin) = folder("text");
    let mut bytes = Vec::new();
    origin.layer(0).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

#[tokio::test]
async fn a_layer_that_is_known_is_not_sent_again() {
    let (_state, images) = served();
    let layer = archive();
    let digest = OciDigest::of(&layer);
    let (first, read) = CountingImage::new(&digest, layer.clone());
    assert_eq!(convert(images.client(), "a", first).await.unwrap().reused, 0);
    assert_eq!(read.load(Ordering::Relaxed), 1);
    let (second, read) = CountingImage::new(&digest, layer);
    assert_eq!(convert(images.client(), "b", second).await.unwrap().reused, 1);
    assert_eq!(read.load(Ordering::Relaxed), 0);
    images.end().await;
}

#[tokio::test]
async fn a_refusal_arrives_while_the_client_still_sends() {
    let (state, images) = served();
    // Its first bytes show that it is not an archive, and more than any buffer holds.
    let layer = vec![b'x'; 64 << 20];
    let (wrong, _) = CountingImage::new(&OciDigest::of(&layer), layer);
    let refused = convert(images.client(), "a", wrong).await.unwrap_err();
    assert_eq!(refused.known_code(), Code::IMAGE_REFUSED, "{refused:?}");
    let (other, _) = CountingImage::new(&OciDigest::of(b"other"), archive());
    let damaged = convert(images.client(), "a", other).await.unwrap_err();
    assert_eq!(damaged.known_code(), Code::IMAGE_DAMAGED, "{damaged:?}");
    assert!(images.client().images().await.unwrap().is_empty());
    images.end().await;
    assert_eq!(partial(state.path()), 0);
}

/// A layer that never ends, or that cannot be read.
struct Endless {
    begun: Arc<Notify>,
    fails: bool,
}

impl ConversionSource for Endless {
    fn describe(&self) -> snowmelt_image::Result<Described> {
        Ok(Described { config: None, layers: 1, original: None })
    }

    fn layer(&self, _index: usize) -> snowmelt_image::Result<Box<dyn Read + '_>> {
        Ok(Box::new(EndlessFile { header: header(), origin: self }))
    }
}

struct EndlessFile<'a> {
    header: Vec<u8>,
    origin: &'a Endless,
}

impl Read for EndlessFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.origin.fails && self.header.is_empty() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if self.header.is_empty() {
            self.origin.begun.notify_one();
            buffer.fill(b'x');
            return Ok(buffer.len());
        }
        let count = self.header.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.header[..count]);
        self.header.drain(..count);
        Ok(count)
    }
}

/// The header of a file of 7 GiB in a tar archive.
fn header() -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..4].copy_from_slice(b"file");
    header[100..107].copy_from_slice(b"0000644");
    header[108..115].copy_from_slice(b"0000000");
    header[116..123].copy_from_slice(b"0000000");
    header[124..135].copy_from_slice(format!("{:011o}", 7u64 << 30).as_bytes());
    header[136..147].copy_from_slice(b"00000000000");
    header[148..156].fill(b' ');
    header[156] = b'0';
    header[257..263].copy_from_slice(b"ustar\0");
    header[263..265].copy_from_slice(b"00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    header
}

#[tokio::test]
async fn a_client_that_disconnects_cancels_the_conversion() {
    let (state, images) = served();
    let begun = Arc::new(Notify::new());
    let endless = Endless { begun: Arc::clone(&begun), fails: false };
    tokio::select! {
        ended = convert(images.client(), "a", endless) => panic!("{ended:?}"),
        () = begun.notified() => {}
    }
    images.images.idle(Duration::from_secs(60)).await;
    assert_eq!(images.images.running.available_permits(), JOBS_AT_ONCE as usize);
    assert_eq!(partial(state.path()), 0);
    assert!(images.client().images().await.unwrap().is_empty());
    images.end().await;
}

#[tokio::test]
async fn a_server_that_ends_says_so_and_leaves_nothing_partial() {
    let (state, images) = served();
    let begun = Arc::new(Notify::new());
    let endless = Endless { begun: Arc::clone(&begun), fails: false };
    let client = images.client().clone();
    let converting = tokio::spawn(async move { convert(&client, "a", endless).await });
    begun.notified().await;
    images.end().await;
    let ended = converting.await.unwrap().unwrap_err();
    assert_eq!(ended.known_code(), Code::CANCELLED, "{ended:?}");
    assert_eq!(partial(state.path()), 0);
}

#[tokio::test]
async fn what_the_client_may_not_read_is_its_error() {
    let (state, images) = served();
    let unreadable = Endless { begun: Arc::new(Notify::new()), fails: true };
    let failed = convert(images.client(), "a", unreadable).await.unwrap_err();
    assert_eq!(failed.known_code(), Code::IMAGE_MISSING);
    assert!(failed.message.contains("the test cannot be read"), "{failed:?}");
    images.end().await;
    assert_eq!(partial(state.path()), 0);
}

#[tokio::test]
async fn a_path_in_a_request_is_not_opened() {
    let (_state, images) = served();
    for path in ["oci:/", "dir:/", "docker-archive:/etc/passwd"] {
        let refused = images.client().image(&by_name(path)).await.unwrap_err();
        assert_eq!(refused.known_code(), Code::IMAGE_REFUSED);
        let from = ImageSource::Registry(path.to_owned());
        let access = RegistryAccess::default();
        let request =
            ConversionRequest { name: "a".to_owned(), source: from, block_size: None, access };
        images.client().convert(&request, None, &mut |_| ()).await.unwrap_err();
    }
    images.end().await;
}

/// Connections of a member.
struct OfMember(tokio::sync::Mutex<mpsc::UnboundedReceiver<UnixStream>>);

impl Listener for OfMember {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<AcceptedConnection<UnixStream>> {
        let accepted = self.0.accept().await?;
        let Peer::User(server) = accepted.peer else { unreachable!() };
        Ok(AcceptedConnection { peer: Peer::User(server + 1234), ..accepted })
    }
}

#[tokio::test]
async fn images_of_two_tenants_with_the_same_name_are_two() {
    let state = tempfile::tempdir().unwrap();
    let images = Images::new(state.path(), ImageSettings::default(), CancellationToken::new());
    let client_by = |router: axum::Router, of_member: bool| {
        let (ours, theirs) = InProcess::pair();
        let accepted = tokio::sync::Mutex::new(theirs);
        match of_member {
            true => drop(tokio::spawn(serve(OfMember(accepted), router, LOCAL, Ending::default()))),
            false => drop(tokio::spawn(serve(accepted, router, LOCAL, Ending::default()))),
        }
        ApiClient::in_process(ours)
    };
    let router = || gateway::images::router(images.clone()).layer(from_fn(identify));
    let member = client_by(router(), true);
    let root = client_by(router(), false);
    let (_one, one) = folder("one");
    let (_two, two) = folder("two");
    let of_root = convert(&root, "app:v1", one).await.unwrap().manifest;
    let name = "app:v1".parse::<Reference>().unwrap().to_string();
    for missing in [
        member.image(&by_name("app:v1")).await.unwrap_err(),
        member.remove_image(&name).await.unwrap_err(),
        member.verify_image(&by_name("app:v1"), &mut |_| ()).await.unwrap_err(),
        // By its digest neither.
        member.image(&by_name(&format!("app@{of_root}"))).await.unwrap_err(),
    ] {
        assert_eq!(missing.known_code(), Code::IMAGE_MISSING, "{missing:?}");
    }
    assert!(member.images().await.unwrap().is_empty());
    let of_member = convert(&member, "app:v1", two).await.unwrap().manifest;
    assert_ne!(of_member, of_root);
    // Nobody else runs in it, so it may have the name of a registry's image.
    let (_three, three) = folder("three");
    convert(&member, "registry.example/app:v1", three).await.unwrap();
    assert_eq!(member.images().await.unwrap().len(), 2);
    assert_eq!(root.image(&by_name("app:v1")).await.unwrap().manifest, of_root);
    // The content of others is sent again: who has it is not shown.
    let (_again, again) = folder("one");
    assert_eq!(convert(&member, "again:v1", again).await.unwrap().reused, 0);
    member.remove_image(&name).await.unwrap();
    assert!(member.prune_images(&PruneRequest::default()).await.unwrap().blobs > 0);
    assert_eq!(member.images().await.unwrap().len(), 2);
    let all = root.verify_image(&by_name("app:v1"), &mut |_| ()).await.unwrap();
    assert!(all.blocks > 0 && all.damages.is_empty());
    images.idle(END_TIMEOUT).await;
}

#[test]
fn secrets_are_not_shown() {
    let login = RegistryLogin {
        registry: "registry.example".to_owned(),
        user: "me".to_owned(),
        secret: "pass".to_owned(),
    };
    let given = RegistryAccess { logins: vec![login], authorities: None };
    assert!(!format!("{given:?} {:?}", access(given.clone()).unwrap()).contains("pass"));
}
