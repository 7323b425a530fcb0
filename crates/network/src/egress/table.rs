//! nftables rules as netlink messages.
//!
//! Invariant: a table is sent as one batch, which the kernel applies completely or not at all.

use std::net::Ipv4Addr;

use crate::Range;
use crate::devices::link;
use crate::netlink::{Attributes, Batch, NEW, NLM_F_APPEND, NLM_F_CREATE};

const SUBSYSTEM: u16 = 10 << 8;
const NEW_TABLE: u16 = SUBSYSTEM;
const NEW_CHAIN: u16 = SUBSYSTEM | 3;
const NEW_RULE: u16 = SUBSYSTEM | 6;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
/// `NFPROTO_INET`: rules for packets of both families.
const BOTH: u8 = 1;
/// `NFPROTO_IPV4`, `NFPROTO_IPV6`.
const IPV4: u8 = 2;
const IPV6: u8 = 10;
/// `NFT_TABLE_F_OWNER`: the kernel removes the table when the socket that made it is closed.
const OWNED: u32 = 2;
/// `NFTA_LIST_ELEM`, `NFTA_EXPR_NAME`, `NFTA_EXPR_DATA`, `NFTA_DATA_VALUE`.
const ELEMENT: u16 = 1;
const NAME: u16 = 1;
const DATA: u16 = 2;
const VALUE: u16 = 1;
const REGISTER: u32 = 1;
/// `enum nft_meta_keys`.
const IN_DEVICE: u32 = 4;
const OUT_DEVICE: u32 = 5;
const IN_NAME: u32 = 6;
const OUT_NAME: u32 = 7;
const FAMILY: u32 = 15;
const PROTOCOL: u32 = 16;
/// Bits of the connection state: established or related.
const ESTABLISHED: u32 = 2 | 4;
/// Bits of the connection state: new.
const NEW_CONNECTION: u32 = 8;

/// The point at which the kernel applies the rules of a chain.
#[derive(Clone, Copy, Debug)]
pub enum Hook {
    /// Packets that arrive, before connection tracking.
    RawIn,
    /// Packets that leave, before connection tracking.
    RawOut,
    /// Packets that are addressed to this namespace.
    In,
    /// Packets that this namespace forwards.
    Forward,
    /// Packets that this namespace sends.
    Out,
    /// Packets that leave, for the translation of their source.
    Rewrite,
}

impl Hook {
    fn parts(self) -> (&'static str, &'static str, u32, i32) {
        match self {
            Self::RawIn => ("raw-in", "filter", 0, -300),
            Self::RawOut => ("raw-out", "filter", 3, -300),
            Self::In => ("in", "filter", 1, 0),
            Self::Forward => ("forward", "filter", 2, 0),
            Self::Out => ("out", "filter", 3, 0),
            Self::Rewrite => ("rewrite", "nat", 4, 100),
        }
    }
}

/// A device that a packet arrives at or leaves by.
#[derive(Clone, Copy, Debug)]
pub enum Device {
    /// The device with this index.
    Number(u32),
    /// The devices whose name has this prefix.
    Prefix(&'static str),
}

/// A condition of a rule, or its final verdict.
#[derive(Clone, Copy, Debug)]
pub enum RulePart {
    /// The packet arrived at this device, or (false) at another one.
    From(Device, bool),
    /// The packet leaves by this device, or (false) by another one.
    To(Device, bool),
    /// The packet is IPv6, in a table for both families.
    Ipv6,
    /// The packet's destination is in this IPv4 range.
    Target(Range),
    /// The packet's source is in this IPv4 range.
    Source(Range),
    /// The packet is TCP (6) or UDP (17).
    Protocol(u8),
    /// The packet's destination port is in this range.
    Ports(u16, u16),
    /// The packet belongs to an established connection, or is an ICMP error about one.
    Established,
    /// The packet opens a connection, or belongs to one that is not established yet.
    New,
    /// Packets that match the previous conditions exceed a rate per second, after a burst.
    OverLimit(u32, u32),
    /// Accept the packet.
    Accept,
    /// Drop the packet silently.
    Drop,
    /// Reject the packet with an ICMP error.
    Refuse,
    /// Replace the packet's source by the address of the device that it leaves by.
    Masquerade,
    /// Do not track the packet's connection.
    Untracked,
}

/// Tables under construction: one for IPv4, and optionally one for both families.
pub struct FilterTable {
    name: String,
    is_owned: bool,
    family: u8,
    batch: Batch,
}

impl FilterTable {
    /// Makes an empty table for IPv4. If owned, it is removed when the socket that sends it is
    /// closed.
    pub fn new(name: &str, is_owned: bool) -> Self {
        let name = name.to_owned();
        let batch = Batch::new();
        let mut table = Self { name, is_owned, family: IPV4, batch };
        table.batch.add("begin rules about packets", BATCH_BEGIN, 0, &[0, 0, 0, 10], |_| {});
        table.begin();
        table
    }

    /// Starts a table for both families, to which later chains belong. It has no conditions on
    /// connections, so it does not make the kernel track connections of IPv6.
    pub fn for_both_families(&mut self) {
        self.family = BOTH;
        self.begin();
    }

    fn begin(&mut self) {
        let name = &self.name;
        let flags = if self.is_owned { OWNED } else { 0 };
        let fixed = [self.family, 0, 0, 0];
        self.batch.add("make a table of rules", NEW_TABLE, NEW, &fixed, |a| {
            a.text(1, name).be32(2, flags);
        });
    }

