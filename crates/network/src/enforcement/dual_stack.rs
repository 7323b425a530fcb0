//! Dual-stack sockets that listen at the wildcard address are bound to the IPv4 address of their
//! function (see [`super::programs`]). A BPF program on ingress assigns to them the packets for the
//! function's IPv6 address that match no other socket.
//!
//! It inspects only the first packet of a connection, and each datagram; never IPv4. On a kernel
//! that cannot do this, such sockets are reachable over IPv4 only.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex};

use snowmelt_kernel::bpf::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use snowmelt_kernel::bpf::{Assembler, Helper, Hook, Label, Size, VerifiedProgram};

use crate::devices::link;
use crate::devices::lock;
use crate::netlink::*;
use crate::{JobSpec, Range};

/// The number of cached programs: most jobs of a host have the same addresses.
const MAX_CACHED: usize = 64;
/// The EtherType of IPv6.
const ETHERNET_IPV6: u16 = 0x86dd;
const TCP: u32 = 6;
const UDP: u32 = 17;
const MAPPED: u32 = u32::from_ne_bytes([0, 0, 0xff, 0xff]);
/// Bits of the 14th byte of the TCP header.
const SYN: u32 = 2;
const ACK: u32 = 16;
/// Offsets are relative to the network header.
const FROM_NETWORK_HEADER: i32 = 1;
/// The size of the IPv6 header, and the offsets of next header, source and destination.
const HEADER: i32 = 40;
const NEXT: i16 = 6;
const SOURCE: i16 = 8;
const TARGET: i16 = 24;
/// Stack offsets of the header, of the bytes after it, and of the lookup key (`bpf_sock_tuple`).
const AT_HEADER: i16 = -48;
const AT_REST: i16 = -64;
const AT_TUPLE: i16 = -104;
const TUPLE: i32 = 36;
const TUPLE_TARGET: i16 = 16;
const TUPLE_PORTS: i16 = 32;

/// The loaded programs by their address ranges.
#[derive(Debug, Default)]
pub struct DualStack(Mutex<BTreeMap<(Range, Range), Arc<VerifiedProgram>>>);

impl DualStack {
    /// Messages that attach the program for a job's functions to the devices of its namespace. The
    /// program must be kept until they are sent.
    pub fn attach(&self, spec: &JobSpec) -> io::Result<(Batch, Arc<VerifiedProgram>)> {
        let program = self.program(spec)?;
        let mut batch = Batch::new();
        for device in [link::LOOPBACK, link::OVERLAY] {
            put(&mut batch, device, &program);
        }
        Ok((batch, program))
    }

    fn program(&self, spec: &JobSpec) -> io::Result<Arc<VerifiedProgram>> {
        let key = (spec.own4, spec.own6);
        let mut kept = lock(&self.0);
        if let Some(program) = kept.get(&key) {
            return Ok(program.clone());
        }
        let program =
            Arc::new(VerifiedProgram::load(Hook::Packets, redirect(spec.own4, spec.own6)?)?);
        if kept.len() >= MAX_CACHED {
            kept.clear();
        }
        kept.insert(key, program.clone());
        Ok(program)
    }
}

fn put(batch: &mut Batch, device: u32, program: &VerifiedProgram) {
    // `struct tcmsg`: family, device, handle, parent, and a field that depends on the type.
    let fixed = |number: u32, parent: u32, beside: u32| {
        let mut bytes = vec![AF_UNSPEC, 0, 0, 0];
        for word in [device, number, parent, beside] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes
    };
    let queue = fixed(0xffff_0000, TC_H_CLSACT, 0);
    batch.add("add a classifier for incoming packets", RTM_NEWQDISC, NEW, &queue, |a| {
        a.text(TCA_KIND, "clsact");
    });
    let filter = fixed(0, TC_H_INGRESS, 1 << 16 | u32::from(ETHERNET_IPV6.to_be()));
    batch.add("assign packets to dual-stack sockets", RTM_NEWTFILTER, NEW, &filter, |a| {
        a.text(TCA_KIND, "bpf").nest(TCA_OPTIONS, |a| {
            a.u32(TCA_BPF_FD, program.as_fd().as_raw_fd() as u32);
            a.text(TCA_BPF_NAME, "snowmelt");
            a.u32(TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT);
        });
    });
}

