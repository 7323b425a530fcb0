//! The BPF programs that the kernel runs for a function's sockets, instruction by instruction.
//!
//! Each begins with the same lookup: which control group calls, in which namespace? For a function
//! in its own job's namespace the body follows, with the function's entry in `R7` and the context
//! in `R6`. Any other process is refused in a job's namespace and allowed elsewhere.
//!
//! Names after a dot are fields of `struct bpf_sock_addr`, `struct bpf_sock` and `struct __sk_buff`
//! of `linux/bpf.h`, whose offsets these are.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use snowmelt_kernel::bpf::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R10};
use snowmelt_kernel::bpf::{Assembler, Helper, Hook, Label, Program, Size};

/// The size of a function's map entry: its namespace's cookie, its IPv4 address in eight bytes, its
/// IPv6 address.
pub const VALUE: usize = 32;
const NAMESPACE: i16 = 0;
const OWN4: i16 = 8;
const OWN6: i16 = 16;

/// `bpf_sock_addr.user_ip4`, `.user_ip6`, `.msg_src_ip4`, `.msg_src_ip6`, `.sk`.
const USER4: i16 = 4;
const USER6: i16 = 8;
const SOURCE4: i16 = 40;
const SOURCE6: i16 = 44;
const SOCKET: i16 = 64;
/// `bpf_sock.family`, `.type`, `.protocol`, `.src_ip4`, `.src_ip6`.
const SOCKET_FAMILY: i16 = 4;
const SOCKET_PROTOCOL: i16 = 12;
const SOCKET_MARK: i16 = 16;
const SOCKET_OWN4: i16 = 24;
const SOCKET_OWN6: i16 = 28;
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

const INET: u32 = 2;
const INET6: i32 = 10;
const TCP: u32 = 6;
const UDP: u32 = 17;
/// The EtherType of IPv4, in network byte order.
const ETHERNET_IPV4: u32 = (0x0800u16).to_be() as u32;
/// Offsets are relative to the network header.
const FROM_NETWORK_HEADER: i32 = 1;

/// Words of addresses, as they are in memory.
const LOOPBACK_MASK: u32 = u32::from_ne_bytes([0xff, 0, 0, 0]);
const LOOPBACK_NET: u32 = u32::from_ne_bytes([127, 0, 0, 0]);
const ONE: u32 = u32::from_ne_bytes([0, 0, 0, 1]);
const MAPPED: u32 = u32::from_ne_bytes([0, 0, 0xff, 0xff]);

/// The BPF maps: functions by control group, and namespaces of jobs.
#[derive(Clone, Copy)]
struct Tables<'a> {
    functions: BorrowedFd<'a>,
    jobs: BorrowedFd<'a>,
}

/// The labels at which programs end, placed by [`finish`].
struct Ends {
    allow: Label,
    refuse: Label,
}

/// The part of a program after the function is looked up.
type Body = fn(&mut Assembler, &Ends);

/// Loads all programs. Linux before 5.15 lacks the hook by which IPv6-only sockets are recognised;
/// then all IPv6 sockets are treated as such.
pub fn load(functions: BorrowedFd<'_>, jobs: BorrowedFd<'_>) -> io::Result<Vec<Program>> {
    let tables = Tables { functions, jobs };
    let options = Program::load(Hook::SetSockOption, option());
    let all: [(Hook, Body); 6] = [
        (Hook::Bind4, bind4),
        (Hook::Bind6, if options.is_ok() { bind6 } else { bind6_alone }),
        (Hook::Connect4, connect4),
        (Hook::Connect6, connect6),
        (Hook::Send4, send4),
        (Hook::Send6, send6),
    ];
    let addresses = all.into_iter().map(|(hook, body)| {
        let mut a = Assembler::new();
        let ends = Ends { allow: a.label(), refuse: a.label() };
        begin(&mut a, tables, &ends);
        body(&mut a, &ends);
        finish(&mut a, &ends);
        Program::load(hook, a)
    });
    let rest = [(Hook::SocketCreate, create(tables)), (Hook::InetIngress, ingress(tables))];
    let rest = rest.into_iter().map(|(hook, a)| Program::load(hook, a));
    addresses.chain(rest).chain(options.ok().map(Ok)).collect()
}

/// Looks up the calling function.
fn begin(a: &mut Assembler, tables: Tables<'_>, ends: &Ends) {
    let (unknown, function) = (a.label(), a.label());
    a.copy(R6, R1);
    a.call(Helper::NamespaceCookie);
    a.copy(R8, R0);
    a.call(Helper::CurrentGroup);
    look_up(a, tables.functions);
    a.jump_if_zero(R0, unknown);
    a.load(Size::Double, R1, R0, NAMESPACE);
    a.jump_if_same(R1, R8, function);
    a.place(unknown);
    a.copy(R0, R8);
    look_up(a, tables.jobs);
    a.jump_if_zero(R0, ends.allow);
    // The kernel returns EPERM for this.
    a.set(R0, 0);
    a.exit();
    a.place(function);
    a.copy(R7, R0);
}

