//! Programs of bursts: their files are uploaded to each host that lacks them, once for each
//! content.

use snowmelt_node::Node;
use snowmelt_node::agent::api::{ProgramPart, UploadCode};
use snowmelt_types::{Code, Digest, ErrorReport, Report};

use super::Part;
use crate::live;
use crate::records::FunctionRecord;

/// What runs a function, unless it is Python. The folder of an image is known to be on control's
/// own host and on no other.
pub(super) fn program(
    record: &FunctionRecord,
    parts: &[Part],
) -> Result<Option<ProgramPart>, ErrorReport> {
    let spec = &record.spec;
    let (Some(request), Some(files)) = (live::request(spec), &record.files) else {
        return Ok(None);
    };
    let elsewhere = parts.iter().find(|part| !part.host.is_local());
    if let (Some(root), Some(part)) = (&request.root, elsewhere) {
        let (name, root) = (&spec.name, root.display());
        let message = format!("`{name}` runs in {root}, a folder of this host, and {part} is not");
        return Err(ErrorReport::new(Code::FUNCTION_COMMAND, message).hint(
            "run it on this host alone (fn burst --hosts 1), or bring what it needs with its code",
        ));
    }
    Ok(Some(ProgramPart { files: files.clone(), request }))
}

/// Uploads files to the hosts that lack them.
pub(super) async fn upload(node: &Node, files: &Digest, parts: &[Part]) -> Result<(), ErrorReport> {
    let ask = &UploadCode { digest: files.clone(), code: None };
    let asking = parts.iter().map(|part| async move {
        let answer = part.unless_lost(part.host.agent.upload(ask)).await;
        answer.map(|answer| (!answer.there).then_some(part))
    });
    let lacking = futures::future::try_join_all(asking).await?;
    let lacking: Vec<&Part> = lacking.into_iter().flatten().collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let (node, digest) = (node.clone(), files.clone());
    let read = tokio::task::spawn_blocking(move || node.stored_files(&digest)).await;
    let read = read.map_err(|error| ErrorReport::new(Code::INTERNAL, error.to_string()))?;
    let code = Some(read.map_err(|error| error.report())?);
    let uploaded = &UploadCode { digest: files.clone(), code };
    let uploading = lacking
        .iter()
        .map(|part| async move { part.unless_lost(part.host.agent.upload(uploaded)).await });
    futures::future::try_join_all(uploading).await.map(drop)
}
