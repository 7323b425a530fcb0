//! Files of functions on their way to another host, once for each content.
//!
//! They go over a connection of their own before the session of a query is opened, so that nothing
//! of them is in memory as a whole.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use snowmelt_types::{Code, ErrorReport, Report, Tenant};
use snowmelt_wire::{Error as WireError, Frame, Kind, read_frame_within, write_frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::messages::{FILES, FilesKept, FilesMissing, OfferFiles, OpenQuery};
use super::peers::Peer;
use crate::code::state;
use crate::{Error, FileStore, Result};

/// The longest message: the digests of all files of all functions of a query.
const MOST_MESSAGE: u32 = 16 << 20;

/// Bytes that are copied at once.
const PIECE: usize = 256 << 10;

/// How long the other host may take for the next piece.
const PIECE_WITHIN: Duration = Duration::from_secs(60);

/// Sends a host the files of the functions of a query that it lacks. A failure is logged: the host
/// then refuses the functions whose files it does not have.
pub(crate) async fn send(peer: &dyn Peer, order: &OpenQuery, store: &FileStore, within: Duration) {
    let files = order.udfs.iter().flat_map(|udf| udf.files.values());
    let digests: BTreeSet<String> = files.map(|file| file.digest.clone()).collect();
    if digests.is_empty() {
        return;
    }
    let offer = OfferFiles { tenant: order.tenant.clone(), digests: digests.into_iter().collect() };
    let sending = async {
        let mut stream = peer.connect(FILES).await?;
        sent(&mut stream, &offer, store).await.map_err(|error| error.report())
    };
    let sent = tokio::select! {
        sent = tokio::time::timeout(within, sending) => sent,
        () = peer.lost() => return,
    };
    let failure = match sent {
        Ok(Ok(FilesKept { error: None })) => return,
        Ok(Ok(FilesKept { error: Some(report) }) | Err(report)) => report,
        Err(late) => ErrorReport::new(Code::SERVER_UNREACHABLE, late.to_string()),
    };
    let (host, error) = (peer.name(), failure.message);
    tracing::warn!(%host, error, "files of functions were not sent to a host");
}

async fn sent(stream: &mut TcpStream, offer: &OfferFiles, store: &FileStore) -> Result<FilesKept> {
    write_frame(stream, &Frame::json(Kind::Request, offer)?).await?;
    let FilesMissing { missing } = reply(stream).await?;
    for digest in missing.iter().filter(|digest| offer.digests.contains(digest)) {
        let (file, size) = store.open(&offer.tenant, digest)?;
        stream.write_all(&size.to_le_bytes()).await?;
        let mut file = tokio::fs::File::from_std(file).take(size);
        tokio::io::copy_buf(&mut tokio::io::BufReader::with_capacity(PIECE, &mut file), stream)
            .await?;
    }
    reply(stream).await
}

async fn reply<T: serde::de::DeserializeOwned>(stream: &mut TcpStream) -> Result<T> {
    let frame = read_frame_within(stream, MOST_MESSAGE).await?;
    Ok(frame.ok_or(WireError::Closed)?.expect(Kind::Reply, "Reply")?.parse()?)
}

/// Receives the files of a connection.
pub(crate) async fn serve(mut stream: TcpStream, store: &FileStore) {
    let served = async {
        let frame = read_frame_within(&mut stream, MOST_MESSAGE).await?;
        let frame = frame.ok_or(WireError::Closed)?;
        let OfferFiles { tenant, digests } = frame.expect(Kind::Request, "Request")?.parse()?;
        store.sweep_received().await;
        let missing = store.missing(&tenant, &digests);
        let answer = FilesMissing { missing: missing.clone() };
        write_frame(&mut stream, &Frame::json(Kind::Reply, &answer)?).await?;
        let kept = received(&mut stream, &tenant, &missing, store).await;
        let error = kept.err().map(|error| error.report());
        write_frame(&mut stream, &Frame::json(Kind::Reply, &FilesKept { error })?).await
    };
    if let Err(error) = served.await {
        tracing::debug!(%error, "files of functions did not arrive");
    }
}

async fn received(
    stream: &mut TcpStream,
    tenant: &Tenant,
    digests: &[String],
    store: &FileStore,
) -> Result<()> {
    let mut piece = vec![0; PIECE];
    for digest in digests {
        let mut left = in_time(stream.read_u64_le()).await?;
        let mut receiving = store.receive(tenant, digest)?;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let read = in_time(stream.read(&mut piece[..most])).await?;
            if read == 0 {
                return Err(WireError::Closed.into());
            }
            receiving.write(&piece[..read])?;
            left -= read as u64;
        }
        let finished = tokio::task::spawn_blocking(move || receiving.finish()).await;
        let failed = |error| state(Path::new(digest))(std::io::Error::other(error));
        finished.map_err(failed)??;
    }
    Ok(())
}

