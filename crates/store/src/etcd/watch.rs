//! Watches: a stream of etcd, which is opened again when its connection is lost.
//!
//! Invariants: the events of a revision are handed on together, so a stream that is opened again
//! begins at the revision after them, without a lost or doubled event. If etcd no longer has these
//! revisions, or has gone back behind them (a backup was restored), the watch ends with an error.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use tokio::sync::watch;

use super::channel::{EtcdChannel, Via, pause};
use super::grpc::{CallFailure, GrpcCall};
use super::messages::{
    RangeFound, RangeQuery, WatchCreate, WatchEvent, WatchRequest, WatchResponse, revision,
};
use super::{KeyRange, text_of, unsigned};
use crate::{Error, KeyChange, Result, Revision, Since, StoreEvent, Watch};

/// The kind of an event that deletes a key.
const DELETE: i32 = 1;

/// The state of a watch.
struct EtcdWatcher {
    channel: Arc<EtcdChannel>,
    /// Ends when the store is closed.
    closing: watch::Receiver<()>,
    range: KeyRange,
    /// The bytes of a key that come before what the caller knows as key.
    strip: usize,
    /// The first revision that was not handed on.
    next: i64,
    /// Events of the last revision of an answer that is sent in parts.
    held: Vec<WatchEvent>,
    ready: VecDeque<StoreEvent>,
    stream: Option<WatchStream>,
    failed: bool,
}

struct WatchStream {
    call: GrpcCall<WatchResponse>,
    via: Via,
}

/// Opens a watch of a range of keys.
pub(super) async fn open(
    channel: &Arc<EtcdChannel>,
    range: KeyRange,
    strip: usize,
    since: Since,
    closing: watch::Receiver<()>,
) -> Result<Watch> {
    let next = match since {
        Since::Now => 0,
        Since::Revision(revision) => revision.0.max(1).cast_signed(),
    };
    let mut watcher = EtcdWatcher {
        channel: Arc::clone(channel),
        closing,
        range,
        strip,
        next,
        held: Vec::new(),
        ready: VecDeque::new(),
        stream: None,
        failed: false,
    };
    let opening = tokio::time::timeout(channel.settings().timeout, watcher.reopen());
    match opening.await {
        Ok(opened) => opened?,
        Err(_) => {
            let what = "no watch could be opened in time".to_owned();
            return Err(Error::Unreachable { place: channel.settings().place(), what });
        }
    }
    Ok(futures::stream::unfold(watcher, EtcdWatcher::step).boxed())
}

impl EtcdWatcher {
    async fn step(mut self) -> Option<(Result<StoreEvent>, Self)> {
        let mut closing = self.closing.clone();
        loop {
            if self.failed {
                return None;
            }
            if let Some(event) = self.ready.pop_front() {
                return Some((Ok(event), self));
            }
            let read = tokio::select! {
                _ = closing.changed() => return None,
                read = self.read() => read,
            };
            if let Err(error) = read {
                self.failed = true;
                return Some((Err(error), self));
            }
        }
    }

    /// Reads one answer, or opens the stream again.
    async fn read(&mut self) -> Result<()> {
        let Some(stream) = &mut self.stream else {
            self.reached().await?;
            return self.reopen().await;
        };
        let answer = match stream.call.next().await {
            Ok(Some(answer)) => answer,
            Ok(None) => return self.leave(CallFailure::Lost("a watch ended".to_owned())).await,
            Err(failure) => return self.leave(failure).await,
        };
        if answer.canceled {
            return self.cancelled(&answer).await;
        }
        self.take(answer);
        Ok(())
    }

    /// Opens the stream, in as many attempts as it takes.
    async fn reopen(&mut self) -> Result<()> {
        self.held.clear();
        loop {
            match self.create().await {
                Ok(()) => return Ok(()),
                Err(failure) if failure.passes() => pause().await,
                Err(failure) => return Err(self.channel.error(&failure)),
            }
        }
    }

    async fn create(&mut self) -> Result<(), CallFailure> {
        let (mut call, via) = self.channel.begin::<WatchResponse>("Watch/Watch").await?;
        let create = WatchCreate {
            key: self.range.from.clone(),
            range_end: self.range.to.clone(),
            start_revision: self.next,
            progress_notify: true,
            fragment: true,
        };
        let opened = async {
            call.send(&WatchRequest { create: Some(create) }, false)?;
            call.next().await?.ok_or_else(|| CallFailure::Lost("a watch ended".to_owned()))
        };
        let answer = self.channel.seen(&via, opened.await).await?;
        if self.next == 0 {
            self.next = revision(answer.header.as_ref()) + 1;
        }
        self.stream = Some(WatchStream { call, via });
        Ok(())
    }

    /// Refuses to go on if etcd is behind what was handed on.
    async fn reached(&self) -> Result<()> {
        let any = RangeQuery { limit: 1, ..RangeQuery::version_of(self.range.from.clone()) };
        loop {
            match self.channel.repeat::<RangeFound>("KV/Range", &any).await {
                Ok(listed) => {
                    let at = revision(listed.header.as_ref());
                    return if at + 1 < self.next { Err(self.compacted(at + 1)) } else { Ok(()) };
                }
                Err(failure) if failure.passes() => {}
                Err(failure) => return Err(self.channel.error(&failure)),
            }
        }
    }

    async fn leave(&mut self, failure: CallFailure) -> Result<()> {
        let Some(stream) = self.stream.take() else { return Ok(()) };
        let seen = self.channel.seen::<()>(&stream.via, Err(failure)).await;
        match seen {
            Err(failure) if !failure.passes() => Err(self.channel.error(&failure)),
            _ => Ok(()),
        }
    }

    async fn cancelled(&mut self, answer: &WatchResponse) -> Result<()> {
        if answer.compact_revision > 0 {
            return Err(self.compacted(answer.compact_revision));
        }
        if answer.cancel_reason.contains("permission denied") {
            let place = self.channel.settings().place();
            return Err(Error::Refused { place, what: answer.cancel_reason.clone() });
        }
        self.leave(CallFailure::Lost(answer.cancel_reason.clone())).await
    }

    fn compacted(&self, oldest: i64) -> Error {
        Error::Compacted {
            asked: Revision(unsigned(self.next)),
            oldest: Revision(unsigned(oldest)),
        }
    }

    /// Hands on the revisions that are complete.
    fn take(&mut self, answer: WatchResponse) {
        let at = revision(answer.header.as_ref());
        let is_progress = answer.events.is_empty() && !answer.fragment;
        self.held.extend(answer.events);
        let last = self.held.last().map_or(0, WatchEvent::revision);
        let open = if answer.fragment { last } else { i64::MAX };
        let complete = self.held.partition_point(|event| event.revision() < open);
        for event in self.held.drain(..complete) {
            self.next = self.next.max(event.revision() + 1);
            self.ready.extend(event.stored(self.strip));
        }
        if is_progress && !answer.created {
            self.next = self.next.max(at + 1);
        }
    }
}

impl WatchEvent {
    fn revision(&self) -> i64 {
        self.kv.as_ref().map_or(0, |kv| kv.mod_revision)
    }

    fn stored(self, strip: usize) -> Option<StoreEvent> {
        let kv = self.kv?;
        let revision = Revision(unsigned(kv.mod_revision));
        let key = text_of(&kv.key, strip);
        let change = if self.kind == DELETE {
            KeyChange::Delete
        } else {
            KeyChange::Put(Bytes::copy_from_slice(&kv.value))
        };
        Some(StoreEvent { revision, key, change })
    }
}
