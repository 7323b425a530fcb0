//! The files that a task may read, opened with the platform's own rights.
//!
//! A worker is granted descriptors, never paths: it needs no mount of the user's folders, reads
//! files that its own user id could not, and can read nothing else (docs/decisions/002).

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;

use snowmelt_wire::{FileGrant, FrameStream, Kind, MAX_DESCRIPTORS};

use crate::{Error, Result};

/// Opens and sends the files of a task.
pub(crate) fn grant(stream: &mut FrameStream, grants: &[FileGrant]) -> Result<()> {
    for chunk in grants.chunks(MAX_DESCRIPTORS) {
        let files = chunk.iter().map(open).collect::<Result<Vec<_>>>()?;
        let descriptors: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        let payload = serde_json::to_vec(chunk)
            .map_err(|source| snowmelt_wire::Error::Json { kind: Kind::Files, source })?;
        stream.send_with(Kind::Files, &payload, &descriptors)?;
    }
    Ok(())
}

fn open(grant: &FileGrant) -> Result<File> {
    let path = PathBuf::from(&grant.path);
    File::open(&path).map_err(|source| Error::Open { path, source })
}
