//! Functions by a filter of their system calls: where there are no control groups of version 2, a
//! function's calls that name an address wait until this has answered them, whatever library or
//! language they come from.
//!
//! Invariant: no socket of a function is ever without its address. It is made here, in the job's
//! namespace, and has its function's address before the function has it; what a race between two
//! of the function's threads can reach is then no more than its own.

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
use snowmelt_kernel::notify::{self, Answer, Call, Listener, calls};
use snowmelt_kernel::socket::set_bind_address_only;

use super::connecting::Connecting;
use super::{datagram, message, rules, target};
use crate::Address;
use crate::host::lock;

/// Bits beside the kind of a socket.
const NONBLOCK: u64 = 0o4000;
const CLOEXEC: u64 = 0o2_000_000;

/// How long to wait for the thread at the end. It is not waited for without a limit: who kept a
/// copy of a listener, as only a zygote that was subverted can, may leave it without an answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// What the end of all is known by among the functions.
const END: u64 = 0;

/// Answers the calls of a job's functions, by one thread in its namespace.
#[derive(Debug)]
pub struct Guard {
    shared: Arc<Shared>,
    /// Closed when there are to be no functions any more.
    end: Option<OwnedFd>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// What the thread waits at.
    epoll: OwnedFd,
    functions: Mutex<BTreeMap<u64, Arc<Function>>>,
    next: AtomicU64,
}

/// A function whose calls are answered.
#[derive(Debug)]
pub(super) struct Function {
    pub listener: Listener,
    pub own: Address,
}

impl Guard {
    /// Starts with no functions.
    pub fn start(namespace: BorrowedFd<'_>) -> io::Result<Self> {
        let (ended, end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &ended, epoll::EventData::new_u64(END), epoll::EventFlags::IN)?;
        let functions = Mutex::default();
        let shared = Arc::new(Shared { epoll, functions, next: AtomicU64::new(END + 1) });
        let namespace = namespace.try_clone_to_owned()?;
        let watched = shared.clone();
        let work = move || match join(namespace.as_fd(), flags::NETWORK) {
            // Kept, it would hold the namespace longer than its job.
            Ok(()) => {
                drop(namespace);
                watched.watch();
                drop(ended);
            }
            Err(error) => tracing::error!(%error, "functions are not answered"),
        };
        let thread = thread::Builder::new().name("network-guard".into()).spawn(work)?;
        Ok(Self { shared, end: Some(end), thread: Some(thread) })
    }

    /// Answers a function's calls from now on, until it ends.
    pub fn add(&self, listener: Listener, own: Address) -> io::Result<()> {
        listener.check()?;
        let shared = &self.shared;
        let key = shared.next.fetch_add(1, Ordering::Relaxed);
        let function = Arc::new(Function { listener, own });
        lock(&shared.functions).insert(key, function.clone());
        let data = epoll::EventData::new_u64(key);
        let watched = epoll::add(&shared.epoll, &function.listener, data, epoll::EventFlags::IN);
        Ok(watched.inspect_err(|_| drop(lock(&shared.functions).remove(&key)))?)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.end = None;
        let Some(thread) = self.thread.take() else { return };
        let deadline = Instant::now() + PATIENCE;
        while !thread.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_micros(100));
        }
        if !thread.is_finished() {
            tracing::warn!("a function of an ending job waits for no answer");
        }
    }
}

impl Shared {
    /// Until the other end of the pipe is closed.
    fn watch(&self) {
        let mut events = Vec::with_capacity(64);
        let mut connecting = Connecting::default();
        loop {
            events.clear();
            let patience = connecting.patience().and_then(|time| Timespec::try_from(time).ok());
            let spare = rustix::buffer::spare_capacity(&mut events);
            // It fails for a signal only.
            let _ = epoll::wait(&self.epoll, spare, patience.as_ref());
            for event in &events {
                match event.data.u64() {
                    END => return,
                    key if Connecting::is_key(key) => connecting.go_on(&self.epoll, key),
                    key => self.hear(key, event.flags, &mut connecting),
                }
            }
            if patience.is_some() {
                connecting.look(&self.epoll);
            }
        }
    }

    fn hear(&self, key: u64, flags: epoll::EventFlags, connecting: &mut Connecting) {
        let Some(function) = lock(&self.functions).get(&key).cloned() else { return };
        let heard = flags.contains(epoll::EventFlags::IN) && self.answer_one(&function, connecting);
        if !heard {
            // It has ended, or what it is heard by is none.
            let _ = epoll::delete(&self.epoll, &function.listener);
            connecting.forget(&self.epoll, &function);
            lock(&self.functions).remove(&key);
        }
    }

