//! Functions by a filter of their system calls: where there are no control groups of version 2, a
//! function's calls that name an address wait until this has answered them, whatever library or
//! language they come from.
//!
//! Invariant: no socket of a function is ever without its address. It is made here, in the job's
//! namespace, and has its function's address before the function has it; what a race between two
//! of the function's threads can reach is then no more than its own.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, ipproto, socket_with};
use snowmelt_kernel::namespace::{flags, join};
use snowmelt_kernel::notify::{self, Answer, Call, Listener, calls};
use snowmelt_kernel::seccomp::Program;
use snowmelt_kernel::socket::set_bind_address_only;

use super::target;
use super::{message, rules};
use crate::Address;
use crate::host::lock;

/// Families of sockets that are made here.
const INTERNET: [u32; 2] = [2, 10];
/// Bits beside the kind of a socket.
const NONBLOCK: u64 = 0o4000;
const CLOEXEC: u64 = 0o2_000_000;

/// The filter that a function installs before its own code runs, beside that of its sandbox. The
/// listener that the kernel gives for it is then fetched from the process
/// ([`snowmelt_kernel::notify::copy_of`]) and given to [`crate::JobNetwork::guard`]: to send it
/// would be one of the calls that wait for an answer. The process must not keep it.
pub fn filter() -> Program {
    let waiting = [calls::BIND, calls::CONNECT, calls::SEND_MESSAGE, calls::SEND_MESSAGES];
    notify::filter(&waiting, Some((calls::SOCKET, &INTERNET)))
}

/// Answers the calls of a job's functions, by one thread in its namespace.
#[derive(Debug)]
pub struct Guard {
    functions: Arc<Mutex<Vec<Arc<Function>>>>,
    /// Written to when there is one more function, closed when there are to be none.
    wake: Option<OwnedFd>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Function {
    listener: Listener,
    own: Address,
}

impl Guard {
    /// Starts with no functions.
    pub fn start(namespace: BorrowedFd<'_>) -> io::Result<Self> {
        let (woken, wake) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let namespace = namespace.try_clone_to_owned()?;
        let functions = Arc::new(Mutex::new(Vec::new()));
        let watched = functions.clone();
        let work = move || match join(namespace.as_fd(), flags::NETWORK) {
            // Kept, it would hold the namespace longer than its job.
            Ok(()) => {
                drop(namespace);
                watch(&watched, woken.as_fd());
            }
            Err(error) => tracing::error!(%error, "functions are not answered"),
        };
        let thread = thread::Builder::new().name("network-guard".into()).spawn(work)?;
        Ok(Self { functions, wake: Some(wake), thread: Some(thread) })
    }

    /// Answers a function's calls from now on.
    pub fn add(&self, listener: Listener, own: Address) -> io::Result<()> {
        lock(&self.functions).push(Arc::new(Function { listener, own }));
        match &self.wake {
            Some(wake) => Ok(rustix::io::write(wake, &[1]).map(drop)?),
            None => Ok(()),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            // It never panics; if it did, nothing is answered any more, and that is what is wanted.
            drop(thread.join());
        }
    }
}

/// Until the other end of `woken` is closed.
fn watch(functions: &Mutex<Vec<Arc<Function>>>, woken: BorrowedFd<'_>) {
    loop {
        let all = lock(functions).clone();
        let mut waits = vec![PollFd::from_borrowed_fd(woken, PollFlags::IN)];
        let each = all.iter().map(|function| &function.listener);
        waits.extend(each.map(|listener| PollFd::new(listener, PollFlags::IN)));
        if poll(&mut waits, None).is_err() {
            continue;
        }
        let ready: Vec<PollFlags> = waits.iter().map(PollFd::revents).collect();
        if ready[0].intersects(PollFlags::IN | PollFlags::HUP) {
            match rustix::io::read(woken, &mut [0; 64]) {
                Ok(0) => return,
                _ => continue,
            }
        }
        for (function, flags) in all.iter().zip(&ready[1..]) {
            if flags.contains(PollFlags::IN) {
                answer_one(function);
            } else if flags.intersects(PollFlags::HUP | PollFlags::ERR) {
                lock(functions).retain(|other| !Arc::ptr_eq(other, function));
            }
        }
    }
}

/// A caller that died is no error: nobody waits for the answer.
fn answer_one(function: &Arc<Function>) {
    let Ok(call) = function.listener.receive() else { return };
    let answered = match call.number {
        calls::SOCKET => give_socket(function, &call),
        calls::CONNECT => answer_connect(function, call),
        calls::BIND => answer(function, &call, bind_for(function, &call)),
        _ => answer(function, &call, message::check(&call)),
    };
    if let Err(error) = answered
        && error.raw_os_error() != Some(Errno::NOENT.raw_os_error())
    {
        tracing::warn!(%error, "a call of a function was not answered");
    }
}

fn answer(function: &Function, call: &Call, decided: Result<Answer, Errno>) -> io::Result<()> {
    let answer = decided.unwrap_or_else(|error| Answer::Error(error.raw_os_error()));
    function.listener.answer(call, answer)
}

/// Makes a socket for a function, with its address but without a port: so the kernel takes this
/// address when it listens, connects or sends, and to bind still gives it another port.
fn give_socket(function: &Function, call: &Call) -> io::Result<()> {
    match make_socket(function.own, call.arguments) {
        Ok(socket) => {
            let closes = call.arguments[1] & CLOEXEC != 0;
            function.listener.give(call, socket.as_fd(), closes)
        }
        Err(error) => answer(function, call, Err(error)),
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
fn bind_address(socket: &OwnedFd, address: IpAddr) -> Result<(), Errno> {
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
    let meant = rules::bind(function.own, wanted).ok_or(Errno::ADDRNOTAVAIL)?;
    bind(&socket, &meant)?;
    Ok(Answer::Value(0))
}

/// A connection to the function itself is opened here, by a thread of its own because it may have
/// to wait. All others are left to the kernel: the socket has its address already.
fn answer_connect(function: &Arc<Function>, call: Call) -> io::Result<()> {
    match prepare_connect(function, &call) {
        Ok(Some((socket, meant))) => {
            let waiting = function.clone();
            let work = move || {
                let done = connect(&socket, &meant).map(|()| Answer::Value(0));
                // The caller may have died meanwhile.
                drop(answer(&waiting, &call, done));
            };
            let started = thread::Builder::new().name("network-connect".into()).spawn(work);
            started.map(drop)
        }
        Ok(None) => function.listener.answer(&call, Answer::Continue),
        Err(error) => answer(function, &call, Err(error)),
    }
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

fn copy_of(call: &Call, number: u64) -> Result<OwnedFd, Errno> {
    let number = i32::try_from(number as u32).map_err(|_| Errno::BADF)?;
    notify::copy_of(call.thread, number).map_err(errno)
}

/// Else the thread is another one's by now, and so is what was read of it.
fn still_waits(function: &Function, call: &Call) -> Result<(), Errno> {
    if function.listener.is_waiting(call) { Ok(()) } else { Err(Errno::SRCH) }
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
