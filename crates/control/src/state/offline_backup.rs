//! A copy of the state of a folder that no server uses.

use std::path::Path;

use snowmelt_api::Backup;
use snowmelt_types::{Code, ErrorReport};

use super::backups;
use super::records::Records;

/// Copies the state into the folder of copies.
///
/// # Errors
/// `SM-0505` if there is none, it is damaged or a server uses it; `SM-0506`.
pub async fn copy(state_dir: &Path) -> Result<Backup, ErrorReport> {
    let path = backups::state(state_dir);
    if !path.exists() {
        let message = format!("{} has no state to copy", state_dir.display());
        return Err(ErrorReport::new(Code::STATE, message)
            .hint("name the state folder with SNOWMELT_STATE"));
    }
    // Not for one transaction: only a file that is held is checked before it is read.
    let records = Records::open(path, true).await?;
    match records.file() {
        Some(store) => backups::make(store).await,
        None => Err(ErrorReport::new(Code::INTERNAL, "the state is not in a file")),
    }
}