async fn in_time<T>(reading: impl Future<Output = std::io::Result<T>>) -> Result<T> {
    let late = || Error::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
    Ok(tokio::time::timeout(PIECE_WITHIN, reading).await.map_err(|_| late())??)
}

#[cfg(test)]
mod tests {
    use snowmelt_api::{FileRef, FileRefs};
    use tokio::net::TcpListener;

    use super::*;

    fn put(store: &FileStore, tenant: &Tenant, digest: &str, bytes: &[u8]) -> FileRef {
        let mut receiving = store.receive(tenant, digest).unwrap();
        receiving.write(bytes).unwrap();
        receiving.finish().unwrap();
        FileRef { digest: digest.to_owned(), size: bytes.len() as u64 }
    }

    // SHA-256 of nothing, and of "abc".
    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[tokio::test]
    async fn a_host_gets_the_files_that_it_lacks() {
        let folders = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (near, far) = (FileStore::new(folders.0.path()), FileStore::new(folders.1.path()));
        let tenant = Tenant::default();
        let files = [
            ("empty".to_owned(), put(&near, &tenant, EMPTY, b"")),
            ("abc".to_owned(), put(&near, &tenant, ABC, b"abc")),
        ];
        put(&far, &tenant, EMPTY, b"");
        let files: FileRefs = files.into_iter().collect();
        let digests: Vec<_> = files.values().map(|file| file.digest.clone()).collect();
        assert_eq!(far.missing(&tenant, &digests), [ABC]);
        let offer = OfferFiles { tenant: tenant.clone(), digests: digests.clone() };
        for _ in 0..2 {
            let kept = exchanged(&offer, &near, &far).await.unwrap();
            assert!(kept.error.is_none(), "{kept:?}");
            assert_eq!(far.missing(&tenant, &digests), [] as [&str; 0]);
        }
        let tree = far.tree(&tenant, &files).unwrap();
        assert_eq!(std::fs::read(tree.path().join("abc")).unwrap(), b"abc");
    }

    #[tokio::test]
    async fn a_file_that_is_damaged_on_its_way_is_not_kept() {
        let folders = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (near, far) = (FileStore::new(folders.0.path()), FileStore::new(folders.1.path()));
        let tenant = Tenant::default();
        put(&near, &tenant, ABC, b"abc");
        let blob = folders.0.path().join("default/blobs").join(ABC);
        std::fs::remove_file(&blob).unwrap();
        std::fs::write(&blob, b"abd").unwrap();
        let offer = OfferFiles { tenant: tenant.clone(), digests: vec![ABC.to_owned()] };
        let kept = exchanged(&offer, &near, &far).await.unwrap();
        assert_eq!(kept.error.unwrap().code, Code::FUNCTION_FILE.code);
        assert_eq!(far.missing(&tenant, &offer.digests), [ABC]);
    }

    async fn exchanged(offer: &OfferFiles, near: &FileStore, far: &FileStore) -> Result<FilesKept> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, far) = (listener.accept().await.unwrap().0, far.clone());
        let serving = tokio::spawn(async move { serve(accepted, &far).await });
        let kept = sent(&mut stream, offer, near).await;
        serving.await.unwrap();
        kept
    }
}
