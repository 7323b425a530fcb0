//! A source of blocks that is one other host, which has all of them.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, StreamExt};

use super::host::{Connect, Patience, PeerAnswer, PeerFailure, PeerHost, PeerState};
use super::protocol::{PeerRefusal, RangeRequest};
use super::source::{whole, within};
use crate::block::OciDigest;
use crate::read::{BlockSource, Pieces};
use crate::{Error, Result};

/// Reads blobs from a host that serves each under its own digest ([`super::Exports`]).
pub struct HostSource {
    connect: Arc<dyn Connect>,
    patience: Patience,
    host: Arc<PeerState>,
}

impl HostSource {
    /// Makes the source, and does not connect yet.
    pub fn new(connect: Arc<dyn Connect>, host: PeerHost, patience: Patience) -> Self {
        Self { connect, patience, host: Arc::new(PeerState::new(host)) }
    }

    fn error(&self, blob: &OciDigest, range: &Range<u64>, failure: &PeerFailure) -> Error {
        match failure {
            PeerFailure::Refused(PeerRefusal::Missing) => {
                Error::missing(format!("the blob {blob}"))
            }
            PeerFailure::Refused(PeerRefusal::Range) => crate::read::outside(blob, range),
            _ => {
                let what = format!("the bytes {range:?} of {blob} on {}", self.host.host);
                Error::unreachable(what, failure.to_string())
            }
        }
    }
}

#[async_trait]
impl BlockSource for HostSource {
    async fn fetch(&self, blob: &OciDigest, range: Range<u64>) -> Result<Bytes> {
        whole(range.end - range.start, self.stream(blob, range).await?).await
    }

    async fn stream(&self, blob: &OciDigest, range: Range<u64>) -> Result<Pieces> {
        let image = blob.clone();
        let if_here = false;
        let within = within(self.patience.work);
        let request =
            RangeRequest { image, blob: blob.clone(), range: range.clone(), if_here, within };
        let asked = self.host.ask(&*self.connect, &request, self.patience).await;
        let answer = asked.map_err(|failure| self.error(blob, &range, &failure))?;
        let what = format!("the rest of {blob} on {}", self.host.host);
        Ok(stream::try_unfold((answer, what), rest).boxed())
    }
}

async fn rest(
    (mut answer, what): (PeerAnswer, String),
) -> Result<Option<(Bytes, (PeerAnswer, String))>> {
    if answer.is_over() {
        answer.keep();
        return Ok(None);
    }
    match answer.next().await {
        Ok(bytes) => Ok(Some((bytes, (answer, what)))),
        Err(failure) => Err(Error::unreachable(what, failure.to_string())),
    }
}