/// Uses `R6` for the packet and `R8` for the IPv4 address of the destination function.
fn redirect(own4: Range, own6: Range) -> io::Result<Assembler> {
    let (IpAddr::V4(base4), IpAddr::V6(base6)) = (own4.base(), own6.base()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let hosts = u32::MAX.checked_shr(own4.prefix().into()).unwrap_or(0).to_be();
    let words = base6.octets();
    let words: Vec<u32> =
        words.chunks(4).map(|w| u32::from_ne_bytes([w[0], w[1], w[2], w[3]])).collect();
    let mut a = Assembler::new();
    let pass = a.label();
    let udp = a.label();
    a.copy(R6, R1);
    read(&mut a, 0, HEADER, AT_HEADER, pass);
    for (word, at) in words[..3].iter().zip((AT_HEADER + TARGET..).step_by(4)) {
        a.load(Size::Word, R1, R10, at);
        a.jump_unless_word_is(R1, *word, pass);
    }
    a.load(Size::Word, R8, R10, AT_HEADER + TARGET + 12);
    a.copy(R1, R8);
    a.and(R1, !hosts);
    a.jump_unless_word_is(R1, words[3], pass);
    a.and(R8, hosts);
    a.set(R1, u32::from_ne_bytes(base4.octets()) as i32);
    a.or(R8, R1);
    a.load(Size::Byte, R7, R10, AT_HEADER + NEXT);
    a.jump_if_word_is(R7, UDP, udp);
    a.jump_unless_word_is(R7, TCP, pass);
    read(&mut a, HEADER, 14, AT_REST, pass);
    a.load(Size::Byte, R1, R10, AT_REST + 13);
    a.and(R1, SYN | ACK);
    a.jump_unless_word_is(R1, SYN, pass);
    assign(&mut a, Helper::FindTcp, pass);
    a.place(udp);
    read(&mut a, HEADER, 4, AT_REST, pass);
    assign(&mut a, Helper::FindUdp, pass);
    a.place(pass);
    a.set(R0, 0);
    a.exit();
    Ok(a)
}

/// Reads bytes of the packet onto the stack.
fn read(a: &mut Assembler, offset: i32, length: i32, to: i16, pass: Label) {
    a.copy(R1, R6);
    a.set(R2, offset);
    a.copy(R3, R10);
    a.add(R3, to.into());
    a.set(R4, length);
    a.set(R5, FROM_NETWORK_HEADER);
    a.call(Helper::PacketBytes);
    a.jump_unless_zero(R0, pass);
}

/// Assigns the packet to an IPv6 socket bound to the IPv4 address, unless another socket matches.
fn assign(a: &mut Assembler, find: Helper, pass: Label) {
    let not_found = a.label();
    for (from, to) in [(SOURCE, 0), (SOURCE + 8, 8), (TARGET, 16), (TARGET + 8, 24)] {
        a.load(Size::Double, R1, R10, AT_HEADER + from);
        a.store(Size::Double, R10, AT_TUPLE + to, R1);
    }
    a.load(Size::Word, R1, R10, AT_REST);
    a.store(Size::Word, R10, AT_TUPLE + TUPLE_PORTS, R1);
    lookup(a, find);
    a.jump_if_zero(R0, not_found);
    a.copy(R1, R0);
    a.call(Helper::Release);
    a.jump(pass);
    a.place(not_found);
    a.store_number(Size::Double, R10, AT_TUPLE + TUPLE_TARGET, 0);
    a.set(R1, MAPPED as i32);
    a.store(Size::Word, R10, AT_TUPLE + TUPLE_TARGET + 8, R1);
    a.store(Size::Word, R10, AT_TUPLE + TUPLE_TARGET + 12, R8);
    lookup(a, find);
    a.jump_if_zero(R0, pass);
    a.copy(R9, R0);
    a.copy(R1, R6);
    a.copy(R2, R9);
    a.set(R3, 0);
    a.call(Helper::Assign);
    a.copy(R1, R9);
    a.call(Helper::Release);
    a.jump(pass);
}

/// Looks up the socket that would receive a packet, in this namespace.
fn lookup(a: &mut Assembler, find: Helper) {
    a.copy(R1, R6);
    a.copy(R2, R10);
    a.add(R2, AT_TUPLE.into());
    a.set(R3, TUPLE);
    a.set(R4, -1);
    a.set(R5, 0);
    a.call(find);
}
