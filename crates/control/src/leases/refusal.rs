//! The lease service of a control that does not lead: each request is answered with the reason.

use std::time::Duration;

use snowmelt_types::ErrorReport;
use snowmelt_wire::{Frame, Kind, read_frame_within, write_frame};
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::client::REQUEST_TIMEOUT;
use super::{MAX_CONNECTIONS, MAX_REQUEST};

/// Refuses all leases until it is cancelled.
pub(crate) async fn refuse_all(listener: UnixListener, why: ErrorReport, over: CancellationToken) {
    let Ok(failure) = Frame::json(Kind::Failure, &why) else { return };
    let mut connections = JoinSet::new();
    loop {
        let is_full = connections.len() >= MAX_CONNECTIONS;
        tokio::select! {
            () = over.cancelled() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if !is_full => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(tokio::time::timeout(
                        REQUEST_TIMEOUT,
                        refuse(stream, failure.clone()),
                    ));
                }
                Err(error) => {
                    tracing::warn!(%error, "a lease cannot be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
}

/// Reads the request before it is answered: a client that still writes would see no answer.
async fn refuse(mut stream: UnixStream, failure: Frame) {
    if read_frame_within(&mut stream, MAX_REQUEST).await.is_ok() {
        let _ = write_frame(&mut stream, &failure).await;
        let _ = stream.shutdown().await;
    }
}