/// Looks up the key in `R0`; returns the entry in `R0`, 0 if there is none.
fn look_up(a: &mut Assembler, map: BorrowedFd<'_>) {
    a.store(Size::Double, R10, -8, R0);
    a.map(R1, map);
    a.copy(R2, R10);
    a.add(R2, -8);
    a.call(Helper::MapLookup);
}

fn finish(a: &mut Assembler, ends: &Ends) {
    a.place(ends.allow);
    a.set(R0, 1);
    a.exit();
    if !a.is_used(ends.refuse) {
        return;
    }
    a.place(ends.refuse);
    a.set(R1, -Errno::ADDRNOTAVAIL.raw_os_error());
    a.call(Helper::SetResult);
    a.set(R0, 0);
    a.exit();
}

/// Jumps if the word in `register` is the wildcard or a loopback address of IPv4. Uses `R3`.
fn jump_if_local4(a: &mut Assembler, register: snowmelt_kernel::bpf::Register, label: Label) {
    a.jump_if_word_is(register, 0, label);
    a.copy(R3, register);
    a.and(R3, LOOPBACK_MASK);
    a.jump_if_word_is(R3, LOOPBACK_NET, label);
}

fn bind4(a: &mut Assembler, ends: &Ends) {
    let own = a.label();
    a.load(Size::Word, R1, R6, USER4);
    a.load(Size::Word, R2, R7, OWN4);
    jump_if_local4(a, R1, own);
    a.jump_unless_same(R1, R2, ends.refuse);
    a.place(own);
    a.store(Size::Word, R6, USER4, R2);
    a.jump(ends.allow);
}

fn connect4(a: &mut Assembler, ends: &Ends) {
    redirect4(a, USER4);
    // The socket may be bound already, and then to the function's address.
    a.load(Size::Double, R1, R6, SOCKET);
    a.load(Size::Word, R1, R1, SOCKET_OWN4);
    a.jump_unless_word_is(R1, 0, ends.allow);
    a.store_number(Size::Double, R10, -24, 0);
    a.store_number(Size::Double, R10, -32, 0);
    a.store_number(Size::Half, R10, -32, INET as i32);
    a.load(Size::Word, R1, R7, OWN4);
    a.store(Size::Word, R10, -28, R1);
    bind_to_stack_address(a, 16, ends);
}

/// Binds the socket to the address in the last 32 bytes of the stack.
fn bind_to_stack_address(a: &mut Assembler, length: i32, ends: &Ends) {
    a.copy(R1, R6);
    a.copy(R2, R10);
    a.add(R2, -32);
    a.set(R3, length);
    a.call(Helper::Bind);
    a.jump_unless_zero(R0, ends.refuse);
    a.jump(ends.allow);
}

/// Replaces a wildcard or loopback target by the function's address.
fn redirect4(a: &mut Assembler, at: i16) {
    let (here, done) = (a.label(), a.label());
    a.load(Size::Word, R1, R6, at);
    jump_if_local4(a, R1, here);
    a.jump(done);
    a.place(here);
    a.load(Size::Word, R2, R7, OWN4);
    a.store(Size::Word, R6, at, R2);
    a.place(done);
}

fn send4(a: &mut Assembler, ends: &Ends) {
    redirect4(a, USER4);
    a.load(Size::Word, R2, R7, OWN4);
    a.store(Size::Word, R6, SOURCE4, R2);
    a.jump(ends.allow);
}

/// The labels for kinds of IPv6 addresses in the context.
struct Kinds {
    /// The wildcard or the loopback address.
    here: Label,
    /// An IPv4-mapped address; the IPv4 address is in `R4`.
    mapped: Label,
}

/// Jumps by the kind of the address; falls through for all others.
fn sort6(a: &mut Assembler, kinds: &Kinds) {
    let other = a.label();
    a.load(Size::Word, R1, R6, USER6);
    a.load(Size::Word, R2, R6, USER6 + 4);
    a.or(R1, R2);
    a.jump_unless_word_is(R1, 0, other);
    a.load(Size::Word, R3, R6, USER6 + 8);
    a.load(Size::Word, R4, R6, USER6 + 12);
    a.jump_if_word_is(R3, MAPPED, kinds.mapped);
    a.jump_unless_word_is(R3, 0, other);
    a.jump_if_word_is(R4, 0, kinds.here);
    a.jump_if_word_is(R4, ONE, kinds.here);
    a.place(other);
}

