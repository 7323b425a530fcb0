//! Blocks through trees of hosts, over real connections: each is read from the registry once, and
//! hosts that die, stall or lie delay a block and change nothing in it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use snowmelt_image::block::OciDigest;
use snowmelt_image::mount::Readers;
use snowmelt_image::peer::{
    Connect, Exports, Flow, Link, Patience, PeerHost, PeerSource, Upstreams,
};
use snowmelt_image::read::{BlobReader, BlockCache, BlockSource, Blocks, conformance};
use snowmelt_image::{Image, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::lazy::{archive, image, noise};
use super::sources::{Fault as SourceFault, MemorySource};

const BYTES: usize = 3 << 20;

/// Connections over TCP, counted.
#[derive(Default)]
struct Dial {
    opened: AtomicUsize,
}

#[async_trait]
impl Connect for Dial {
    async fn connect(&self, host: &PeerHost) -> Result<Box<dyn Link>> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        let connected = TcpStream::connect(host.address).await;
        let stream = connected.map_err(|error| snowmelt_image::Error::Unreachable {
            what: host.to_string(),
            reason: error.to_string(),
            after: None,
        })?;
        Ok(Box::new(stream))
    }
}

/// An image with one layer that cannot be compressed, and its blobs.
fn noisy() -> (Image, Arc<MemorySource>) {
    noisy_of(BYTES)
}

fn noisy_of(bytes: usize) -> (Image, Arc<MemorySource>) {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("a"), noise(1, bytes)).unwrap();
    let (image, source) = image(&[archive(scratch.path())]);
    (image, Arc::new(source))
}

fn digest() -> OciDigest {
    OciDigest::of(b"the manifest")
}

/// A host that reads the image from its parent or the registry, and serves it.
struct Host {
    readers: Readers,
    source: Arc<PeerSource>,
    upstreams: Arc<Upstreams>,
    exports: Arc<Exports>,
    dial: Arc<Dial>,
    address: SocketAddr,
    _cache: tempfile::TempDir,
}

impl Host {
    async fn new(image: &Image, registry: &Arc<MemorySource>, parent: Option<SocketAddr>) -> Self {
        Self::hasty(image, registry, &[parent]).await
    }

    async fn hasty(
        image: &Image,
        registry: &Arc<MemorySource>,
        parents: &[Option<SocketAddr>],
    ) -> Self {
        let short = Duration::from_millis(300);
        let patience = Patience { silence: short, rest: short, ..Patience::default() };
        Self::with(image, registry, parents, patience).await
    }

    async fn patient(
        image: &Image,
        registry: &Arc<MemorySource>,
        parent: Option<SocketAddr>,
        patience: Patience,
    ) -> Self {
        Self::with(image, registry, &[parent], patience).await
    }

    /// With a parent for each stripe.
    async fn with(
        image: &Image,
        registry: &Arc<MemorySource>,
        parents: &[Option<SocketAddr>],
        patience: Patience,
    ) -> Self {
        let dial = Arc::new(Dial::default());
        let upstreams = Arc::new(Upstreams::new(Arc::clone(&dial) as _, patience));
        let named = |address| PeerHost { name: "parent".to_owned(), address };
        let parents = parents.iter().map(|parent| parent.map(named));
        let blobs = image.layers.iter().chain([&image.metadata]).map(|blob| blob.digest.clone());
        upstreams.place(&digest(), blobs, parents);
        let source = Arc::new(PeerSource::new(Arc::clone(registry) as _, Arc::clone(&upstreams)));
        let folder = tempfile::tempdir().unwrap();
        let cache = Arc::new(BlockCache::open(folder.path(), 1 << 30).unwrap());
        let blocks = Arc::new(Blocks::new(Arc::clone(&source) as _, Some(cache)));
        let readers = Readers::new(image, &blocks).unwrap();
        let exports = Arc::new(Exports::waiting_for(short_wait()));
        exports.add(&digest(), readers.all());
        let address = serve(&exports).await;
        Self { readers, source, upstreams, exports, dial, address, _cache: folder }
    }

