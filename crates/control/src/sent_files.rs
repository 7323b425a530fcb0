//! Files of programs, which are sent to a host that lacks them, once for each content.

use snowmelt_node::Node;
use snowmelt_node::agent::api::UploadCode;
use snowmelt_types::{Code, Digest, ErrorReport, Report};

use crate::hosts::Host;

/// Sends the files of a program to a host, if it lacks them.
pub(crate) async fn send(node: &Node, files: &Digest, host: &Host) -> Result<(), ErrorReport> {
    let ask = UploadCode { digest: files.clone(), code: None };
    if host.agent.upload(&ask).await?.there {
        return Ok(());
    }
    let (node, digest) = (node.clone(), files.clone());
    let read = tokio::task::spawn_blocking(move || node.stored_files(&digest)).await;
    let read = read.map_err(|error| ErrorReport::new(Code::INTERNAL, error.to_string()))?;
    let code = Some(read.map_err(|error| error.report())?);
    host.agent.upload(&UploadCode { digest: files.clone(), code }).await.map(drop)
}
