//! The files of a query's functions, for the other hosts that run its tasks. These hosts read the
//! files from each other, in one tree for each file.
//!
//! The sessions of a query are opened on all hosts, but one after another. So all hosts get their
//! places in the trees before the first session is opened. Otherwise a host without a parent, and
//! soon after it another one, would both read the same part from control.
//!
//! Invariant: the request that opens a host's session says where the host reads each file, so the
//! host knows it before it prepares the function. A file that control cannot offer is left out; the
//! host then refuses the functions that have it.

use std::collections::BTreeSet;

use snowmelt_image::block::BlobSummary;
use snowmelt_node::{Node, SharedFile, file_tree};
use snowmelt_types::{HostName, Tenant};
use tokio::sync::OnceCell;

use crate::peers::Peers;
use crate::peers::messages::OpenQuery;

/// The files of all functions of one query.
#[derive(Debug)]
pub(super) struct SentFiles {
    node: Node,
    tenant: Tenant,
    digests: BTreeSet<String>,
    // Made for the first host, for all, which have their places from then on.
    offered: OnceCell<Vec<(String, BlobSummary)>>,
}

impl SentFiles {
    /// Returns the files of the query's functions; `None` if they have no files.
    pub fn of(node: &Node, order: &OpenQuery) -> Option<Self> {
        let files = order.udfs.iter().flat_map(|udf| udf.files.values());
        let digests: BTreeSet<String> = files.map(|file| file.digest.clone()).collect();
        let node = node.clone();
        let tenant = order.tenant.clone();
        (!digests.is_empty()).then(|| Self { node, tenant, digests, offered: OnceCell::new() })
    }

    /// Returns from where a host reads each file.
    pub async fn places(&self, peers: &dyn Peers, host: &HostName) -> Vec<SharedFile> {
        let offered = self.offered.get_or_init(|| self.offer(peers)).await;
        let shared = offered.iter().filter_map(|(digest, blob)| {
            let place = peers.tree_place(&file_tree(digest), host)?;
            Some(SharedFile { digest: digest.clone(), blob: blob.clone(), place })
        });
        shared.collect()
    }

    async fn offer(&self, peers: &dyn Peers) -> Vec<(String, BlobSummary)> {
        let mut offered = Vec::with_capacity(self.digests.len());
        for digest in &self.digests {
            match self.node.share_file(&self.tenant, digest).await {
                Ok(blob) => offered.push((digest.clone(), blob)),
                Err(error) => tracing::warn!(%error, "a file of a function is not sent to hosts"),
            }
        }
        let others = peers.others().into_iter().filter(|peer| peer.takes_work());
        let hosts: Vec<HostName> = others.map(|peer| peer.name()).collect();
        for (digest, _) in &offered {
            peers.join_tree(&file_tree(digest), &hosts);
        }
        offered
    }
}
