//! The check whether the other hosts of a job can be reached over its network, by echo requests.
//!
//! The kernel answers an echo request to any address of a host's part. The answer arrives only if
//! routes, forwarding entries and overlay exist on both sides: so a job that starts after this
//! loses no first packet.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{RecvFlags, SendFlags, recvfrom, sendto};

use crate::JobPeer;

const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;
/// The wait for answers before the missing hosts are asked again.
const ROUND: Duration = Duration::from_millis(5);
/// The least number of rounds, even if this thread runs late.
const LEAST_ROUNDS: u16 = 10;

/// Asks until all hosts have answered or the time is up. Returns the round trips of the hosts that
/// answered.
pub fn ask(
    socket: BorrowedFd<'_>,
    peers: &[JobPeer],
    within: Duration,
) -> io::Result<BTreeMap<IpAddr, Duration>> {
    let deadline = Instant::now() + within;
    let mut missing: BTreeMap<Ipv4Addr, IpAddr> = peers
        .iter()
        .filter_map(|peer| match peer.range4.base() {
            IpAddr::V4(address) => Some((address, peer.host)),
            IpAddr::V6(_) => None,
        })
        .collect();
    let mut answered = BTreeMap::new();
    let mut round = 0u16;
    while !missing.is_empty() {
        let begun = Instant::now();
        for address in missing.keys() {
            send_request(socket, *address, round)?;
        }
        // Not shortened at the deadline: answers that have already arrived are still read.
        let until = begun + ROUND;
        while let Some(address) = receive_reply(socket, until)? {
            if let Some(host) = missing.remove(&address) {
                answered.insert(host, begun.elapsed());
            }
            if missing.is_empty() {
                break;
            }
        }
        round = round.wrapping_add(1);
        if Instant::now() >= deadline && round >= LEAST_ROUNDS {
            break;
        }
    }
    Ok(answered)
}

/// Sends an echo request. Errors about a missing route are ignored: the host is asked again.
fn send_request(socket: BorrowedFd<'_>, address: Ipv4Addr, round: u16) -> io::Result<()> {
    let mut packet = [ECHO_REQUEST, 0, 0, 0, 0x73, 0x6d, 0, 0];
    packet[6..8].copy_from_slice(&round.to_be_bytes());
    let checksum = checksum(&packet);
    packet[2..4].copy_from_slice(&checksum.to_be_bytes());
    let target = SocketAddr::V4(SocketAddrV4::new(address, 0));
    match sendto(socket, &packet, SendFlags::empty(), &target) {
        Ok(_) | Err(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NOBUFS | Errno::AGAIN) => {
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// The next address that answers; `None` when the time is up.
fn receive_reply(socket: BorrowedFd<'_>, until: Instant) -> io::Result<Option<Ipv4Addr>> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        // A zero timeout would mean to wait for ever.
        let left = left.max(Duration::from_micros(100));
        sockopt::set_socket_timeout(socket, Timeout::Recv, Some(left))?;
        let mut buffer = [0u8; 256];
        let (length, sender) = match recvfrom(socket, &mut buffer, RecvFlags::empty()) {
            Ok((length, _, sender)) => (length, sender),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        if is_reply(&buffer[..length])
            && let Some(Ok(SocketAddr::V4(sender))) = sender.map(SocketAddr::try_from)
        {
            return Ok(Some(*sender.ip()));
        }
    }
}

/// Whether an IPv4 packet is an answer to one of our requests.
fn is_reply(packet: &[u8]) -> bool {
    let header = packet.first().map_or(0, |first| usize::from(first & 0xf) * 4);
    packet.get(header..).is_some_and(|icmp| {
        icmp.first() == Some(&ECHO_REPLY) && icmp.get(4..6) == Some(&[0x73, 0x6d])
    })
}

/// The internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| {
        u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or_default()]))
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_rfc_1071() {
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }

    #[test]
    fn only_answers_to_own_requests_count() {
        let mut packet = vec![0x45; 20];
        packet.extend([ECHO_REPLY, 0, 0, 0, 0x73, 0x6d, 0, 1]);
        assert!(is_reply(&packet));
        packet[20] = ECHO_REQUEST;
        assert!(!is_reply(&packet));
        assert!(!is_reply(&[]) && !is_reply(&[0x4f; 10]));
    }
}
