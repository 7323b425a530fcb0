//! Programs of bursts: their files are uploaded to each host that lacks them, once for each
//! content.

use snowmelt_node::Node;
use snowmelt_types::{Code, Digest, ErrorReport};

use super::RankRange;
use crate::cluster::files;
use crate::state::records::FunctionRecord;

/// Refuses a function that runs in a folder of control's own host, if a part is on another one.
pub(super) fn check(record: &FunctionRecord, parts: &[RankRange]) -> Result<(), ErrorReport> {
    let elsewhere = parts.iter().find(|part| !part.host.is_local());
    if let (Some(root), Some(part)) = (&record.spec.root, elsewhere) {
        let name = &record.spec.name;
        let root = root.display();
        let message = format!("`{name}` runs in {root}, a folder of this host, and {part} is not");
        return Err(ErrorReport::new(Code::FUNCTION_COMMAND, message).hint(
            "run it on this host alone (fn burst --hosts 1), or bring what it needs with its code",
        ));
    }
    Ok(())
}

/// Uploads files to the hosts that lack them.
pub(super) async fn upload(
    node: &Node,
    files: &Digest,
    parts: &[RankRange],
) -> Result<(), ErrorReport> {
    let uploading = parts
        .iter()
        .map(|part| async move { part.unless_lost(files::send(node, files, &part.host)).await });
    futures::future::try_join_all(uploading).await.map(drop)
}
