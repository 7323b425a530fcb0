//! The hosts of a cluster, and which of them runs or holds what.
//!
//! | part | file |
//! |---|---|
//! | the hosts that report, and how they are reached | `hosts` |
//! | the authority that certifies hosts, and how a host joins | `authority` |
//! | trees through which images and files come to hosts | `trees` |
//! | files of functions on their way to hosts | `files` |
//! | hosts for calls, bursts and tasks of queries | `placements` |
//! | the program that starts and ends hosts | `pool` |
//!
//! Boundary: the rooms above decide what runs; this room decides where. Invariant: nothing here is
//! stored but which hosts are drained and which have joined, so a control that was restarted knows its hosts when they
//! have reported again.

pub(crate) mod authority;
pub(crate) mod files;
pub mod hosts;
pub(crate) mod placements;
pub(crate) mod pool;
pub(crate) mod trees;

use hosts::Hosts;
use placements::Placements;
use trees::Trees;

/// The resources of a cluster for work on several hosts: the hosts, the trees through which images
/// and files come to them, and the placements of the work.
#[derive(Clone, Debug)]
pub(crate) struct ClusterResources {
    pub hosts: Hosts,
    pub trees: Trees,
    pub placements: Placements,
}
