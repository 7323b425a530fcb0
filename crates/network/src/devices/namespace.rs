//! A job's network namespace, kept alive by descriptors only: it has no name, so it is gone as soon
//! as the node and the functions in it are.
//!
//! Invariant: a namespace is entered once, by a thread that exists for that alone. Later operations
//! go over the sockets that were opened then.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;

use rustix::net::netlink::{NETFILTER, SOCK_DIAG};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use snowmelt_kernel::namespace::{flags, join, unshare};
use snowmelt_kernel::socket::namespace_cookie;

use crate::netlink::Socket;

/// Settings that differ from the kernel's defaults, by files below `/proc/sys/net`.
const SETTINGS: [(&str, &str); 8] = [
    // IPv4 inherits its settings from the host, which may forward: a job's namespace never does.
    ("ipv4/ip_forward", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    // A function owns all ports of its address.
    ("ipv4/ip_unprivileged_port_start", "0"),
    // No link-local addresses, so no neighbour discovery and no announcements.
    ("ipv6/conf/default/addr_gen_mode", "1"),
    ("ipv6/conf/default/accept_ra", "0"),
    // IPv6 has local routes for the range, but allows to bind only addresses of devices. Which
    // addresses a function may bind is enforced separately.
    ("ipv6/ip_nonlocal_bind", "1"),
    ("ipv6/bindv6only", "0"),
    // The egress pair has no IPv6 at all; see [`Namespace::allow_ipv6`].
    (NO_IPV6, "1"),
];

/// Whether devices that are created from now on are without IPv6.
const NO_IPV6: &str = "ipv6/conf/default/disable_ipv6";

/// A network namespace and the sockets in it.
#[derive(Debug)]
pub struct Namespace {
    /// The descriptor that keeps the namespace alive; sandboxes join it.
    pub fd: OwnedFd,
    /// The cookie of the namespace, which the kernel never assigns twice.
    pub cookie: u64,
    /// The socket for devices, routes and neighbours.
    pub route: Socket,
    /// The socket for lists of sockets.
    pub diagnosis: Socket,
    /// The socket for nftables, where the kernel has it.
    pub rules: Option<Socket>,
    /// The socket for echo requests.
    pub echo: OwnedFd,
    /// The open file [`NO_IPV6`] of this namespace, which a thread in another namespace can write,
    /// too. `None` without IPv6.
    no_ipv6: Option<File>,
}

/// The step at which creating a namespace failed, and the error.
pub type NamespaceFault = (&'static str, io::Error);

impl Namespace {
    /// Creates a namespace that has nothing but a loopback device, which is down.
    pub fn make() -> Result<Self, NamespaceFault> {
        visit(|| {
            unshare(flags::NETWORK).map_err(|error| ("make a network namespace", error))?;
            // Of this thread: `/proc/self` would be the main thread's, which is in another
            // namespace.
            let own = File::open("/proc/thread-self/ns/net");
            configure(own.map_err(|error| ("open the namespace", error))?.into())
        })
    }

    /// Configures a caller's namespace, which must be fresh.
    pub fn enter(namespace: OwnedFd) -> Result<Self, NamespaceFault> {
        visit(move || {
            let joined = join(&namespace, flags::NETWORK);
            joined.map_err(|error| ("enter the network namespace", error))?;
            configure(namespace)
        })
    }

    /// Lets devices that are created from now on have IPv6.
    pub fn allow_ipv6(&mut self) -> Result<(), NamespaceFault> {
        let Some(setting) = &mut self.no_ipv6 else { return Ok(()) };
        setting.write_all(b"0").map_err(|error| ("change a setting of the namespace", error))
    }
}

/// Runs the work in a thread of its own, so that no thread has to return to its namespace.
fn visit(
    work: impl FnOnce() -> Result<Namespace, NamespaceFault> + Send + 'static,
) -> Result<Namespace, NamespaceFault> {
    let visitor = thread::Builder::new().name("network-visit".into()).spawn(work);
    let visitor = visitor.map_err(|error| ("start a thread", error))?;
    visitor.join().unwrap_or_else(|_| Err(("enter a namespace", io::ErrorKind::Other.into())))
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Applies the settings and opens the sockets in the calling thread's namespace.
fn configure(fd: OwnedFd) -> Result<Namespace, NamespaceFault> {
    for (name, value) in SETTINGS {
        // Before any device but the loopback is made: `default` counts for devices that are made
        // later.
        set(name, value)?;
    }
    let open = |protocol| Socket::open(protocol).map_err(|e| ("open a netlink socket", e));
    let route = open(None)?;
    let cookie = namespace_cookie(&route).map_err(|e| ("read the namespace's cookie", e))?;
    let echo = socket_with(
        AddressFamily::INET,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(ipproto::ICMP),
    );
    Ok(Namespace {
        fd,
        cookie,
        route,
        diagnosis: open(Some(SOCK_DIAG))?,
        // Only jobs with an egress policy need it; they fail later if it is missing.
        rules: Socket::open(Some(NETFILTER)).ok(),
        echo: echo.map_err(|error| ("open a socket for echo requests", error.into()))?,
        no_ipv6: File::options().write(true).open(format!("/proc/sys/net/{NO_IPV6}")).ok(),
    })
}

/// Writes a setting. A missing file is ignored: a kernel without IPv6 lacks some.
fn set(name: &str, value: &str) -> Result<(), NamespaceFault> {
    match fs::write(format!("/proc/sys/net/{name}"), value) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(("change a setting of the namespace", error))
        }
        _ => Ok(()),
    }
}
