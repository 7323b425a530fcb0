//! The addresses that requests may be sent to.
//!
//! A name on the operator's list belongs to somebody else, who could give it the address of this
//! machine, or the address at which a cloud serves credentials. Such an address is used only if the
//! list names the address itself. Addresses are checked when a connection is made, not before: a
//! name may have another address a moment later.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use snowmelt_wire::HttpSource;
use url::Url;

use crate::error::fault::http::HttpFault;

/// The addresses at which clouds serve credentials, outside of the link-local ones.
const METADATA4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];
const METADATA6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
];

/// The addresses of the services of AWS.
const AWS6: [u16; 2] = [0xfd00, 0xec2];

/// The prefix of addresses of a network's own translators. Only these know where in such an address
/// the IPv4 address is.
const TRANSLATED6: [u16; 3] = [0x64, 0xff9b, 1];

/// Any port but 0: nothing is sent there.
const PORT: u16 = 9;

/// The name of this machine, which a list names as it does an address.
const LOCALHOST: &str = "localhost";

/// Refuses a URL of a server that is not on the list. `from` says what refers to it.
pub(super) fn check(url: &Url, sources: &[HttpSource], from: &str) -> Result<(), HttpFault> {
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default();
    let is_listed = |port| sources.iter().any(|source| source.matches(url.scheme(), host, port));
    let plain = url.username().is_empty() && url.password().is_none();
    match port {
        Some(port) if plain && is_listed(port) => Ok(()),
        _ => Err(HttpFault::NotListed {
            server: format!("`{}`", url.origin().ascii_serialization()),
            from: from.to_owned(),
        }),
    }
}

type Lookup = fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;

/// Resolves names to addresses that are allowed.
#[derive(Debug)]
pub(super) struct Addresses(Lookup);

impl Resolve for Addresses {
    fn resolve(&self, name: Name) -> Resolving {
        let lookup = self.0;
        Box::pin(async move {
            let name = name.as_str().to_owned();
            let found = lookup(name.clone()).await?;
            check_found(&name, &found)?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// A resolver for a client. An address in a URL is on the list itself, and is not resolved.
pub(super) fn resolver() -> Arc<Addresses> {
    Arc::new(Addresses(lookup))
}

/// The addresses that the name service of this machine finds.
fn lookup(name: String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
    Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) })
}

/// Refuses the addresses of a name if one of them is not allowed: then none is believed.
fn check_found(name: &str, found: &[SocketAddr]) -> Result<(), HttpFault> {
    for address in found.iter().map(SocketAddr::ip) {
        let is_refused = match name == LOCALHOST {
            true => !address.is_loopback(),
            false => is_inside(address)?,
        };
        if is_refused {
            let host = name.to_owned();
            let address = address.to_string();
            return Err(HttpFault::Inside { host, address });
        }
    }
    Ok(())
}

/// True for an address of this machine or its link, and for one that is no machine's.
fn is_inside(address: IpAddr) -> Result<bool, HttpFault> {
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
                || METADATA6.contains(&v6)
                || v6.segments().starts_with(&AWS6)
                || v6.segments().starts_with(&TRANSLATED6)
        }
    };
    Ok(is_reserved || is_own(address, source(address))?)
}

/// The IPv4 address that an IPv6 address stands for: mapped, or behind a translator.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let low = Ipv4Addr::from_bits(u32::from(g) << 16 | u32::from(h));
    let is_translated = [a, b, c, d, e, f] == [0x64, 0xff9b, 0, 0, 0, 0];
    address.to_ipv4_mapped().or_else(|| is_translated.then_some(low))
}

/// True for an address of this machine: it is reached from itself, and others are not. `source` is
/// the address that it is reached from.
fn is_own(address: IpAddr, source: io::Result<IpAddr>) -> Result<bool, HttpFault> {
    match source {
        Ok(source) => Ok(source == address),
        // What cannot be reached is not this machine: no route, or no IPv6.
        Err(error) => match error.kind() {
            ErrorKind::NetworkUnreachable
            | ErrorKind::HostUnreachable
            | ErrorKind::AddrNotAvailable => Ok(false),
            _ if error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error()) => {
                Ok(false)
            }
            _ => Err(HttpFault::Connection(format!("{address} cannot be checked: {error}"))),
        },
    }
}

