//! Numbers of the kernel's interface (`linux/rtnetlink.h`, `if_link.h`, `neighbour.h`) by their
//! names there.

#![allow(missing_docs)]

pub const NLM_F_REQUEST: u16 = 0x1;
pub const NLM_F_ACK: u16 = 0x4;
pub const NLM_F_REPLACE: u16 = 0x100;
pub const NLM_F_EXCL: u16 = 0x200;
pub const NLM_F_DUMP: u16 = 0x300;
pub const NLM_F_CREATE: u16 = 0x400;
pub const NLM_F_APPEND: u16 = 0x800;
/// A new thing that must not be there yet.
pub const NEW: u16 = NLM_F_CREATE | NLM_F_EXCL;

pub const NLMSG_ERROR: u16 = 2;
pub const NLMSG_DONE: u16 = 3;

pub const RTM_NEWLINK: u16 = 16;
pub const RTM_DELLINK: u16 = 17;
pub const RTM_GETLINK: u16 = 18;
pub const RTM_NEWADDR: u16 = 20;
pub const RTM_DELADDR: u16 = 21;
pub const RTM_GETADDR: u16 = 22;
pub const RTM_NEWROUTE: u16 = 24;
pub const RTM_DELROUTE: u16 = 25;
pub const RTM_GETROUTE: u16 = 26;
pub const RTM_NEWNEIGH: u16 = 28;
pub const RTM_DELNEIGH: u16 = 29;
pub const RTM_GETNEIGH: u16 = 30;
pub const RTM_NEWQDISC: u16 = 36;
pub const RTM_DELQDISC: u16 = 37;
pub const RTM_NEWTFILTER: u16 = 44;

pub const AF_UNSPEC: u8 = 0;
pub const AF_INET: u8 = 2;
pub const AF_BRIDGE: u8 = 7;
pub const AF_INET6: u8 = 10;

pub const IFF_UP: u32 = 0x1;
pub const IFF_NOARP: u32 = 0x80;
pub const IFF_LOWER_UP: u32 = 0x1_0000;

pub const IFLA_ADDRESS: u16 = 1;
pub const IFLA_IFNAME: u16 = 3;
pub const IFLA_MTU: u16 = 4;
pub const IFLA_MASTER: u16 = 10;
pub const IFLA_OPERSTATE: u16 = 16;
pub const IFLA_LINKINFO: u16 = 18;
pub const IFLA_AF_SPEC: u16 = 26;
pub const IFLA_NET_NS_FD: u16 = 28;
pub const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
pub const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
pub const IFLA_INFO_KIND: u16 = 1;
pub const IFLA_INFO_DATA: u16 = 2;
pub const IFLA_BR_STP_STATE: u16 = 5;
pub const IFLA_BR_MCAST_SNOOPING: u16 = 23;
pub const VETH_INFO_PEER: u16 = 1;
pub const IF_OPER_UNKNOWN: u8 = 0;
pub const IF_OPER_UP: u8 = 6;

pub const IFLA_VXLAN_ID: u16 = 1;
pub const IFLA_VXLAN_LOCAL: u16 = 4;
pub const IFLA_VXLAN_LEARNING: u16 = 7;
pub const IFLA_VXLAN_PORT: u16 = 15;
pub const IFLA_VXLAN_LOCAL6: u16 = 17;
pub const IFLA_VXLAN_UDP_CSUM: u16 = 18;
pub const IFLA_VXLAN_UDP_ZERO_CSUM6_TX: u16 = 19;
pub const IFLA_VXLAN_UDP_ZERO_CSUM6_RX: u16 = 20;

pub const IFA_ADDRESS: u16 = 1;
pub const IFA_LOCAL: u16 = 2;

pub const RTA_DST: u16 = 1;
pub const RTA_OIF: u16 = 4;
pub const RTA_GATEWAY: u16 = 5;
pub const RTA_PREFSRC: u16 = 7;
pub const RTA_VIA: u16 = 18;
pub const RT_TABLE_MAIN: u8 = 254;
pub const RT_TABLE_LOCAL: u8 = 255;
pub const RTPROT_STATIC: u8 = 4;
pub const RT_SCOPE_UNIVERSE: u8 = 0;
pub const RT_SCOPE_HOST: u8 = 254;
pub const RTN_UNICAST: u8 = 1;
pub const RTN_LOCAL: u8 = 2;
pub const RTN_BLACKHOLE: u8 = 6;
pub const RTNH_F_ONLINK: u32 = 4;

pub const NDA_DST: u16 = 1;
pub const NDA_LLADDR: u16 = 2;
pub const NUD_PERMANENT: u16 = 0x80;
pub const NTF_SELF: u8 = 2;

pub const TCA_KIND: u16 = 1;
pub const TCA_OPTIONS: u16 = 2;
pub const TCA_BPF_FD: u16 = 6;
pub const TCA_BPF_NAME: u16 = 7;
pub const TCA_BPF_FLAGS: u16 = 8;
pub const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;
pub const TC_H_CLSACT: u32 = 0xffff_fff1;
/// `TC_H_CLSACT` with `TC_H_MIN_INGRESS`.
pub const TC_H_INGRESS: u32 = 0xffff_fff2;
pub const TCA_TBF_PARMS: u16 = 1;
pub const TCA_TBF_RATE64: u16 = 4;
pub const TCA_TBF_BURST: u16 = 6;
pub const TCA_NETEM_LATENCY64: u16 = 10;
