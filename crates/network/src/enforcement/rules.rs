//! The rules of address enforcement as functions, for enforcement in this process.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::Address;

/// The address to bind instead of `wanted`; none if the function may not bind it. A dual-stack
/// socket at the wildcard is bound to the IPv4 address; [`super::dual_stack`] assigns it packets
/// for the IPv6 address.
pub fn bind(own: Address, wanted: SocketAddr, is_dual: bool) -> Option<SocketAddr> {
    let meant = match wanted.ip() {
        IpAddr::V4(address) => {
            let allowed = is_local(address.into()) || address == own.v4;
            allowed.then_some(IpAddr::V4(own.v4))
        }
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(inner) => {
                let allowed = is_local(inner.into()) || inner == own.v4;
                allowed.then(|| own.v4.to_ipv6_mapped().into())
            }
            None if is_dual && address.is_unspecified() => Some(own.v4.to_ipv6_mapped().into()),
            None => {
                let allowed = is_local(address.into()) || address == own.v6;
                allowed.then_some(IpAddr::V6(own.v6))
            }
        },
    };
    meant.map(|address| SocketAddr::new(address, wanted.port()))
}

/// The address to connect to instead of `target`: the function's own for wildcard and loopback.
pub fn connect(own: Address, target: SocketAddr) -> SocketAddr {
    let meant = match target.ip() {
        IpAddr::V4(address) if is_local(address.into()) => own.v4.into(),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(inner) if is_local(inner.into()) => own.v4.to_ipv6_mapped().into(),
            None if is_local(address.into()) => own.v6.into(),
            _ => target.ip(),
        },
        address => address,
    };
    SocketAddr::new(meant, target.port())
}

/// The source address of a connection to `target`.
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

fn is_local(address: IpAddr) -> bool {
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
    fn wildcard_and_loopback_bind_the_own_address_and_others_are_refused() {
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
    fn connections_to_loopback_go_to_the_own_address_and_all_come_from_it() {
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
