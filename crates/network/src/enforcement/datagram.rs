//! Datagrams that unconnected IPv6 sockets send to an address.
//!
//! Such a socket is bound to one address, of IPv4 or of IPv6, and the kernel uses no other source:
//! to the other family a datagram would have the source 127.0.0.6, or sending would fail. So
//! datagrams to the other family are sent here, from the function's address of that family. All
//! others are left to the kernel.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, getsockname, sockopt};
use snowmelt_kernel::notify::{CallAnswer, NotifiedCall};
use snowmelt_kernel::socket::send_from;

use super::function::{NotifiedFunction, bind_address, check_waiting, copy_of, errno};
use super::{message, rules, sockaddr};

/// The maximum length of a datagram in bytes.
const LONGEST: usize = 65_535;
/// The maximum number of parts of a datagram.
const MAX_PARTS: usize = 1024;
/// Offsets in `struct msghdr` of the address, its length, the parts, and their number.
const NAME: usize = 0;
const NAME_LENGTH: usize = 8;
const PARTS: usize = 16;
const PARTS_COUNT: usize = 24;
/// The size of `struct iovec`.
const PART: usize = 16;

/// Answers `sendto`.
pub fn send_to(function: &NotifiedFunction, call: &NotifiedCall) -> Result<CallAnswer, Errno> {
    let [socket, data, length, _, name, name_length] = call.arguments;
    send(function, call, socket, name, name_length, || {
        let mut bytes = vec![0; bounded(length)?];
        message::read(call, data, &mut bytes)?;
        Ok(bytes)
    })
}

/// Answers `sendmsg`. A message with control data is left to the kernel, which then refuses an
/// address of the other family.
pub fn send_message(function: &NotifiedFunction, call: &NotifiedCall) -> Result<CallAnswer, Errno> {
    let checked = message::check(call)?;
    let [socket, at, ..] = call.arguments;
    let mut header = [0; message::MESSAGE];
    message::read(call, at, &mut header)?;
    if number(&header, message::CONTROL_LENGTH) != 0 {
        return Ok(checked);
    }
    // The upper half is padding.
    let length = number(&header, NAME_LENGTH) & u64::from(u32::MAX);
    send(function, call, socket, number(&header, NAME), length, || {
        gather(call, number(&header, PARTS), number(&header, PARTS_COUNT))
    })
}

fn send(
    function: &NotifiedFunction,
    call: &NotifiedCall,
    socket: u64,
    name: u64,
    name_length: u64,
    data: impl FnOnce() -> Result<Vec<u8>, Errno>,
) -> Result<CallAnswer, Errno> {
    let Some(SocketAddr::V6(wanted)) = sockaddr::read(call, name, name_length)? else {
        return Ok(CallAnswer::Continue);
    };
    let Some((socket, source)) = from_other_family(function, call, socket, wanted)? else {
        return Ok(CallAnswer::Continue);
    };
    let data = data()?;
    check_waiting(function, call)?;
    match send_from(&socket, &data, wanted, source).map_err(errno) {
        Ok(sent) => Ok(CallAnswer::Value(sent as i64)),
        // A blocking socket must not get `EAGAIN`.
        Err(Errno::AGAIN) => Err(Errno::NOBUFS),
        Err(error) => Err(error),
    }
}

/// The socket and the source address of a datagram, if the source is not the address that the
/// socket is bound to.
fn from_other_family(
    function: &NotifiedFunction,
    call: &NotifiedCall,
    socket: u64,
    wanted: SocketAddrV6,
) -> Result<Option<(OwnedFd, Ipv6Addr)>, Errno> {
    let socket = copy_of(call, socket)?;
    let takes_both = sockopt::socket_domain(&socket)? == AddressFamily::INET6
        && sockopt::socket_type(&socket)? == SocketType::DGRAM
        && !sockopt::ipv6_v6only(&socket)?;
    if !takes_both {
        return Ok(None);
    }
    let IpAddr::V6(source) = rules::source(function.own, IpAddr::V6(*wanted.ip())) else {
        return Ok(None);
    };
    let is_mapped = |address: &Ipv6Addr| address.to_ipv4_mapped().is_some();
    match SocketAddr::try_from(getsockname(&socket)?) {
        Ok(SocketAddr::V6(own)) if is_mapped(own.ip()) == is_mapped(&source) => Ok(None),
        // A socket without a port can be bound to the other address itself, and gets the answers.
        Ok(own) if own.port() == 0 && bind_address(&socket, source.into()).is_ok() => Ok(None),
        _ => Ok(Some((socket, source))),
    }
}

/// The bytes of all parts of a message.
fn gather(call: &NotifiedCall, at: u64, count: u64) -> Result<Vec<u8>, Errno> {
    let count = usize::try_from(count).ok().filter(|count| *count <= MAX_PARTS);
    let mut parts = vec![0; count.ok_or(Errno::MSGSIZE)? * PART];
    message::read(call, at, &mut parts)?;
    let mut data = Vec::new();
    for part in parts.chunks_exact(PART) {
        let begin = data.len();
        data.resize(bounded(number(part, 8).saturating_add(begin as u64))?, 0);
        message::read(call, number(part, 0), &mut data[begin..])?;
    }
    Ok(data)
}

fn bounded(length: u64) -> Result<usize, Errno> {
    let length = usize::try_from(length).map_err(|_| Errno::MSGSIZE)?;
    if length <= LONGEST { Ok(length) } else { Err(Errno::MSGSIZE) }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    eight.map_or(0, u64::from_ne_bytes)
}