    /// False if there will be no other call. A caller that died is no error: nobody waits for the
    /// answer.
    fn answer_one(&self, function: &Arc<Function>, connecting: &mut Connecting) -> bool {
        let call = match function.listener.receive() {
            Ok(call) => call,
            Err(error) => return is_death(&error) || error.kind() == io::ErrorKind::Interrupted,
        };
        let decided = match call.number {
            calls::SOCKET => give_socket(function, &call),
            calls::CONNECT => self.connect(function, call, connecting),
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
    /// are left to the kernel: the socket has its address already.
    fn connect(
        &self,
        function: &Arc<Function>,
        call: Call,
        connecting: &mut Connecting,
    ) -> Result<Option<Answer>, Errno> {
        match prepare_connect(function, &call)? {
            Some(here) => connecting.begin(&self.epoll, (function, call), here),
            None => Ok(Some(Answer::Continue)),
        }
    }
}

impl Function {
    /// Answers a call. Nobody may wait for it any more, and nobody else is to be told.
    pub fn answer(&self, call: &Call, decided: Result<Answer, Errno>) {
        let answer = decided.unwrap_or_else(|error| Answer::Error(error.raw_os_error()));
        if let Err(error) = self.listener.answer(call, answer)
            && !is_death(&error)
        {
            tracing::debug!(%error, "a call of a function was not answered");
        }
    }
}

fn is_death(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOENT.raw_os_error())
}

/// Makes a socket for a function, with its address but without a port: so the kernel takes this
/// address when it listens, connects or sends, and to bind still gives it another port.
fn give_socket(function: &Function, call: &Call) -> Result<Option<Answer>, Errno> {
    let socket = make_socket(function.own, call.arguments)?;
    let closes = call.arguments[1] & CLOEXEC != 0;
    match function.listener.add_descriptor(call, socket.as_fd(), closes) {
        Err(error) if is_death(&error) => Ok(None),
        // The caller has as many descriptors as it may have, and waits to hear so.
        given => given.map(|()| None).map_err(errno),
    }
}

fn make_socket(own: Address, [family, kind, protocol, ..]: [u64; 6]) -> Result<OwnedFd, Errno> {
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
        // The kernel takes a socket with an address of IPv6 for one that wants no other.
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    Ok(socket)
}

/// Gives a socket that has no port yet its address.
pub(super) fn bind_address(socket: &OwnedFd, address: IpAddr) -> Result<(), Errno> {
    set_bind_address_only(socket, true).map_err(errno)?;
    let bound = bind(socket, &SocketAddr::new(address, 0));
    // Who binds port 0 from now on wants a port at once.
    set_bind_address_only(socket, false).map_err(errno)?;
    bound
}

/// Binds a function's socket to what it means. Never left to the kernel: by the time that it looks
/// there could be another address.
fn bind_for(function: &Function, call: &Call) -> Result<Answer, Errno> {
    let [socket, address, length, ..] = call.arguments;
    let socket = copy_of(call, socket)?;
    let domain = sockopt::socket_domain(&socket)?;
    if domain != AddressFamily::INET && domain != AddressFamily::INET6 {
        return Ok(Answer::Continue);
    }
    let wanted = target::read(call, address, length)?.ok_or(Errno::AFNOSUPPORT)?;
    still_waits(function, call)?;
    let is_dual = domain == AddressFamily::INET6 && !sockopt::ipv6_v6only(&socket)?;
    let meant = rules::bind(function.own, wanted, is_dual).ok_or(Errno::ADDRNOTAVAIL)?;
    bind(&socket, &meant)?;
    Ok(Answer::Value(0))
}

/// The socket and the address to connect it to, if that is not what the call says.
fn prepare_connect(
    function: &Function,
    call: &Call,
) -> Result<Option<(OwnedFd, SocketAddr)>, Errno> {
    let [socket, address, length, ..] = call.arguments;
    let Some(wanted) = target::read(call, address, length)? else { return Ok(None) };
    let socket = copy_of(call, socket)?;
    still_waits(function, call)?;
    let meant = rules::connect(function.own, wanted);
    let source = rules::source(function.own, meant.ip());
    if source != IpAddr::V6(function.own.v6) && source.is_ipv6() {
        // An IPv6 socket that goes to IPv4 needs the address of that; one that has a port stays.
        let _ = bind_address(&socket, source);
    }
    Ok((meant != wanted).then_some((socket, meant)))
}

pub(super) fn copy_of(call: &Call, number: u64) -> Result<OwnedFd, Errno> {
    let number = i32::try_from(number as u32).map_err(|_| Errno::BADF)?;
    notify::copy_descriptor(call.thread, number).map_err(errno)
}

/// Else the thread is another one's by now, and so is what was read of it.
pub(super) fn still_waits(function: &Function, call: &Call) -> Result<(), Errno> {
    if function.listener.is_waiting(call) { Ok(()) } else { Err(Errno::SRCH) }
}

pub(super) fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