/// The address of this machine from which another one is reached. Nothing is sent.
fn source(address: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((address, PORT))?;
    Ok(socket.local_addr()?.ip())
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
            "64:ff9b::a83f:8110",
            "64:ff9b:1::a9fe:a9fe",
            "64:ff9b:1:a9fe:a9:fe00::",
            "168.63.129.16",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
        ] {
            assert_eq!(is_inside(address.parse().unwrap()), Ok(true), "{address}");
        }
        // Documentation addresses, which no machine has.
        for address in ["192.0.2.7", "203.0.113.1", "2001:db8::1"] {
            assert_eq!(is_inside(address.parse().unwrap()), Ok(false), "{address}");
        }
    }

    #[test]
    fn only_listed_servers_are_reached() {
        let sources: Vec<HttpSource> = ["data.example.org", "http://127.0.0.1:81"]
            .map(|server| server.parse().unwrap())
            .into();
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

    #[test]
    fn an_own_address_is_one_that_is_reached_from_itself() {
        let own = IpAddr::from([192, 0, 2, 7]);
        let other = IpAddr::from([192, 0, 2, 8]);
        assert_eq!(is_own(own, Ok(own)), Ok(true));
        assert_eq!(is_own(other, Ok(own)), Ok(false));
        for (kind, expected) in [
            (ErrorKind::NetworkUnreachable, Some(false)),
            (ErrorKind::AddrNotAvailable, Some(false)),
            (ErrorKind::PermissionDenied, None),
            (ErrorKind::Other, None),
        ] {
            assert_eq!(is_own(own, Err(kind.into())).ok(), expected, "{kind}");
        }
        let here = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(source(here).unwrap(), here);
        // Another address of this machine, if it has a network.
        if let Ok(found) = source(own) {
            assert_eq!((is_inside(found), is_inside(own)), (Ok(true), Ok(false)), "{found}");
        }
    }

    /// A name service of somebody else.
    fn hostile(name: String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let found: &[&str] = match name.as_str() {
            "public.test" => &["192.0.2.7", "2001:db8::1"],
            "both.test" => &["192.0.2.7", "169.254.169.254"],
            "localhost" => &["127.0.0.1", "::1"],
            _ => &["127.0.0.1"],
        };
        let found = found.iter().map(|text| (text.parse::<IpAddr>().unwrap(), 0).into());
        Box::pin(std::future::ready(Ok(found.collect())))
    }

    #[tokio::test]
    async fn names_of_addresses_inside_are_refused() {
        let resolved =
            async |name: &str| match Addresses(hostile).resolve(name.parse().unwrap()).await {
                Ok(found) => Ok(found.map(|address| address.ip().to_string()).collect::<Vec<_>>()),
                Err(error) => Err(error.downcast_ref::<HttpFault>().cloned()),
            };
        let inside = |host: &str, address: &str| {
            Err(Some(HttpFault::Inside { host: host.to_owned(), address: address.to_owned() }))
        };
        let public = ["192.0.2.7", "2001:db8::1"].map(str::to_owned);
        assert_eq!(resolved("public.test").await, Ok(public.to_vec()));
        assert_eq!(resolved("both.test").await, inside("both.test", "169.254.169.254"));
        for name in ["ip6-loopback", "localhost.localdomain", "localhost.test"] {
            assert_eq!(resolved(name).await, inside(name, "127.0.0.1"));
        }
        assert!(resolved("localhost").await.is_ok());
        assert!(check_found(LOCALHOST, &[(Ipv4Addr::new(192, 0, 2, 7), 0).into()]).is_err());
        // The name service of this machine is asked.
        assert!(resolver().resolve(LOCALHOST.parse().unwrap()).await.is_ok());
    }
}
