//! Address enforcement by a seccomp notifier: without control groups of version 2, a function's
//! system calls that contain an address wait until this module has answered them, whatever library
//! or language makes them.
//!
//! Invariant: a function receives a socket that is bound to its address: the socket is created
//! here, in the job's namespace. The arguments of other calls, such as `sendmsg`, are checked here
//! and read by the kernel afterwards. So two racing threads can use another address of the same job
//! on this host, and none outside of the job.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, socket_with};
use rustix::time::Timespec;
use snowmelt_kernel::namespace::{flags, join};
use snowmelt_kernel::notify::{CallAnswer, NotifiedCall, NotifyListener, calls};

use super::function::{NotifiedFunction, bind_address, check_waiting, copy_of, errno, is_death};
use super::pending_connections::PendingConnections;
use super::{datagram, message, rules, sockaddr};
use crate::Address;
use crate::devices::lock;

/// `SOCK_NONBLOCK` and `SOCK_CLOEXEC`.
const NONBLOCK: u64 = 0o4000;
const CLOEXEC: u64 = 0o2_000_000;

/// The limit on the wait for the thread at the end. A process that kept a copy of a listener (only
/// a subverted zygote can) may leave the thread blocked in a call.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The epoll key of the pipe that signals the end.
const END: u64 = 0;

/// Answers the calls of a job's functions, in one thread in its namespace.
#[derive(Debug)]
pub struct Notifier {
    shared: Arc<NotifierState>,
    /// The write end of the pipe; closing it ends the thread.
    end: Option<OwnedFd>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct NotifierState {
    /// The epoll set that the thread waits on.
    epoll: OwnedFd,
    functions: Mutex<BTreeMap<u64, Arc<NotifiedFunction>>>,
    next: AtomicU64,
}

impl Notifier {
    /// Starts the thread, with no functions.
    pub fn start(namespace: BorrowedFd<'_>) -> io::Result<Self> {
        let (ended, end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &ended, epoll::EventData::new_u64(END), epoll::EventFlags::IN)?;
        let functions = Mutex::default();
        let shared = Arc::new(NotifierState { epoll, functions, next: AtomicU64::new(END + 1) });
        // The thread enters the namespace itself: sockets are made in the namespace of the thread
        // that makes them.
        let namespace = namespace.try_clone_to_owned()?;
        let watched = shared.clone();
        let work = move || match join(namespace.as_fd(), flags::NETWORK) {
            // The descriptor would keep the namespace longer than its job.
            Ok(()) => {
                drop(namespace);
                watched.watch();
                drop(ended);
            }
            Err(error) => tracing::error!(%error, "system calls of functions are not answered"),
        };
        let thread = thread::Builder::new().name("network-notify".into()).spawn(work)?;
        Ok(Self { shared, end: Some(end), thread: Some(thread) })
    }

    /// Answers a function's calls from now on, until the function ends.
    pub fn add(&self, listener: NotifyListener, own: Address) -> io::Result<()> {
        // Before it is kept: a wrong descriptor would be found only when a function waits for its
        // answer.
        listener.check()?;
        let shared = &self.shared;
        let key = shared.next.fetch_add(1, Ordering::Relaxed);
        let function = Arc::new(NotifiedFunction { listener, own });
        // Before the thread can see its events, which it drops without an entry.
        lock(&shared.functions).insert(key, function.clone());
        let data = epoll::EventData::new_u64(key);
        let watched = epoll::add(&shared.epoll, &function.listener, data, epoll::EventFlags::IN);
        Ok(watched.inspect_err(|_| drop(lock(&shared.functions).remove(&key)))?)
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        // Closes the write end, which wakes the thread from its wait.
        self.end = None;
        let Some(thread) = self.thread.take() else { return };
        let deadline = Instant::now() + TIMEOUT;
        while !thread.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_micros(100));
        }
        if !thread.is_finished() {
            tracing::warn!("the thread that answers the calls of an ending job did not stop");
        }
    }
}

impl NotifierState {
    /// Handles events until the write end of the pipe is closed.
    fn watch(&self) {
        let mut events = Vec::with_capacity(64);
        let mut pending = PendingConnections::default();
        loop {
            events.clear();
            let timeout = pending.timeout().and_then(|time| Timespec::try_from(time).ok());
            let spare = rustix::buffer::spare_capacity(&mut events);
            // It fails only when a signal interrupts it.
            let _ = epoll::wait(&self.epoll, spare, timeout.as_ref());
            for event in &events {
                match event.data.u64() {
                    END => return,
                    key if PendingConnections::is_key(key) => pending.resume(&self.epoll, key),
                    key => self.handle(key, event.flags, &mut pending),
                }
            }
            if timeout.is_some() {
                pending.drop_expired(&self.epoll);
            }
        }
    }

    fn handle(&self, key: u64, flags: epoll::EventFlags, pending: &mut PendingConnections) {
        let Some(function) = lock(&self.functions).get(&key).cloned() else { return };
        let alive = flags.contains(epoll::EventFlags::IN) && self.answer_one(&function, pending);
        if !alive {
            // The function has ended, or the listener is not valid.
            let _ = epoll::delete(&self.epoll, &function.listener);
            pending.forget(&self.epoll, &function);
            lock(&self.functions).remove(&key);
        }
    }

