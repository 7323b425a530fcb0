//! The rules as a decision, for whoever applies them in this process.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::Address;

/// The address that is meant by binding `wanted`: none if it is not the function's to bind. A
/// socket of both families binds the wildcard of both to its address of IPv4; what comes to that
/// of IPv6 is handed to it by [`super::dual`].
pub fn bind(own: Address, wanted: SocketAddr, is_dual: bool) -> Option<SocketAddr> {
    let meant = match wanted.ip() {
        IpAddr::V4(address) => {
            let allowed = is_here(address.into()) || address == own.v4;
            allowed.then_some(IpAddr::V4(own.v4))
        }
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(inner) => {
                let allowed = is_here(inner.into()) || inner == own.v4;
                allowed.then(|| own.v4.to_ipv6_mapped().into())
            }
            None if is_dual && address.is_unspecified() => Some(own.v4.to_ipv6_mapped().into()),
            None => {
                let allowed = is_here(address.into()) || address == own.v6;
                allowed.then_some(IpAddr::V6(own.v6))
            }
        },
    };
    meant.map(|address| SocketAddr::new(address, wanted.port()))
}

/// Where a connection to `target` is to go: to the function itself if that is what is meant.
pub fn connect(own: Address, target: SocketAddr) -> SocketAddr {
    let meant = match target.ip() {
        IpAddr::V4(address) if is_here(address.into()) => own.v4.into(),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(inner) if is_here(inner.into()) => own.v4.to_ipv6_mapped().into(),
            None if is_here(address.into()) => own.v6.into(),
            _ => target.ip(),
        },
        address => address,
    };
    SocketAddr::new(meant, target.port())
}

/// The address from which a connection to `target` comes.
pub fn source(own: Address, target: IpAddr) -> IpAddr {
    match target {
        IpAddr::V4(_) => own.v4.into(),
        IpAddr::V6(address) if is_mapped(address) => own.v4.to_ipv6_mapped().into(),
        IpAddr::V6(_) => own.v6.into(),
    }
}

fn is_mapped(address: Ipv6Addr) -> bool {
    address.to_ipv4_mapped().is_some()
}

fn is_here(address: IpAddr) -> bool {
    address.is_unspecified() || address.is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Address = Address {
        v4: std::net::Ipv4Addr::new(10, 0, 0, 7),
        v6: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 7),
    };

    fn at(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().unwrap(), 80)
    }

    #[test]
    fn here_is_ones_own_address_and_nothing_else_is() {
        for (wanted, meant) in [
            ("0.0.0.0", Some("10.0.0.7")),
            ("127.0.0.1", Some("10.0.0.7")),
            ("10.0.0.7", Some("10.0.0.7")),
            ("10.0.0.8", None),
            ("::", Some("fd00::7")),
            ("::1", Some("fd00::7")),
            ("fd00::7", Some("fd00::7")),
            ("fd00::8", None),
            ("fe80::1", None),
            ("::ffff:0.0.0.0", Some("::ffff:10.0.0.7")),
            ("::ffff:127.0.0.1", Some("::ffff:10.0.0.7")),
            ("::ffff:10.0.0.7", Some("::ffff:10.0.0.7")),
            ("::ffff:10.0.0.8", None),
        ] {
            assert_eq!(bind(OWN, at(wanted), false), meant.map(at), "{wanted}");
            let dual = if wanted == "::" { Some("::ffff:10.0.0.7") } else { meant };
            assert_eq!(bind(OWN, at(wanted), true), dual.map(at), "{wanted}");
        }
    }

    #[test]
    fn connections_go_where_they_are_meant_to_and_come_from_ones_own_address() {
        for (target, meant, from) in [
            ("127.0.0.1", "10.0.0.7", "10.0.0.7"),
            ("0.0.0.0", "10.0.0.7", "10.0.0.7"),
            ("10.0.0.8", "10.0.0.8", "10.0.0.7"),
            ("::1", "fd00::7", "fd00::7"),
            ("fd00::8", "fd00::8", "fd00::7"),
            ("::ffff:127.0.0.1", "::ffff:10.0.0.7", "::ffff:10.0.0.7"),
            ("::ffff:10.0.0.8", "::ffff:10.0.0.8", "::ffff:10.0.0.7"),
        ] {
            assert_eq!(connect(OWN, at(target)), at(meant), "{target}");
            assert_eq!(source(OWN, at(meant).ip()), at(from).ip(), "{target}");
        }
    }
}
