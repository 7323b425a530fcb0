//! Files of a function that other hosts need: those of programs, which are sent to a host that
//! lacks them, once for each content; and those that the function's instances see, which hosts read
//! from each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use snowmelt_node::{Node, file_tree};
use snowmelt_tasks::agent::api::{FunctionCode, SharedFile, UploadCode};
use snowmelt_types::{Code, Digest, ErrorReport, Report};

use super::hosts::{ClusterHost, Hosts};
use super::trees::Trees;

/// Sends the files of a program to a host, if it lacks them.
pub(crate) async fn send(
    node: &Node,
    files: &Digest,
    host: &ClusterHost,
) -> Result<(), ErrorReport> {
    let ask = UploadCode { digest: files.clone(), code: None };
    if host.agent.upload(&ask).await?.there {
        return Ok(());
    }
    let node = node.clone();
    let digest = files.clone();
    let read = tokio::task::spawn_blocking(move || node.preparation().stored_files(&digest)).await;
    let read = read.map_err(|error| ErrorReport::new(Code::INTERNAL, error.to_string()))?;
    let code = Some(read.map_err(|error| error.report())?);
    host.agent.upload(&UploadCode { digest: files.clone(), code }).await.map(drop)
}

/// Returns the places from which hosts read the files that the instances of a function see: none
/// for control's own host, which has them.
pub(crate) async fn shared(
    node: &Node,
    trees: &Trees,
    hosts: &Hosts,
    function: &FunctionCode,
    on: &[Arc<ClusterHost>],
) -> Result<Vec<Vec<SharedFile>>, ErrorReport> {
    let mut shared = vec![Vec::new(); on.len()];
    let others: Vec<_> = on.iter().filter(|host| !host.is_local()).cloned().collect();
    if others.is_empty() {
        return Ok(shared);
    }
    let digests: BTreeSet<_> = function.files.values().map(|file| &file.digest).collect();
    for digest in digests {
        let blob = node.share_file(&function.tenant, digest).await;
        let blob = blob.map_err(|error| error.report())?;
        let places = trees.place(&file_tree(digest), hosts, &others);
        let remote = on.iter().zip(&mut shared).filter(|(host, _)| !host.is_local());
        for ((_, files), place) in remote.zip(places) {
            files.push(SharedFile { digest: digest.clone(), blob: blob.clone(), place });
        }
    }
    Ok(shared)
}
