//! Hosts that read an image from each other over real connections, and faults between them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use snowmelt_image::block::OciDigest;
use snowmelt_image::mount::ImageReaders;
use snowmelt_image::peer::{
    Connect, Exports, Flow, Patience, PeerHost, PeerLink, PeerSource, Upstreams,
};
use snowmelt_image::read::{BlobReader, BlockCache, BlockSource, BlockStore};
use snowmelt_image::{Image, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::lazy_mounts::{archive, image, noise};
use super::sources::MemorySource;

pub const BYTES: usize = 3 << 20;

/// Connections over TCP, counted.
#[derive(Default)]
pub struct Dial {
    pub opened: AtomicUsize,
}

#[async_trait]
impl Connect for Dial {
    async fn connect(&self, host: &PeerHost) -> Result<Box<dyn PeerLink>> {
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
pub fn noisy() -> (Image, Arc<MemorySource>) {
    noisy_of(BYTES)
}

pub fn noisy_of(bytes: usize) -> (Image, Arc<MemorySource>) {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("a"), noise(1, bytes)).unwrap();
    let (image, source) = image(&[archive(scratch.path())]);
    (image, Arc::new(source))
}

pub fn digest() -> OciDigest {
    OciDigest::of(b"the manifest")
}

/// A host that reads the image from its parent or the registry, and serves it.
pub struct Host {
    pub readers: ImageReaders,
    pub source: Arc<PeerSource>,
    pub upstreams: Arc<Upstreams>,
    pub exports: Arc<Exports>,
    pub dial: Arc<Dial>,
    pub address: SocketAddr,
    _cache: tempfile::TempDir,
}

impl Host {
    pub async fn new(
        image: &Image,
        registry: &Arc<MemorySource>,
        parent: Option<SocketAddr>,
    ) -> Self {
        let short = Duration::from_millis(300);
        let patience = Patience { silence: short, rest: short, ..Patience::default() };
        Self::with(image, registry, &[parent], patience).await
    }

    pub async fn patient(
        image: &Image,
        registry: &Arc<MemorySource>,
        parent: Option<SocketAddr>,
        patience: Patience,
    ) -> Self {
        Self::with(image, registry, &[parent], patience).await
    }

    /// With a parent for each stripe.
    pub async fn with(
        image: &Image,
        registry: &Arc<MemorySource>,
        parents: &[Option<SocketAddr>],
        patience: Patience,
    ) -> Self {
        let usual = Duration::from_secs(45);
        Self::reading(image, Arc::clone(registry) as _, parents, patience, usual).await
    }

    /// With this time for a read.
    pub async fn reading(
        image: &Image,
        origin: Arc<dyn BlockSource>,
        parents: &[Option<SocketAddr>],
        patience: Patience,
        within: Duration,
    ) -> Self {
        let dial = Arc::new(Dial::default());
        let upstreams = Arc::new(Upstreams::new(Arc::clone(&dial) as _, patience));
        let named = |address| PeerHost { name: "parent".to_owned(), address };
        let parents = parents.iter().map(|parent| parent.map(named));
        let blobs = image.layers.iter().chain([&image.metadata]).map(|blob| blob.digest.clone());
        upstreams.place(&digest(), blobs, parents);
        let source = Arc::new(PeerSource::new(origin, Arc::clone(&upstreams)));
        let folder = tempfile::tempdir().unwrap();
        let cache = Arc::new(BlockCache::open(folder.path(), 1 << 30).unwrap());
        let blocks = BlockStore::new(Arc::clone(&source) as _, Some(cache)).reading_within(within);
        let blocks = Arc::new(blocks);
        let readers = ImageReaders::new(image, &blocks).unwrap();
        let exports = Arc::new(Exports::waiting_for(short_wait()));
        exports.add(&digest(), readers.all());
        let address = serve(&exports).await;
        Self { readers, source, upstreams, exports, dial, address, _cache: folder }
    }

    pub fn layer(&self) -> Arc<BlobReader> {
        self.readers.all().nth(1).unwrap()
    }

    /// Reads the whole layer.
    pub async fn read(&self) -> Vec<u8> {
        self.layer().read(0..self.layer().raw_size()).await.unwrap()
    }

    /// Reads each stripe from another host.
    pub fn place(&self, image: &Image, parents: [Option<SocketAddr>; 2]) {
        let named = |address: SocketAddr| PeerHost { name: address.to_string(), address };
        let blobs = image.layers.iter().map(|blob| blob.digest.clone());
        self.upstreams.place(&digest(), blobs, parents.map(|parent| parent.map(named)));
    }

    pub fn flow(&self) -> Flow {
        self.upstreams.flows()[0].1
    }
}

pub fn short_wait() -> Duration {
    Duration::from_millis(100)
}

pub async fn serve(exports: &Arc<Exports>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let exports = Arc::clone(exports);
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
pub enum Fault {
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
pub async fn faulty(to: SocketAddr, fault: Fault) -> SocketAddr {
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

pub async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    fault: Fault,
) {
    let mut passed = 0;
    let mut buffer = vec![0; 16 << 10];
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

pub fn registry_bytes(source: &MemorySource) -> u64 {
    source.bytes.load(Ordering::Relaxed)
}
