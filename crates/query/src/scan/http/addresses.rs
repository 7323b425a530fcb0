//! The addresses that requests may be sent to.
//!
//! A name on the operator's list belongs to somebody else, who could give it the address of this
//! machine, or that at which a cloud serves credentials. Such addresses are used only where the list
//! names them themselves. They are checked when a connection is made, not before: a name may have
//! another address a moment later.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use snowmelt_wire::HttpSource;
use url::Url;

use super::fault::HttpFault;

/// The address at which AWS serves credentials over IPv6.
const METADATA6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// The addresses at which other clouds do, outside of the link-local ones.
const METADATA4: [Ipv4Addr; 2] = [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192)];

/// The name of this machine, which a list names as it does an address.
const LOCALHOST: &str = "localhost";

/// Refuses a URL of a server that is not on the list. `from` says what refers to it.
pub(super) fn check(url: &Url, sources: &[HttpSource], from: &str) -> Result<(), HttpFault> {
    let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default());
    let is_listed = |port| sources.iter().any(|it| it.matches(url.scheme(), host, port));
    let plain = url.username().is_empty() && url.password().is_none();
    match port {
        Some(port) if plain && is_listed(port) => Ok(()),
        _ => Err(HttpFault::NotListed {
            server: format!("`{}`", url.origin().ascii_serialization()),
            from: from.to_owned(),
        }),
    }
}

/// Resolves names to addresses that are allowed.
#[derive(Debug)]
pub(super) struct Addresses;

impl Resolve for Addresses {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let name = name.as_str().to_owned();
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let found: Vec<SocketAddr> = found.collect();
            let is_here = |it: &SocketAddr| it.ip().is_loopback();
            let refused = |it: &&SocketAddr| match name == LOCALHOST {
                true => !is_here(it),
                false => is_inside(it.ip()),
            };
            // If one of its addresses is inside, none is believed.
            match found.iter().find(refused) {
                None => Ok(Box::new(found.into_iter()) as Addrs),
                Some(it) => {
                    let address = it.ip().to_string();
                    Err(Box::new(HttpFault::Inside { host: name.clone(), address }) as _)
                }
            }
        })
    }
}

/// A resolver for a client. An address in a URL is on the list itself, and is not resolved.
pub(super) fn resolver() -> Arc<Addresses> {
    Arc::new(Addresses)
}

/// True for an address of this machine or its link, and for one that is no machine's.
fn is_inside(address: IpAddr) -> bool {
    let address = match address {
        IpAddr::V6(v6) => embedded(v6).map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    };
    let is_reserved = match address {
        IpAddr::V4(v4) => {
            v4.is_loopback()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_broadcast()
                || v4.octets()[0] == 0
                || METADATA4.contains(&v4)
        }
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_multicast()
                || v6.is_unicast_link_local()
                || v6 == METADATA6
        }
    };
    is_reserved || is_own(address)
}

/// The IPv4 address that an IPv6 address stands for: mapped, or behind a translator.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let low = Ipv4Addr::from_bits(u32::from(g) << 16 | u32::from(h));
    let is_translated = [a, b, c, d, e, f] == [0x64, 0xff9b, 0, 0, 0, 0];
    address.to_ipv4_mapped().or_else(|| is_translated.then_some(low))
}

/// True for an address of this machine: sockets can be bound to those and to no others.
fn is_own(address: IpAddr) -> bool {
    match UdpSocket::bind((address, 0)) {
        Ok(_) => true,
        Err(error) => {
            // Without IPv6 none of its addresses is one of this machine.
            let no_family = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
            error.kind() != ErrorKind::AddrNotAvailable && error.raw_os_error() != Some(no_family)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_inside_are_recognised_in_every_form() {
        for address in [
            "127.0.0.1",
            "127.8.9.1",
            "0.0.0.0",
            "169.254.169.254",
            "100.100.100.200",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
        ] {
            assert!(is_inside(address.parse().unwrap()), "{address}");
        }
        // Documentation addresses, which no machine has.
        for address in ["192.0.2.7", "203.0.113.1", "2001:db8::1"] {
            assert!(!is_inside(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn only_listed_servers_are_reached() {
        let sources: Vec<HttpSource> =
            ["data.example.org", "http://127.0.0.1:81"].map(|it| it.parse().unwrap()).into();
        for (url, listed) in [
            ("https://data.example.org/x", true),
            ("https://DATA.example.org:443/x", true),
            ("http://data.example.org/x", false),
            ("https://data.example.org.evil.net/x", false),
            ("https://data.example.org@evil.net/x", false),
            ("https://u:p@data.example.org/x", false),
            ("http://127.0.0.1:81/", true),
            ("http://0x7f.1:81/", true),
            ("http://127.0.0.1:82/", false),
            ("http://[::ffff:127.0.0.1]:81/", false),
        ] {
            assert_eq!(check(&Url::parse(url).unwrap(), &sources, "").is_ok(), listed, "{url}");
        }
    }

    #[tokio::test]
    async fn a_name_of_this_machine_is_only_localhost() {
        let resolve = async |name: &str| Addresses.resolve(name.parse().unwrap()).await.is_ok();
        assert!(resolve("localhost").await);
        assert!(!resolve("ip6-loopback").await && !resolve("localhost.localdomain").await);
    }
}
