//! The BPF programs for calls and packets without an address to check, instruction by instruction:
//! options, the creation of sockets, and what a socket receives.
//!
//! Names after a dot are fields of `struct bpf_sock_addr`, `struct bpf_sock` and `struct __sk_buff`
//! of `linux/bpf.h`, whose offsets these are.

use snowmelt_kernel::bpf::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R10};
use snowmelt_kernel::bpf::{Assembler, Helper, Label, Size};

use super::layout::{BpfTables, INET, OWN4, OWN6, SOCKET_OWN4, SOCKET_OWN6, look_up};

/// `bpf_sock.family`, `.protocol`.
const SOCKET_FAMILY: i16 = 4;
const SOCKET_PROTOCOL: i16 = 12;
/// `bpf_sockopt.sk`, `.optval`, `.optval_end`, `.level`, `.optname`, `.optlen`.
const OPTION_SOCKET: i16 = 0;
const OPTION_VALUE: i16 = 8;
const OPTION_END: i16 = 16;
const OPTION_LEVEL: i16 = 24;
const OPTION_NAME: i16 = 28;
const OPTION_LENGTH: i16 = 32;
/// `SOL_IPV6` with `IPV6_V6ONLY`, `SOL_SOCKET` with `SO_MARK`.
const V6ONLY: (u32, u32) = (41, 26);
const MARK: (i32, i32) = (1, 36);
/// `__sk_buff.protocol`, `.sk`.
const PACKET_PROTOCOL: i16 = 16;
const PACKET_SOCKET: i16 = 168;

const TCP: u32 = 6;
const UDP: u32 = 17;
/// The EtherType of IPv4, in network byte order.
const ETHERNET_IPV4: u32 = (0x0800u16).to_be() as u32;
/// Offsets are relative to the network header.
const FROM_NETWORK_HEADER: i32 = 1;

/// Marks IPv6-only sockets, because programs cannot read that option. Functions cannot set marks,
/// and nothing else in the namespace of a job uses them.
pub fn option() -> Assembler {
    let mut a = Assembler::new();
    let other = a.label();
    let done = a.label();
    a.copy(R6, R1);
    a.load(Size::Word, R2, R6, OPTION_LEVEL);
    a.jump_unless_word_is(R2, V6ONLY.0, other);
    a.load(Size::Word, R2, R6, OPTION_NAME);
    a.jump_unless_word_is(R2, V6ONLY.1, other);
    a.load(Size::Double, R2, R6, OPTION_VALUE);
    a.load(Size::Double, R3, R6, OPTION_END);
    a.copy(R4, R2);
    a.add(R4, 4);
    a.jump_if_more(R4, R3, other);
    a.load(Size::Word, R2, R2, 0);
    a.store(Size::Word, R10, -8, R2);
    a.load(Size::Double, R1, R6, OPTION_SOCKET);
    a.set(R2, MARK.0);
    a.set(R3, MARK.1);
    a.copy(R4, R10);
    a.add(R4, -8);
    a.set(R5, 4);
    a.call(Helper::SetOption);
    a.jump(done);
    a.place(other);
    // With length 0 the kernel uses the caller's value, whatever its length.
    a.set(R1, 0);
    a.store(Size::Word, R6, OPTION_LENGTH, R1);
    a.place(done);
    a.set(R0, 1);
    a.exit();
    a
}

/// Refuses protocols with other means to bind: SCTP binds several addresses in one call.
pub fn create(tables: BpfTables<'_>) -> Assembler {
    let mut a = Assembler::new();
    let allow = a.label();
    a.copy(R6, R1);
    a.load(Size::Word, R7, R1, SOCKET_PROTOCOL);
    a.jump_if_word_is(R7, TCP, allow);
    a.jump_if_word_is(R7, UDP, allow);
    a.call(Helper::NamespaceCookie);
    look_up(&mut a, tables.jobs);
    a.jump_if_zero(R0, allow);
    a.set(R0, 0);
    a.exit();
    a.place(allow);
    a.set(R0, 1);
    a.exit();
    a
}

/// Limits a socket to its function's own addresses: to the kernel, a socket that listens or sends
/// without being bound receives packets for all addresses of the namespace.
pub fn ingress(tables: BpfTables<'_>) -> Assembler {
    let mut a = Assembler::new();
    let (allow, is6, wildcard, packet6, refuse) =
        (a.label(), a.label(), a.label(), a.label(), a.label());
    a.copy(R6, R1);
    a.load(Size::Double, R1, R6, PACKET_SOCKET);
    a.jump_if_zero(R1, allow);
    a.call(Helper::FullSocket);
    a.jump_if_zero(R0, allow);
    a.load(Size::Word, R2, R0, SOCKET_FAMILY);
    a.jump_unless_word_is(R2, INET, is6);
    a.load(Size::Word, R2, R0, SOCKET_OWN4);
    a.jump_unless_word_is(R2, 0, allow);
    a.jump(wildcard);
    a.place(is6);
    for word in (0..16).step_by(4) {
        a.load(Size::Word, R2, R0, SOCKET_OWN6 + word);
        a.jump_unless_word_is(R2, 0, allow);
    }
    a.place(wildcard);
    a.copy(R1, R0);
    a.call(Helper::SocketGroup);
    look_up(&mut a, tables.functions);
    a.jump_if_zero(R0, allow);
    a.copy(R7, R0);
    a.load(Size::Word, R1, R6, PACKET_PROTOCOL);
    a.jump_unless_word_is(R1, ETHERNET_IPV4, packet6);
    compare_target(&mut a, 16, OWN4, 4, refuse);
    a.jump(allow);
    a.place(packet6);
    compare_target(&mut a, 24, OWN6, 16, refuse);
    a.place(allow);
    a.set(R0, 1);
    a.exit();
    a.place(refuse);
    a.set(R0, 0);
    a.exit();
    a
}

/// Jumps unless the packet's destination, at `offset` in its header, is the function's address.
fn compare_target(a: &mut Assembler, offset: i32, own: i16, length: i16, refuse: Label) {
    a.copy(R1, R6);
    a.set(R2, offset);
    a.copy(R3, R10);
    a.add(R3, -32);
    a.set(R4, i32::from(length));
    a.set(R5, FROM_NETWORK_HEADER);
    a.call(Helper::PacketBytes);
    a.jump_unless_zero(R0, refuse);
    for word in (0..length).step_by(4) {
        a.load(Size::Word, R1, R10, -32 + word);
        a.load(Size::Word, R2, R7, own + word);
        a.jump_unless_same(R1, R2, refuse);
    }
}