    /// Answers one call. Returns false if there will be no other call. A caller that died is not an
    /// error: its answer is dropped.
    fn answer_one(
        &self,
        function: &Arc<NotifiedFunction>,
        pending: &mut PendingConnections,
    ) -> bool {
        let call = match function.listener.receive() {
            Ok(call) => call,
            Err(error) => return is_death(&error) || error.kind() == io::ErrorKind::Interrupted,
        };
        let decided = match call.number {
            calls::SOCKET => create_socket(function, &call),
            calls::CONNECT => self.connect(function, call, pending),
            calls::BIND => bind_for(function, &call).map(Some),
            calls::SEND_TO => datagram::send_to(function, &call).map(Some),
            calls::SEND_MESSAGE => datagram::send_message(function, &call).map(Some),
            _ => message::check(&call).map(Some),
        };
        match decided {
            Ok(Some(answer)) => function.answer(&call, Ok(answer)),
            Ok(None) => {}
            Err(error) => function.answer(&call, Err(error)),
        }
        true
    }

    /// A connection to the function itself is opened here, and may be answered later. All others
    /// are left to the kernel: the socket is bound already.
    fn connect(
        &self,
        function: &Arc<NotifiedFunction>,
        call: NotifiedCall,
        pending: &mut PendingConnections,
    ) -> Result<Option<CallAnswer>, Errno> {
        match prepare_connect(function, &call)? {
            Some((socket, to)) => pending.begin(&self.epoll, function, call, socket, to),
            None => Ok(Some(CallAnswer::Continue)),
        }
    }
}

/// Creates a socket for a function, bound to its address but without a port: so the kernel uses
/// this address to listen, connect or send, and a later bind can still choose the port.
fn create_socket(
    function: &NotifiedFunction,
    call: &NotifiedCall,
) -> Result<Option<CallAnswer>, Errno> {
    let socket = bound_socket(function.own, call.arguments)?;
    let closes = call.arguments[1] & CLOEXEC != 0;
    match function.listener.add_descriptor(call, socket.as_fd(), closes) {
        Err(error) if is_death(&error) => Ok(None),
        // The caller has no free descriptor, and gets the error.
        given => given.map(|()| None).map_err(errno),
    }
}

fn bound_socket(own: Address, [family, kind, protocol, ..]: [u64; 6]) -> Result<OwnedFd, Errno> {
    let (family, address) = match family {
        2 => (AddressFamily::INET, IpAddr::V4(own.v4)),
        _ => (AddressFamily::INET6, IpAddr::V6(own.v6)),
    };
    let blocks = kind & NONBLOCK == 0;
    let flags = if blocks { SocketFlags::empty() } else { SocketFlags::NONBLOCK };
    let (kind, protocol) = match (kind & 0xf, protocol) {
        (1, 0 | 6) => (SocketType::STREAM, ipproto::TCP),
        (2, 0 | 17) => (SocketType::DGRAM, ipproto::UDP),
        _ => return Err(Errno::PERM),
    };
    let socket = socket_with(family, kind, flags | SocketFlags::CLOEXEC, Some(protocol))?;
    bind_address(&socket, address)?;
    if address.is_ipv6() {
        // The kernel sets IPV6_V6ONLY on a socket that is bound to an IPv6 address.
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    Ok(socket)
}

/// Binds a function's socket to the address that the rules give. Never left to the kernel: when it
/// reads the call's memory, another address could be there.
fn bind_for(function: &NotifiedFunction, call: &NotifiedCall) -> Result<CallAnswer, Errno> {
    let [socket, address, length, ..] = call.arguments;
    let socket = copy_of(call, socket)?;
    let domain = sockopt::socket_domain(&socket)?;
    if domain != AddressFamily::INET && domain != AddressFamily::INET6 {
        return Ok(CallAnswer::Continue);
    }
    let wanted = sockaddr::read(call, address, length)?.ok_or(Errno::AFNOSUPPORT)?;
    check_waiting(function, call)?;
    let is_dual = domain == AddressFamily::INET6 && !sockopt::ipv6_v6only(&socket)?;
    let meant = rules::bind(function.own, wanted, is_dual).ok_or(Errno::ADDRNOTAVAIL)?;
    bind(&socket, &meant)?;
    Ok(CallAnswer::Value(0))
}

/// The socket and the address to connect it to, if it is not the address in the call.
fn prepare_connect(
    function: &NotifiedFunction,
    call: &NotifiedCall,
) -> Result<Option<(OwnedFd, SocketAddr)>, Errno> {
    let [socket, address, length, ..] = call.arguments;
    let Some(wanted) = sockaddr::read(call, address, length)? else { return Ok(None) };
    let socket = copy_of(call, socket)?;
    check_waiting(function, call)?;
    let meant = rules::connect(function.own, wanted);
    let source = rules::source(function.own, meant.ip());
    if source != IpAddr::V6(function.own.v6) && source.is_ipv6() {
        // An IPv6 socket that connects to IPv4 needs an IPv4 source; one with a port stays bound.
        let _ = bind_address(&socket, source);
    }
    Ok((meant != wanted).then_some((socket, meant)))
}
