//! The commands about a cluster, its hosts and their networks.
//!
//! | member | command |
//! |---|---|
//! | `node` | `snowmelt node`: this machine as a host |
//! | `hosts` | `snowmelt hosts`: the hosts, whether they get new work, their removal |
//! | `joins` | `snowmelt cluster join-token`: tokens with which hosts join |
//! | `trees` | `snowmelt tree`: from which host each host reads images |
//! | `networks` | `snowmelt net`: the networks of running jobs |
//! | `tokens` | `snowmelt token`: tokens of clients of other hosts |
//! | `quotas` | `snowmelt quota`: what tenants use, and their limits |
//! | `contexts` | `snowmelt context`: names of platforms |
//! | `login` | `snowmelt login` and `logout` |
//! | `lab` | `snowmelt lab`: a cluster of emulated hosts |
//!
//! Boundary: control decides about hosts; these commands ask it, and show what it answers.

pub mod contexts;
pub mod hosts;
pub mod joins;
pub mod lab;
pub mod login;
pub mod networks;
pub mod node;
pub mod quotas;
pub mod tokens;
pub mod trees;
