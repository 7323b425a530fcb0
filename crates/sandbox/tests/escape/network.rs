//! The host's network and sockets.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use snowmelt_types::SandboxId;

use crate::harness::python;
use crate::twin::{escapes_only_without, printed};

/// A service on the host's loopback, which trusts every local client.
#[test]
fn the_hosts_loopback_is_reached() {
    escapes_only_without(&["Network", "Seccomp"], |rig| async move {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        printed(&rig, python(&connect(&listener))).await
    });
}

fn connect(listener: &TcpListener) -> String {
    let port = listener.local_addr().unwrap().port();
    format!(
        "
import socket
try: socket.create_connection(('127.0.0.1', {port}), 5); print('ESCAPED: connected')
except OSError as error: print(error)
"
    )
}

/// CVE-2020-15257: an abstract socket of the host, as container engines had. The network namespace
/// and Landlock each refuse it.
#[test]
fn an_abstract_socket_of_the_host_is_reached() {
    escapes_only_without(&["Network", "Landlock"], |rig| async move {
        let name = format!("snowmelt-escape-{}", SandboxId::new());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _listener = UnixListener::bind_addr(&address).unwrap();
        let script = format!(
            "
import socket
try: socket.socket(socket.AF_UNIX).connect(chr(0) + '{name}'); print('ESCAPED: connected')
except OSError as error: print(error)
"
        );
        printed(&rig, python(&script)).await
    });
}

/// Netlink and raw packets, which have large kernel interfaces.
#[test]
fn a_socket_of_another_family_is_made() {
    escapes_only_without(&["Seccomp"], |rig| async move {
        let script = "
import socket
import ctypes
libc, pair = ctypes.CDLL(None, use_errno=True), (ctypes.c_int * 2)()
for family, kind in ((16, 3), (40, 1), (2, 1), (10, 1)):
    try: socket.socket(family, kind); print('ESCAPED: made', family)
    except OSError as error: print(error)
    # Not every family has pairs: the kernel then fails with EOPNOTSUPP, if the call reached it.
    if libc.socketpair(family, kind, 0, pair) == 0 or ctypes.get_errno() == 95:
        print('ESCAPED: requested a pair of', family)
";
        printed(&rig, python(script)).await
    });
}
