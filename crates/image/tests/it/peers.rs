//! Blocks through trees of hosts, over real connections: each is read from the registry once, and
//! hosts that die, stall or lie delay a block and change nothing in it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use snowmelt_image::block::OciDigest;
use snowmelt_image::peer::{ExportProgress, Exports, Flow, HostSource, Patience, PeerHost};
use snowmelt_image::read::{BlockSource, Retried, RetryPolicy, conformance};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::lazy_mounts::noise;
use super::peer_hosts::{
    BYTES, Dial, Fault, Host, digest, faulty, noisy, registry_bytes, serve, short_wait,
};
use super::sources::{Fault as SourceFault, MemorySource};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_knows_how_much_of_an_image_it_has() {
    let (image, registry) = noisy();
    let host = Host::new(&image, &registry, None).await;
    let layer = image.layers[0].size;
    let of = layer + image.metadata.size;
    let progress = || host.exports.progress(&digest()).unwrap();
    assert_eq!(host.exports.progress(&digest()), None, "nothing is read yet");
    host.layer().read(0..1).await.unwrap();
    let begun = progress().here;
    assert!(begun > 0 && begun < layer, "{begun} of {layer}");
    host.read().await;
    assert_eq!(progress(), ExportProgress { here: layer, of }, "the metadata is not read");
    assert_eq!(host.exports.progress(&OciDigest::of(b"another")), None);
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
    let flow = child.flow();
    let opened = child.dial.opened.load(Ordering::Relaxed);
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
    let mut request = 163_u32.to_le_bytes().to_vec();
    request.extend_from_slice(image.as_str().as_bytes());
    request.extend_from_slice(blob.as_str().as_bytes());
    request.extend_from_slice(&range.start.to_le_bytes());
    request.extend_from_slice(&range.end.to_le_bytes());
    request.push(0);
    request.extend_from_slice(&10_000_u32.to_le_bytes());
    stream.write_all(&request).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    answer.into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_one_host_conforms() {
    let (image, registry) = noisy();
    let host = Host::new(&image, &registry, None).await;
    let layer = host.layer();
    let blob = layer.summary().digest.clone();
    let content = registry.blobs.iter().find(|(name, _)| *name == blob).unwrap().1.to_vec();
    // Each blob under its own digest, as files are.
    let exports = Arc::new(Exports::waiting_for(short_wait()));
    exports.add(&blob, [layer]);
    let address = serve(&exports).await;
    let whole = PeerHost { name: "control".to_owned(), address };
    let connect: Arc<Dial> = Arc::default();
    let source = HostSource::new(connect, whole, Patience::default());
    conformance::check(&source, &content).await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let gone = PeerHost { name: "control".to_owned(), address: gone };
    let connect: Arc<Dial> = Arc::default();
    let source = HostSource::new(connect, gone, Patience::default());
    let error = source.fetch(&blob, 0..1).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("control"), "{error}");
}

/// The registry never answers, and a request to it alone would be repeated for hours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_fails_within_its_time_below_hosts_that_wait_for_each_other() {
    let (image, registry) = noisy();
    let hours = Duration::from_secs(36_000);
    let policy = RetryPolicy { within: hours, attempt: hours, ..RetryPolicy::default() };
    let silent = || {
        let source = MemorySource { blobs: registry.blobs.clone(), ..MemorySource::default() };
        Arc::new(source.faults(&[SourceFault::Stall; 100]))
    };
    let patience = Patience { silence: hours, work: hours, ..Patience::default() };
    let second = Duration::from_secs(1);
    let (mut hosts, mut sources): (Vec<Host>, Vec<Arc<MemorySource>>) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let source = silent();
        let parent = hosts.last().map(|host| host.address);
        let origin = Arc::new(Retried::new(Arc::clone(&source), policy));
        hosts.push(Host::reading(&image, origin, &[parent], patience, second).await);
        sources.push(source);
    }
    let requests = || sources[2].requested.lock().unwrap().len();
    let error = hosts[2].layer().read(0..1000).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert_eq!(requests(), 1, "after its parent it asked the registry itself");
    // As the kernel does with a read that failed: it has one attempt, and waits for no other host.
    let before = sources[1].requested.lock().unwrap().len();
    assert!(hosts[2].layer().read(0..1000).await.is_err());
    assert_eq!((requests(), sources[1].requested.lock().unwrap().len()), (2, before));
    assert_eq!(hosts[2].flow().from_registry, 0);
}
