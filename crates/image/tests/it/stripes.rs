//! Images in stripes: what each host sends, and who is asked instead of a parent that is lost or
//! slow; what a host sends and keeps at most.

use std::sync::Arc;
use std::time::Duration;

use snowmelt_image::block::OciDigest;
use snowmelt_image::peer::{Exports, Flow, Patience, PeerHost};
use snowmelt_image::read::BlockSource;
use tokio::net::TcpListener;

use super::peer_hosts::{Fault, Host, digest, faulty, noisy, noisy_of, registry_bytes, serve};

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
        let place = stripe.iter().position(|member| *member == host).unwrap();
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
    let theirs = empty.flow().from_registry;
    let size = image.layers[0].size;
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
    let took = begun.elapsed().as_secs_f64();
    let sent = limited.sent()[&digest()];
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
async fn the_root_of_a_stripe_asks_the_host_that_used_the_image_alone_before_the_registry() {
    let (image, registry) = noisy_of(8 << 20);
    let warm = Host::new(&image, &registry, None).await;
    let expected = warm.read().await;
    // Each is the root of a stripe, and each other's child in the other one.
    let own = Arc::new(registry.again());
    let fresh = Host::new(&image, &own, None).await;
    let beside = |address| Some(PeerHost { name: "root".to_owned(), address });
    warm.place(&image, [None, Some(fresh.address)]);
    warm.upstreams.place_beside(&digest(), beside(fresh.address));
    fresh.place(&image, [Some(warm.address), None]);
    fresh.upstreams.place_beside(&digest(), beside(warm.address));
    assert!(fresh.read().await == expected);
    assert_eq!((registry_bytes(&own), fresh.flow().failures), (0, 0));
    // Two that have nothing read from the registry, and do not wait for each other.
    let own = Arc::new(registry.again());
    let both = [Host::new(&image, &own, None).await, Host::new(&image, &own, None).await];
    both[0].place(&image, [None, Some(both[1].address)]);
    both[1].place(&image, [Some(both[0].address), None]);
    for (host, other) in [(&both[0], &both[1]), (&both[1], &both[0])] {
        host.upstreams.place_beside(&digest(), beside(other.address));
    }
    let (one, other) = tokio::join!(both[0].read(), both[1].read());
    assert!(one == expected && other == expected);
    assert_eq!(registry_bytes(&own), image.layers[0].size);
}