    fn layer(&self) -> Arc<BlobReader> {
        self.readers.all().nth(1).unwrap()
    }

    /// Reads the whole layer.
    async fn read(&self) -> Vec<u8> {
        self.layer().read(0..self.layer().raw_size()).await.unwrap()
    }

    /// Reads each stripe from another host.
    fn place(&self, image: &Image, parents: [Option<SocketAddr>; 2]) {
        let named = |address: SocketAddr| PeerHost { name: address.to_string(), address };
        let blobs = image.layers.iter().map(|blob| blob.digest.clone());
        self.upstreams.place(&digest(), blobs, parents.map(|parent| parent.map(named)));
    }

    fn flow(&self) -> Flow {
        self.upstreams.flows()[0].1
    }
}

fn short_wait() -> Duration {
    Duration::from_millis(100)
}

async fn serve(exports: &Arc<Exports>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, exports) = (listener.local_addr().unwrap(), Arc::clone(exports));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let exports = Arc::clone(&exports);
            tokio::spawn(async move { exports.serve(stream).await });
        }
    });
    address
}

/// What a host between two others does to the bytes of an answer.
#[derive(Clone, Copy)]
enum Fault {
    /// Ends each connection after so many bytes.
    Cut(usize),
    /// Sends nothing after so many bytes.
    Stall(usize),
    /// Changes the byte at this place of each connection.
    Flip(usize),
    /// Sends so few bytes a second.
    Slow(u64),
}

/// A host that passes on what another one sends, with a fault.
async fn faulty(to: SocketAddr, fault: Fault) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((child, _)) = listener.accept().await {
            tokio::spawn(async move {
                let parent = TcpStream::connect(to).await.unwrap();
                let (mut from_child, to_child) = child.into_split();
                let (from_parent, mut to_parent) = parent.into_split();
                tokio::spawn(async move {
                    tokio::io::copy(&mut from_child, &mut to_parent).await.ok();
                });
                pass(from_parent, to_child, fault).await;
            });
        }
    });
    address
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    fault: Fault,
) {
    let (mut passed, mut buffer) = (0, vec![0; 16 << 10]);
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let mut count = count;
        match fault {
            Fault::Flip(at) if (passed..passed + count).contains(&at) => buffer[at - passed] ^= 1,
            Fault::Cut(at) | Fault::Stall(at) if passed + count >= at => count = at - passed,
            _ => {}
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
        passed += count;
        match fault {
            Fault::Slow(rate) => {
                let takes = count as f64 / rate as f64;
                tokio::time::sleep(Duration::from_secs_f64(takes)).await;
            }
            Fault::Cut(at) if passed >= at => return,
            Fault::Stall(at) if passed >= at => std::future::pending().await,
            _ => {}
        }
    }
}

