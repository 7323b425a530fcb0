//! Damage to the packets from a host to other hosts, by a BPF program at its port of the bridge: as
//! if its network card changed bytes and computed the checksums afterwards.
//!
//! Invariant: only large packets between agents, and between an agent and control, are changed. So
//! the host joins and reports, and only data that it sends in large pieces is wrong.

use std::os::fd::{AsFd, AsRawFd};

use snowmelt_kernel::bpf::Register::{R0, R1, R2, R3, R4, R5, R6, R10};
use snowmelt_kernel::bpf::{Assembler, Helper, Hook, Label, Size, VerifiedProgram};
use snowmelt_network::netlink::*;

use crate::members::{Machine, PORT};
use crate::network::port;
use crate::{Error, Result};

const IPV4: u16 = 0x0800;
const TCP: u32 = 6;
/// Offsets are relative to the network header.
const FROM_NETWORK_HEADER: i32 = 1;
/// The IPv4 header without options, and offsets in it: of its total length and protocol.
const IP_HEADER: i32 = 20;
const LENGTH: i16 = 2;
const PROTOCOL: i16 = 9;
/// Offsets in the TCP header behind it.
const SOURCE_PORT: i16 = 0;
const TARGET_PORT: i16 = 2;
/// Packets of fewer bytes than this (times 256) are not changed: heartbeats, small requests and
/// answers.
const LEAST_LENGTH: i32 = 5;
/// The offset of the four bytes that are changed, behind the headers of Ethernet, IP and TCP.
const DAMAGED_AT: i32 = 14 + IP_HEADER + 32 + 1000;
const WRONG: i32 = 0x5a0f_a55a;
const AT_HEADER: i16 = -32;
const AT_WRONG: i16 = -8;

/// Begins to damage the packets of a machine.
pub fn start(bridge: &mut Socket, machine: &Machine) -> Result<()> {
    let loaded = VerifiedProgram::load(Hook::Packets, damage());
    let program = loaded.map_err(Error::step("load a program that damages packets"))?;
    let mut batch = Batch::new();
    let queue = fixed(port(machine.number), 0xffff_0000, TC_H_CLSACT, 0);
    let flags = NLM_F_CREATE | NLM_F_REPLACE;
    batch.add("add a classifier to a link", RTM_NEWQDISC, flags, &queue, |a| {
        a.text(TCA_KIND, "clsact");
    });
    let info = 1 << 16 | u32::from(IPV4.to_be());
    let filter = fixed(port(machine.number), 0, TC_H_INGRESS, info);
    batch.add("damage the packets of a host", RTM_NEWTFILTER, NEW, &filter, |a| {
        a.text(TCA_KIND, "bpf").nest(TCA_OPTIONS, |a| {
            a.u32(TCA_BPF_FD, program.as_fd().as_raw_fd() as u32);
            a.text(TCA_BPF_NAME, "snowmelt-lab");
            a.u32(TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT);
        });
    });
    Ok(bridge.run(batch)?)
}

/// Undoes [`start`], if it was done.
pub fn stop(bridge: &mut Socket, machine: &Machine) -> Result<()> {
    let mut batch = Batch::new();
    let queue = fixed(port(machine.number), 0xffff_0000, TC_H_CLSACT, 0);
    batch.add("remove the classifier of a link", RTM_DELQDISC, 0, &queue, |_| {});
    match bridge.run(batch) {
        Err(failed) if is_absent(&failed) => Ok(()),
        done => Ok(done?),
    }
}

fn is_absent(failed: &BatchFailure) -> bool {
    use rustix::io::Errno;
    let code = failed.source.raw_os_error();
    [Errno::NOENT, Errno::INVAL].iter().any(|errno| code == Some(errno.raw_os_error()))
}

/// `struct tcmsg`.
fn fixed(device: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    let mut bytes = vec![AF_UNSPEC, 0, 0, 0];
    for word in [device, handle, parent, info] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

/// Uses `R6` for the packet. The result is always 0: the packet goes on.
fn damage() -> Assembler {
    let mut a = Assembler::new();
    let pass = a.label();
    let of_hosts = a.label();
    a.copy(R6, R1);
    // With the ports, which follow the header.
    read(&mut a, IP_HEADER + 4, pass);
    a.load(Size::Byte, R1, R10, AT_HEADER + PROTOCOL);
    a.jump_unless_word_is(R1, TCP, pass);
    // Of connections that others have opened to it, and of those that it has opened.
    a.load(Size::Half, R1, R10, AT_HEADER + IP_HEADER as i16 + SOURCE_PORT);
    a.jump_if_word_is(R1, u32::from(PORT.to_be()), of_hosts);
    a.load(Size::Half, R1, R10, AT_HEADER + IP_HEADER as i16 + TARGET_PORT);
    a.jump_unless_word_is(R1, u32::from(PORT.to_be()), pass);
    a.place(of_hosts);
    // The upper byte of the length.
    a.load(Size::Byte, R1, R10, AT_HEADER + LENGTH);
    a.set(R2, LEAST_LENGTH);
    a.jump_if_more(R2, R1, pass);
    a.store_number(Size::Word, R10, AT_WRONG, WRONG);
    a.copy(R1, R6);
    a.set(R2, DAMAGED_AT);
    a.copy(R3, R10);
    a.add(R3, AT_WRONG.into());
    a.set(R4, 4);
    a.set(R5, 0);
    a.call(Helper::StorePacketBytes);
    a.place(pass);
    a.set(R0, 0);
    a.exit();
    a
}

/// Reads the first bytes of the network header onto the stack.
fn read(a: &mut Assembler, length: i32, pass: Label) {
    a.copy(R1, R6);
    a.set(R2, 0);
    a.copy(R3, R10);
    a.add(R3, AT_HEADER.into());
    a.set(R4, length);
    a.set(R5, FROM_NETWORK_HEADER);
    a.call(Helper::PacketBytes);
    a.jump_unless_zero(R0, pass);
}
