//! The common parts of the BPF programs: the layout of the maps' entries and of sockets, and the
//! look-up in a map.
//!
//! Names after a dot are fields of `struct bpf_sock_addr`, `struct bpf_sock` and `struct __sk_buff`
//! of `linux/bpf.h`; the offsets here are those of these fields.

use std::os::fd::BorrowedFd;

use snowmelt_kernel::bpf::Register::{R0, R1, R2, R10};
use snowmelt_kernel::bpf::{Assembler, Helper, Size};

/// The size of a function's map entry: its namespace's cookie, its IPv4 address in eight bytes, its
/// IPv6 address.
pub const VALUE: usize = 32;
pub const NAMESPACE: i16 = 0;
pub const OWN4: i16 = 8;
pub const OWN6: i16 = 16;

/// `bpf_sock.src_ip4`, `.src_ip6`.
pub const SOCKET_OWN4: i16 = 24;
pub const SOCKET_OWN6: i16 = 28;

/// `AF_INET`.
pub const INET: u32 = 2;

/// The BPF maps: functions by control group, and namespaces of jobs.
#[derive(Clone, Copy)]
pub struct BpfTables<'a> {
    pub functions: BorrowedFd<'a>,
    pub jobs: BorrowedFd<'a>,
}

/// Looks up the key in `R0`; returns the entry in `R0`, 0 if there is none.
pub fn look_up(a: &mut Assembler, map: BorrowedFd<'_>) {
    a.store(Size::Double, R10, -8, R0);
    a.map(R1, map);
    a.copy(R2, R10);
    a.add(R2, -8);
    a.call(Helper::MapLookup);
}