/// Writes the function's own IPv6 address into the context.
fn put_own6(a: &mut Assembler, at: i16) {
    for word in (0..16).step_by(4) {
        a.load(Size::Word, R1, R7, OWN6 + word);
        a.store(Size::Word, R6, at + word, R1);
    }
}

/// Binds the wildcard to the function's IPv4 address, unless the socket is IPv6-only: the kernel
/// would make a socket that is bound to an IPv6 address IPv6-only. [`super::dual_stack`] adds IPv6.
fn bind6(a: &mut Assembler, ends: &Ends) {
    let alone = a.label();
    a.load(Size::Word, R1, R6, USER6);
    for word in (4..16).step_by(4) {
        a.load(Size::Word, R2, R6, USER6 + word);
        a.or(R1, R2);
    }
    a.jump_unless_word_is(R1, 0, alone);
    a.load(Size::Double, R1, R6, SOCKET);
    a.load(Size::Word, R1, R1, SOCKET_MARK);
    a.jump_unless_word_is(R1, 0, alone);
    a.set(R1, MAPPED as i32);
    a.store(Size::Word, R6, USER6 + 8, R1);
    a.load(Size::Word, R1, R7, OWN4);
    a.store(Size::Word, R6, USER6 + 12, R1);
    a.jump(ends.allow);
    a.place(alone);
    bind6_alone(a, ends);
}

fn bind6_alone(a: &mut Assembler, ends: &Ends) {
    let kinds = Kinds { here: a.label(), mapped: a.label() };
    let own4 = a.label();
    sort6(a, &kinds);
    for word in (0..16).step_by(4) {
        a.load(Size::Word, R1, R6, USER6 + word);
        a.load(Size::Word, R2, R7, OWN6 + word);
        a.jump_unless_same(R1, R2, ends.refuse);
    }
    a.jump(ends.allow);
    a.place(kinds.here);
    put_own6(a, USER6);
    a.jump(ends.allow);
    a.place(kinds.mapped);
    a.load(Size::Word, R5, R7, OWN4);
    jump_if_local4(a, R4, own4);
    a.jump_unless_same(R4, R5, ends.refuse);
    a.place(own4);
    a.store(Size::Word, R6, USER6 + 12, R5);
    a.jump(ends.allow);
}

fn connect6(a: &mut Assembler, ends: &Ends) {
    let kinds = Kinds { here: a.label(), mapped: a.label() };
    let (own4, from6, from4) = (a.label(), a.label(), a.label());
    // Flow, scope and port are 0 in both kinds of address.
    for offset in (-32..0).step_by(8) {
        a.store_number(Size::Double, R10, offset, 0);
    }
    a.store_number(Size::Half, R10, -32, INET6);
    sort6(a, &kinds);
    a.jump(from6);
    a.place(kinds.here);
    put_own6(a, USER6);
    a.place(from6);
    for word in (0..16).step_by(4) {
        a.load(Size::Word, R1, R7, OWN6 + word);
        a.store(Size::Word, R10, -24 + word, R1);
    }
    bind_unless_bound6(a, ends);
    a.place(kinds.mapped);
    jump_if_local4(a, R4, own4);
    a.jump(from4);
    a.place(own4);
    a.load(Size::Word, R5, R7, OWN4);
    a.store(Size::Word, R6, USER6 + 12, R5);
    a.place(from4);
    a.store_number(Size::Word, R10, -16, MAPPED as i32);
    a.load(Size::Word, R5, R7, OWN4);
    a.store(Size::Word, R10, -12, R5);
    bind_unless_bound6(a, ends);
}

fn bind_unless_bound6(a: &mut Assembler, ends: &Ends) {
    a.load(Size::Double, R2, R6, SOCKET);
    for word in (0..16).step_by(4) {
        a.load(Size::Word, R1, R2, SOCKET_OWN6 + word);
        a.jump_unless_word_is(R1, 0, ends.allow);
    }
    bind_to_stack_address(a, 28, ends);
}

/// The kernel runs [`send4`] for IPv4-mapped addresses.
fn send6(a: &mut Assembler, ends: &Ends) {
    let kinds = Kinds { here: a.label(), mapped: ends.allow };
    let source = a.label();
    sort6(a, &kinds);
    a.jump(source);
    a.place(kinds.here);
    put_own6(a, USER6);
    a.place(source);
    put_own6(a, SOURCE6);
    a.jump(ends.allow);
}

/// Marks IPv6-only sockets, because programs cannot read that option. Functions cannot set marks,
/// and nothing else in the namespace of a job uses them.
fn option() -> Assembler {
    let mut a = Assembler::new();
    let (other, done) = (a.label(), a.label());
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
fn create(tables: Tables<'_>) -> Assembler {
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

/// To the kernel, a socket that listens or sends without being bound receives packets for all
/// addresses of the namespace. This program limits it to its function's own.
fn ingress(tables: Tables<'_>) -> Assembler {
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
