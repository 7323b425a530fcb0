//! Files of UDFs: each content is sent unless the platform has it.

use std::path::PathBuf;

use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use snowmelt_api::{FileRef, FilesRequest, MissingFiles};
use snowmelt_types::{Code, ErrorReport};
use tokio::io::AsyncReadExt;

use super::ApiClient;

/// The most bytes of a file that are sent at once.
const PIECE_BYTES: usize = 256 << 10;

/// A file of this machine that travels with a function.
#[derive(Clone, Debug)]
pub struct LocalFile {
    /// The name that the function uses.
    pub name: String,
    /// The path of the file on this machine.
    pub path: PathBuf,
    /// Digest and size of the file's content when it was read.
    pub content: FileRef,
}

impl ApiClient {
    /// Sends the contents that the platform does not have.
    ///
    /// # Errors
    /// A file that cannot be read, or whose content is another one by now.
    pub async fn send_files(&self, files: &[LocalFile]) -> Result<(), ErrorReport> {
        if files.is_empty() {
            return Ok(());
        }
        let digests = files.iter().map(|file| file.content.digest.clone()).collect();
        let asked = FilesRequest { digests };
        let MissingFiles { missing } = self.json(Method::POST, "/v1/files", Some(&asked)).await?;
        for digest in missing {
            if let Some(file) = files.iter().find(|file| file.content.digest == digest) {
                self.send_file(file).await?;
            }
        }
        Ok(())
    }

    async fn send_file(&self, file: &LocalFile) -> Result<(), ErrorReport> {
        let shown = file.path.display();
        let opened = tokio::fs::File::open(&file.path).await;
        let opened = opened.map_err(|error| {
            ErrorReport::new(Code::FUNCTION_FILE, format!("{shown} cannot be read: {error}"))
        })?;
        let pieces = futures::stream::try_unfold(opened, |mut opened| async move {
            let mut piece = vec![0; PIECE_BYTES];
            let read = opened.read(&mut piece).await?;
            piece.truncate(read);
            Ok((read > 0).then(|| (Frame::data(Bytes::from(piece)), opened)))
        });
        let path = format!("/v1/files/{}", file.content.digest);
        let body = StreamBody::new(pieces);
        let sent = self.http.upload(&path, "application/octet-stream", body.boxed_unsync());
        match self.unless_silent(sent).await {
            // The server only knows digests.
            Err(error) if error.known_code() == Code::FUNCTION_FILE => {
                let message = format!("{shown} cannot be sent: {}", error.message);
                Err(ErrorReport { message, ..error })
            }
            sent => sent.map(drop),
        }
    }
}
