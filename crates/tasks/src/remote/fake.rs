//! A host for tests, which speaks the protocol of an agent over real connections, as the test says.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use snowmelt_node::TreePlace;
use snowmelt_rpc::HostStream;
use snowmelt_types::{ByteSize, CpuMillis, ErrorReport, HostName, Tenant};
use snowmelt_wire::{Frame, Kind, MAX_REQUEST_BYTES, read_frame_within, write_frame};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

use super::session::Session;
use crate::file_rights::FileRights;
use crate::peers::messages::{OpenQuery, QueryOpened, SESSION, SessionAsk, SessionRequest};
use crate::peers::{Peer, Peers, TaskNeeds, TaskPlace};

/// A host whose connections the test serves.
#[derive(Debug)]
pub(crate) struct FakePeer {
    pub name: HostName,
    address: SocketAddr,
    listener: Mutex<TcpListener>,
    connections: mpsc::UnboundedSender<(String, HostStream)>,
    pub lost: CancellationToken,
    /// True if the process of the host has ended, while its silence is not long enough yet to count
    /// as lost.
    pub has_ended: AtomicBool,
}

/// The agent's ends of the connections to a fake host, each with its path.
pub(crate) type Connections = mpsc::UnboundedReceiver<(String, HostStream)>;

impl FakePeer {
    pub async fn new(name: &str) -> (Arc<Self>, Connections) {
        let (connections, taken) = mpsc::unbounded_channel();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let listener = Mutex::new(listener);
        let name = name.to_owned().try_into().unwrap();
        let lost = CancellationToken::new();
        let has_ended = AtomicBool::new(false);
        (Arc::new(Self { name, address, listener, connections, lost, has_ended }), taken)
    }
}

#[async_trait]
impl Peer for FakePeer {
    fn name(&self) -> HostName {
        self.name.clone()
    }

    fn address(&self) -> Option<SocketAddr> {
        Some(self.address)
    }

    fn cores(&self) -> u32 {
        1
    }

    async fn connect(&self, path: &str) -> Result<HostStream, ErrorReport> {
        let listener = self.listener.lock().await;
        let near = TcpStream::connect(self.address).await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        // The test may be over.
        let _ = self.connections.send((path.to_owned(), HostStream::accepted(far)));
        Ok(HostStream::opened(near))
    }

    async fn lost(&self) {
        self.lost.cancelled().await;
    }

    async fn is_there(&self) -> bool {
        !self.has_ended.load(Ordering::Relaxed)
    }
}

/// Fake hosts of a cluster, beside control's own.
#[derive(Debug)]
pub(crate) struct FakePeers(pub Vec<Arc<FakePeer>>);

impl Peers for FakePeers {
    fn others(&self) -> Vec<Arc<dyn Peer>> {
        self.0.iter().map(|peer| Arc::clone(peer) as _).collect()
    }

    fn own_name(&self) -> HostName {
        "control".to_owned().try_into().unwrap()
    }

    fn own_address(&self) -> Option<SocketAddr> {
        None
    }

    fn tree_place(&self, _: &str, _: &HostName) -> Option<TreePlace> {
        None
    }

    fn join_tree(&self, _: &str, _: &[HostName]) {}

    fn task(&self, _: TaskNeeds) -> Option<Box<dyn TaskPlace>> {
        None
    }

    fn tasks(&self, _: Vec<(TaskNeeds, HostName)>) -> Result<Vec<Box<dyn TaskPlace>>, HostName> {
        Ok(Vec::new())
    }

    fn uses(&self, _: &Tenant, _: &HostName) -> Option<Box<dyn TaskPlace>> {
        None
    }
}

pub(crate) fn order() -> OpenQuery {
    OpenQuery {
        query: "q".to_owned(),
        tenant: Tenant::default(),
        rights: FileRights::default(),
        memory: ByteSize::mib(1),
        cpu: CpuMillis(1000),
        elapsed_us: 0,
        udfs: Vec::new(),
        files: Vec::new(),
        control: None,
    }
}

/// Accepts the next connection, which must be for this path.
pub(crate) async fn connection(connections: &mut Connections, path: &str) -> HostStream {
    let (found, stream) = connections.recv().await.unwrap();
    assert_eq!(found, path);
    stream
}

/// Reads the next message of control.
pub(crate) async fn heard<T: DeserializeOwned>(stream: &mut HostStream) -> T {
    let frame = read_frame_within(stream, MAX_REQUEST_BYTES).await.unwrap();
    frame.unwrap().expect(Kind::Request, "Request").unwrap().parse().unwrap()
}

/// Reads the next request of control in a session.
pub(crate) async fn asked(session: &mut HostStream) -> SessionAsk {
    heard::<SessionRequest>(session).await.ask
}

pub(crate) async fn say(stream: &mut HostStream, answer: &impl Serialize) {
    write_frame(stream, &Frame::json(Kind::Reply, answer).unwrap()).await.unwrap();
}

/// Opens the session that control asks for.
pub(crate) async fn open(connections: &mut Connections) -> HostStream {
    let mut stream = connection(connections, SESSION).await;
    heard::<OpenQuery>(&mut stream).await;
    let opened: Result<_, ErrorReport> = Ok(QueryOpened { refused: [].into() });
    say(&mut stream, &opened).await;
    stream
}

/// Returns a host with an open session, and the agent's end of the session.
pub(crate) async fn opened(name: &str) -> (Arc<FakePeer>, Connections, Arc<Session>, HostStream) {
    let (peer, mut connections) = FakePeer::new(name).await;
    let asked = order();
    let patience = std::time::Duration::MAX;
    let opening = Session::open(Arc::clone(&peer) as _, &asked, patience);
    let (session, stream) = tokio::join!(opening, open(&mut connections));
    (peer, connections, Arc::new(session.unwrap()), stream)
}