    /// Adds a chain with its rules; packets that no rule decides are accepted.
    pub fn chain(&mut self, hook: Hook, rules: &[&[RulePart]]) {
        let (name, kind, number, priority) = hook.parts();
        let table = self.name.clone();
        let fixed = [self.family, 0, 0, 0];
        self.batch.add("make a chain of rules", NEW_CHAIN, NLM_F_CREATE, &fixed, |a| {
            a.text(1, &table).text(3, name);
            a.nest(4, |a| {
                a.be32(1, number).be32(2, priority as u32);
            });
            a.text(7, kind);
        });
        for parts in rules {
            let flags = NLM_F_CREATE | NLM_F_APPEND;
            self.batch.add("add a rule about packets", NEW_RULE, flags, &fixed, |a| {
                a.text(1, &table).text(2, name);
                a.nest(4, |a| parts.iter().for_each(|part| put(a, *part)));
            });
        }
    }

    /// The messages to send.
    pub fn finish(mut self) -> Batch {
        self.batch.add("end rules about packets", BATCH_END, 0, &[0, 0, 0, 10], |_| {});
        self.batch
    }
}

fn put(a: &mut Attributes<'_>, part: RulePart) {
    match part {
        RulePart::From(device, is) => put_device(a, IN_DEVICE, IN_NAME, device, is),
        RulePart::To(device, is) => put_device(a, OUT_DEVICE, OUT_NAME, device, is),
        RulePart::Ipv6 => {
            meta(a, FAMILY);
            compare(a, true, &[IPV6]);
        }
        RulePart::Source(range) => put_range(a, 12, range),
        RulePart::Target(range) => put_range(a, 16, range),
        RulePart::Protocol(number) => {
            meta(a, PROTOCOL);
            compare(a, true, &[number]);
        }
        RulePart::Ports(first, last) => {
            payload(a, 2, 2, 2);
            expression(a, "range", |a| {
                a.be32(1, REGISTER).be32(2, 0);
                a.nest(3, |a| {
                    a.bytes(VALUE, &first.to_be_bytes());
                });
                a.nest(4, |a| {
                    a.bytes(VALUE, &last.to_be_bytes());
                });
            });
        }
        RulePart::Established => put_state(a, ESTABLISHED),
        RulePart::New => put_state(a, NEW_CONNECTION),
        RulePart::OverLimit(per_second, burst) => expression(a, "limit", |a| {
            a.bytes(1, &u64::from(per_second).to_be_bytes()).bytes(2, &1u64.to_be_bytes());
            // In packets; matches when the rate is exceeded.
            a.be32(3, burst).be32(4, 0).be32(5, 1);
        }),
        RulePart::Accept => verdict(a, 1),
        RulePart::Drop => verdict(a, 0),
        // ICMP's "administratively prohibited".
        RulePart::Refuse => expression(a, "reject", |a| {
            a.be32(1, 0).u8(2, 13);
        }),
        RulePart::Masquerade => expression(a, "masq", |_| {}),
        RulePart::Untracked => expression(a, "notrack", |_| {}),
    }
}

fn expression(a: &mut Attributes<'_>, name: &str, fill: impl FnOnce(&mut Attributes<'_>)) {
    a.nest(ELEMENT, |a| {
        a.text(NAME, name).nest(DATA, fill);
    });
}

fn meta(a: &mut Attributes<'_>, key: u32) {
    expression(a, "meta", |a| {
        a.be32(1, REGISTER).be32(2, key);
    });
}

fn compare(a: &mut Attributes<'_>, is: bool, value: &[u8]) {
    expression(a, "cmp", |a| {
        a.be32(1, REGISTER).be32(2, u32::from(!is));
        a.nest(3, |a| {
            a.bytes(VALUE, value);
        });
    });
}

/// Loads bytes of the packet, from the network header (1) or the transport header (2).
fn payload(a: &mut Attributes<'_>, base: u32, offset: u32, length: u32) {
    expression(a, "payload", |a| {
        a.be32(1, REGISTER).be32(2, base).be32(3, offset).be32(4, length);
    });
}

fn mask(a: &mut Attributes<'_>, value: &[u8]) {
    expression(a, "bitwise", |a| {
        a.be32(1, REGISTER).be32(2, REGISTER).be32(3, value.len() as u32);
        a.nest(4, |a| {
            a.bytes(VALUE, value);
        });
        a.nest(5, |a| {
            a.bytes(VALUE, &vec![0; value.len()]);
        });
    });
}

fn put_device(a: &mut Attributes<'_>, number: u32, name: u32, device: Device, is: bool) {
    match device {
        Device::Number(index) => {
            meta(a, number);
            compare(a, is, &index.to_ne_bytes());
        }
        Device::Prefix(prefix) => {
            meta(a, name);
            compare(a, is, prefix.as_bytes());
        }
    }
}

/// Matches the state of the connection.
fn put_state(a: &mut Attributes<'_>, states: u32) {
    expression(a, "ct", |a| {
        a.be32(1, REGISTER).be32(2, 0);
    });
    mask(a, &states.to_ne_bytes());
    compare(a, false, &[0; 4]);
}

fn put_range(a: &mut Attributes<'_>, offset: u32, range: Range) {
    payload(a, 1, offset, 4);
    let bits = u32::MAX.checked_shl(32 - u32::from(range.prefix())).unwrap_or(0);
    mask(a, &Ipv4Addr::from_bits(bits).octets());
    compare(a, true, &link::octets(range.base()));
}

fn verdict(a: &mut Attributes<'_>, code: u32) {
    expression(a, "immediate", |a| {
        a.be32(1, 0);
        a.nest(2, |a| {
            a.nest(2, |a| {
                a.be32(1, code);
            });
        });
    });
}