fn registry_bytes(source: &MemorySource) -> u64 {
    source.bytes.load(Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_with_a_parent_conforms() {
    let (image, registry) = noisy();
    let unused = Arc::new(registry.again());
    let patience = Patience::default();
    let parent = Host::patient(&image, &registry, None, patience).await;
    let child = Host::patient(&image, &unused, Some(parent.address), patience).await;
    let content = registry.blobs.iter().find(|(name, _)| *name == image.layers[0].digest);
    let content = content.unwrap().1.to_vec();
    conformance::check(&*child.source, &content).await;
    // What the parent refuses is asked of the registry, which refuses it too.
    assert_eq!(registry_bytes(&unused), 0);
    assert!(child.flow().from_parents > content.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_registry_sends_each_block_once_however_many_hosts_read_it() {
    let (image, registry) = noisy();
    let patience = Patience::default();
    let mut hosts: Vec<Host> = Vec::new();
    for index in 0..7_usize {
        let parent = index.checked_sub(1).map(|before| hosts[before / 2].address);
        hosts.push(Host::patient(&image, &registry, parent, patience).await);
    }
    // All at the same time, the leaves as well.
    let read = futures::future::join_all(hosts.iter().rev().map(Host::read)).await;
    let expected = read[0].clone();
    assert!(expected.windows(BYTES).step_by(512).any(|part| part == noise(1, BYTES)));
    assert!(read.iter().all(|content| *content == expected));
    let layer = &image.layers[0];
    assert_eq!(registry_bytes(&registry), layer.size);
    let sent = |host: &Host| host.exports.sent()[&digest()];
    for host in &hosts[..3] {
        assert_eq!(sent(host), 2 * layer.size, "to two children");
    }
    for host in &hosts[1..] {
        let Flow { from_parents, from_registry, failures, wrong_blocks, .. } = host.flow();
        assert_eq!((from_parents, from_registry, failures, wrong_blocks), (layer.size, 0, 0, 0));
    }
}

/// The hosts of two stripes by breadth, as `snowmelt_tree::Striped` has them.
const STRIPES: [[usize; 6]; 2] = [[0, 2, 4, 3, 1, 5], [1, 3, 5, 0, 4, 2]];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_stripes_no_host_sends_much_more_than_the_image() {
    let (image, registry) = noisy_of(16 << 20);
    let mut hosts: Vec<Host> = Vec::new();
    for _ in 0..6 {
        hosts.push(Host::patient(&image, &registry, None, Patience::default()).await);
    }
    let parent = |stripe: [usize; 6], host: usize| {
        let place = stripe.iter().position(|it| *it == host).unwrap();
        Some(hosts[stripe[place.checked_sub(1)? / 2]].address)
    };
    for (number, host) in hosts.iter().enumerate() {
        host.place(&image, STRIPES.map(|stripe| parent(stripe, number)));
    }
    // All at the same time: each waits for others, some for each other.
    let read = futures::future::join_all(hosts.iter().rev().map(Host::read)).await;
    assert!(read.iter().all(|content| *content == read[0]));
    let size = image.layers[0].size;
    assert_eq!(registry_bytes(&registry), size);
    let flows: Vec<Flow> = hosts.iter().map(Host::flow).collect();
    for (host, flow) in hosts.iter().zip(&flows) {
        assert_eq!((flow.failures, flow.from_parents + flow.from_registry), (0, size), "{flows:?}");
        let sent = host.exports.sent()[&digest()];
        assert!(sent < size * 5 / 4, "{sent} of {size}: {flows:?}");
    }
    assert!(flows.iter().filter(|flow| flow.from_registry > size / 3).count() == 2, "{flows:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_parent_of_another_stripe_sends_what_it_has_instead_of_a_lost_one() {
    let (image, registry) = noisy_of(8 << 20);
    let full = Host::new(&image, &registry, None).await;
    let expected = full.read().await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let stalling = faulty(full.address, Fault::Stall(100_000)).await;
    for failing in [gone, stalling] {
        for parents in [[Some(failing), Some(full.address)], [Some(full.address), Some(failing)]] {
            let own = Arc::new(registry.again());
            let child = Host::new(&image, &own, None).await;
            child.place(&image, parents);
            assert!(child.read().await == expected);
            let flow = child.flow();
            assert!(flow.failures > 0 && flow.from_parents >= image.layers[0].size, "{flow:?}");
            assert_eq!(registry_bytes(&own), 0, "{flow:?}");
        }
    }
    // One that has nothing yet does not read the stripe for it: it could wait for this host itself.
    let own = Arc::new(registry.again());
    let empty = Host::new(&image, &own, None).await;
    let child = Host::new(&image, &own, None).await;
    child.place(&image, [Some(gone), Some(empty.address)]);
    assert!(child.read().await == expected);
    let (theirs, size) = (empty.flow().from_registry, image.layers[0].size);
    assert!(theirs > 0 && theirs < size * 3 / 4, "{theirs}");
    assert_eq!(registry_bytes(&own), child.flow().from_registry + theirs);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_that_gives_less_than_half_of_its_share_is_left() {
    let (image, registry) = noisy_of(16 << 20);
    let full = Host::new(&image, &registry, None).await;
    let expected = full.read().await;
    // The whole image would take minutes over this link.
    let slow = faulty(full.address, Fault::Slow(64 << 10)).await;
    let own = Arc::new(registry.again());
    let patience = Patience { proven: Duration::from_millis(500), ..Patience::default() };
    let child = Host::patient(&image, &own, None, patience).await;
    let mut parents = [Some(full.address), Some(slow)];
    child.place(&image, parents);
    // The first blocks come from the other one, and show what the link of this host gives.
    if child.source.stripe(&image.layers[0].digest, 0) == 1 {
        parents.reverse();
        child.place(&image, parents);
    }
    assert!(child.read().await == expected);
    let flow = child.flow();
    assert!(flow.failures > 0 && flow.wrong_blocks == 0, "{flow:?}");
    assert_eq!(registry_bytes(&own), 0, "the other parent has all: {flow:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_registry_goes_on_where_a_parent_breaks_off() {
    let (image, registry) = noisy();
    let parent = Host::new(&image, &registry, None).await;
    let expected = parent.read().await;
    for fault in [Fault::Cut(0), Fault::Cut(200_000), Fault::Stall(0), Fault::Stall(200_000)] {
        let between = faulty(parent.address, fault).await;
        let own = Arc::new(registry.again());
        let child = Host::new(&image, &own, Some(between)).await;
        assert!(child.read().await == expected);
        let flow = child.flow();
        assert!(flow.failures > 0 && flow.wrong_blocks == 0, "{flow:?}");
        assert!(flow.from_registry > 0 && flow.from_registry == registry_bytes(&own), "{flow:?}");
        assert!(flow.from_parents + flow.from_registry < 2 * image.layers[0].size, "{flow:?}");
    }
    // Nobody listens there.
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let child = Host::new(&image, &registry, Some(gone)).await;
    assert!(child.read().await == expected && child.flow().from_parents == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_sends_a_wrong_block_is_not_asked_again() {
    let (image, registry) = noisy();
    let parent = Host::new(&image, &registry, None).await;
    let expected = parent.read().await;
    let liar = faulty(parent.address, Fault::Flip(150_000)).await;
    let own = Arc::new(registry.again());
    let child = Host::new(&image, &own, Some(liar)).await;
    assert!(child.read().await == expected);
    let (flow, opened) = (child.flow(), child.dial.opened.load(Ordering::Relaxed));
    assert!(flow.wrong_blocks >= 1 && flow.from_registry > 0, "{flow:?}");
    // A new place below the same host, and another image below it, change nothing.
    let host = PeerHost { name: "parent".to_owned(), address: liar };
    child.upstreams.place(&digest(), [image.layers[0].digest.clone()], [Some(host)]);
    child.source.fetch(&image.layers[0].digest, 0..1000).await.unwrap();
    assert_eq!(child.dial.opened.load(Ordering::Relaxed), opened);
    // Below an honest host it reads from that one.
    let host = PeerHost { name: "other".to_owned(), address: parent.address };
    child.upstreams.place(&digest(), [image.layers[0].digest.clone()], [Some(host)]);
    let before = registry_bytes(&own);
    child.source.fetch(&image.layers[0].digest, 0..1000).await.unwrap();
    assert_eq!(registry_bytes(&own), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_waits_for_a_parent_that_is_at_work_and_not_for_ever() {
    let (image, registry) = noisy();
    let stalled = |count| {
        let source = MemorySource { blobs: registry.blobs.clone(), ..MemorySource::default() };
        Arc::new(source.faults(&vec![SourceFault::Stall; count]))
    };
    // The parent's own source never answers, and the parent says so.
    let parent = Host::new(&image, &stalled(100), None).await;
    let second = Duration::from_secs(1);
    let patience = Patience { silence: 20 * second, work: 3 * second, ..Patience::default() };
    let child = Host::patient(&image, &registry, Some(parent.address), patience).await;
    child.source.fetch(&image.layers[0].digest, 0..1000).await.unwrap();
    let flow = child.flow();
    assert_eq!((flow.failures, flow.from_parents, flow.from_registry), (1, 0, 1000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_sends_no_more_than_the_share_of_its_link() {
    let (image, registry) = noisy();
    let host = Host::new(&image, &registry, None).await;
    host.read().await;
    let rate = 2 << 20;
    let limited = Arc::new(Exports::limited(Some(rate)));
    limited.add(&digest(), host.readers.all());
    let address = serve(&limited).await;
    let begun = std::time::Instant::now();
    let children =
        [0, 1].map(|_| Host::patient(&image, &registry, Some(address), Patience::default()));
    let children = futures::future::join_all(children).await;
    let read = futures::future::join_all(children.iter().map(Host::read)).await;
    assert!(read[0] == read[1]);
    let (took, sent) = (begun.elapsed().as_secs_f64(), limited.sent()[&digest()]);
    assert_eq!(sent, 2 * image.layers[0].size);
    // The last block is sent when those before it are paid for.
    let least = (sent - (1 << 20)) as f64 / rate as f64 - 0.1;
    assert!(took > least, "{took} s instead of {least}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_that_were_used_longest_ago_are_forgotten() {
    let (image, registry) = noisy();
    let host = Host::new(&image, &registry, None).await;
    let numbered = |number: usize| OciDigest::of(number.to_string().as_bytes());
    for number in 0..1000 {
        host.exports.add(&numbered(number), host.readers.all());
        host.upstreams.place(&numbered(number), [numbered(number)], [None]);
    }
    assert!(!host.exports.has(&digest()) && host.exports.has(&numbered(0)));
    assert_eq!(host.exports.sent().len(), 1000);
    assert_eq!(host.upstreams.flows().len(), 1000);
    // The registry still has it.
    assert!(!host.read().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_blobs_of_images_with_a_place_are_served() {
    let (image, registry) = noisy();
    let host = Host::new(&image, &registry, None).await;
    let layer = &image.layers[0].digest;
    let missing = ask(host.address, &OciDigest::of(b"another"), layer, 0..10).await;
    assert_eq!(missing, [0, 0, 0, 0, 1, 0, 0][..]);
    let missing = ask(host.address, &digest(), &OciDigest::of(b"no blob"), 0..10).await;
    assert_eq!(missing, [0, 0, 0, 0, 1, 0, 0][..]);
    let refused = ask(host.address, &digest(), layer, 0..u64::MAX).await;
    assert_eq!(refused, [0, 0, 0, 0, 2, 0, 0][..]);
    assert_eq!(registry_bytes(&registry), 0, "nothing was read for them");
    let mut stream = TcpStream::connect(host.address).await.unwrap();
    stream.write_all(&u32::MAX.to_le_bytes()).await.unwrap();
    assert!(stream.read(&mut [0]).await.is_ok_and(|count| count == 0), "it is closed");
    let piece = ask(host.address, &digest(), layer, 0..10).await;
    let (_, blob) = registry.blobs.iter().find(|(name, _)| name == layer).unwrap();
    assert_eq!(piece, [&10_u32.to_le_bytes()[..], &blob[..10]].concat());
}

/// The answer to one request, as it arrives.
async fn ask(
    address: SocketAddr,
    image: &OciDigest,
    blob: &OciDigest,
    range: std::ops::Range<u64>,
) -> Bytes {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut request = 159_u32.to_le_bytes().to_vec();
    request.extend_from_slice(image.as_str().as_bytes());
    request.extend_from_slice(blob.as_str().as_bytes());
    request.extend_from_slice(&range.start.to_le_bytes());
    request.extend_from_slice(&range.end.to_le_bytes());
    request.push(0);
    stream.write_all(&request).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    answer.into()
}
