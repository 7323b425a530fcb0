//! The BPF programs for calls with an address, instruction by instruction: `bind`, `connect` and
//! `sendmsg` of both families.
//!
//! Each begins after the lookup of the function: its entry is in `R7`, and the context in `R6`.
//!
//! Names after a dot are fields of `struct bpf_sock_addr`, `struct bpf_sock` and `struct __sk_buff`
//! of `linux/bpf.h`, whose offsets these are.

use snowmelt_kernel::bpf::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R10};
use snowmelt_kernel::bpf::{Assembler, Helper, Label, Register, Size};

use super::layout::{INET, OWN4, OWN6, SOCKET_OWN4, SOCKET_OWN6};

/// `bpf_sock_addr.user_ip4`, `.user_ip6`, `.msg_src_ip4`, `.msg_src_ip6`, `.sk`.
const USER4: i16 = 4;
const USER6: i16 = 8;
const SOURCE4: i16 = 40;
const SOURCE6: i16 = 44;
const SOCKET: i16 = 64;
/// `bpf_sock.mark`.
const SOCKET_MARK: i16 = 16;

const INET6: i32 = 10;

/// Words of addresses, as they are in memory.
const LOOPBACK_MASK: u32 = u32::from_ne_bytes([0xff, 0, 0, 0]);
const LOOPBACK_NET: u32 = u32::from_ne_bytes([127, 0, 0, 0]);
const ONE: u32 = u32::from_ne_bytes([0, 0, 0, 1]);
const MAPPED: u32 = u32::from_ne_bytes([0, 0, 0xff, 0xff]);

/// The labels at which a program ends, placed at the end of the program.
pub struct Ends {
    pub allow: Label,
    pub refuse: Label,
}

/// Jumps if the word in `register` is the wildcard or a loopback address of IPv4. Uses `R3`.
fn jump_if_local4(a: &mut Assembler, register: Register, label: Label) {
    a.jump_if_word_is(register, 0, label);
    a.copy(R3, register);
    a.and(R3, LOOPBACK_MASK);
    a.jump_if_word_is(R3, LOOPBACK_NET, label);
}

pub fn bind4(a: &mut Assembler, ends: &Ends) {
    let own = a.label();
    a.load(Size::Word, R1, R6, USER4);
    a.load(Size::Word, R2, R7, OWN4);
    jump_if_local4(a, R1, own);
    a.jump_unless_same(R1, R2, ends.refuse);
    a.place(own);
    a.store(Size::Word, R6, USER4, R2);
    a.jump(ends.allow);
}

pub fn connect4(a: &mut Assembler, ends: &Ends) {
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
    let here = a.label();
    let done = a.label();
    a.load(Size::Word, R1, R6, at);
    jump_if_local4(a, R1, here);
    a.jump(done);
    a.place(here);
    a.load(Size::Word, R2, R7, OWN4);
    a.store(Size::Word, R6, at, R2);
    a.place(done);
}

pub fn send4(a: &mut Assembler, ends: &Ends) {
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
pub fn bind6(a: &mut Assembler, ends: &Ends) {
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

pub fn bind6_alone(a: &mut Assembler, ends: &Ends) {
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

pub fn connect6(a: &mut Assembler, ends: &Ends) {
    let kinds = Kinds { here: a.label(), mapped: a.label() };
    let own4 = a.label();
    let from6 = a.label();
    let from4 = a.label();
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
pub fn send6(a: &mut Assembler, ends: &Ends) {
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
