//! Code that arrives from another host, which is written to disk beside the requests of the
//! runtime.

use snowmelt_node::Node;
use snowmelt_types::{Code, Digest, ErrorReport, Report};
use snowmelt_wire::SourceCode;

/// Stores code on this host, on a thread that may block, and returns its digest.
///
/// # Errors
/// Fails if the code cannot be written.
pub(crate) async fn stored_code(node: &Node, code: SourceCode) -> Result<Digest, ErrorReport> {
    let node = node.clone();
    let stored = tokio::task::spawn_blocking(move || node.preparation().store(&code)).await;
    let stored = stored.map_err(|error| ErrorReport::new(Code::INTERNAL, error.to_string()))?;
    stored.map_err(|error| error.report())
}
