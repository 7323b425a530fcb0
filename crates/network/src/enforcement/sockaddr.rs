//! Reads socket addresses from another process (`struct sockaddr_in`, `sockaddr_in6`).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use rustix::io::Errno;
use snowmelt_kernel::notify::{self, NotifiedCall};

const INET: u16 = 2;
const INET6: u16 = 10;
/// The size of `struct sockaddr_in6`, the longest address of both families.
const LONGEST: usize = 28;
/// The kernel's minimum for an IPv6 address: the scope may be missing.
const SHORTEST6: usize = 24;

/// The internet address that a call points to; none if it is of another family.
pub fn read(call: &NotifiedCall, address: u64, length: u64) -> Result<Option<SocketAddr>, Errno> {
    let mut bytes = [0; LONGEST];
    let length = LONGEST.min(usize::try_from(length).unwrap_or(LONGEST));
    let read = notify::read_memory(call.thread, address, &mut bytes[..length]);
    read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::FAULT))?;
    Ok(parse(&bytes[..length]))
}

fn parse(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    match family {
        INET if bytes.len() >= 16 => {
            let octets: [u8; 4] = bytes[4..8].try_into().ok()?;
            Some(SocketAddrV4::new(Ipv4Addr::from(octets), port).into())
        }
        INET6 if bytes.len() >= SHORTEST6 => {
            let octets: [u8; 16] = bytes[8..24].try_into().ok()?;
            Some(SocketAddrV6::new(Ipv6Addr::from(octets), port, 0, 0).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_like_in_the_kernel() {
        let mut v4 = INET.to_ne_bytes().to_vec();
        v4.extend([0x1f, 0x90, 10, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(parse(&v4), "10.0.0.7:8080".parse().ok());
        let mut v6 = INET6.to_ne_bytes().to_vec();
        v6.extend([0x1f, 0x90, 0, 0, 0, 0]);
        v6.extend(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 7).octets());
        assert_eq!(parse(&v6), "[fd00::7]:8080".parse().ok());
        for short in [&v4[..15], &v6[..23], &[][..], &[1, 0, 47, 120]] {
            assert_eq!(parse(short), None);
        }
    }
}
