//! A call of gRPC over a connection of HTTP/2: messages with their lengths, and the status at its
//! end.
//!
//! Invariant: an error says whether etcd may have seen the request, because a write whose answer
//! is lost may have been done.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use http::HeaderMap;
use prost::Message;

/// The most bytes of a message that is received: a page of the largest values that etcd takes.
const MAX_MESSAGE: usize = 128 << 20;
/// The bytes before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// A call that did not succeed.
#[derive(Clone, Debug)]
pub(super) enum CallFailure {
    /// The request has not reached etcd.
    NotSent(String),
    /// The request may have reached etcd, whose answer did not come.
    Lost(String),
    /// The answer of etcd.
    Refused(GrpcStatus),
}

/// The status of a request that failed.
#[derive(Clone, Debug)]
pub(super) struct GrpcStatus {
    pub code: u32,
    pub message: String,
}

/// Codes of gRPC after which it is certain that a request was not done.
const DEFINITE: [u32; 9] = [3, 5, 6, 7, 8, 9, 11, 12, 16];
/// The code of gRPC for a token that is not valid.
pub(super) const UNAUTHENTICATED: u32 = 16;
/// The code of gRPC for what exceeds a limit.
const RESOURCE_EXHAUSTED: u32 = 8;
/// The reason of a call whose answer is not received.
pub(super) const TOO_LONG: &str = "an answer is too long";
/// The code of gRPC for what does not exist.
pub(super) const NOT_FOUND: u32 = 5;

impl GrpcStatus {
    /// Whether etcd has refused the request. Other failures are those of etcd itself.
    pub fn is_definite(&self) -> bool {
        DEFINITE.contains(&self.code)
    }
}

impl CallFailure {
    /// Whether another attempt may succeed.
    pub fn passes(&self) -> bool {
        match self {
            Self::NotSent(_) | Self::Lost(_) => true,
            Self::Refused(status) => !status.is_definite() || self.says("too many requests"),
        }
    }

    /// Whether etcd may have done the request.
    pub fn may_be_done(&self) -> bool {
        match self {
            Self::NotSent(_) => false,
            Self::Lost(_) => true,
            Self::Refused(status) => !status.is_definite(),
        }
    }

    /// The reason in words.
    pub fn reason(&self) -> &str {
        match self {
            Self::NotSent(reason) | Self::Lost(reason) => reason,
            Self::Refused(status) => &status.message,
        }
    }

    /// Whether etcd gave this reason.
    pub fn says(&self, what: &str) -> bool {
        matches!(self, Self::Refused(status) if status.message.contains(what))
    }
}

/// The calls of a connection that have not ended.
#[derive(Clone, Debug, Default)]
pub(super) struct ActiveCalls(Arc<AtomicUsize>);

impl ActiveCalls {
    pub fn begin(&self) -> ActiveCall {
        self.0.fetch_add(1, Ordering::Relaxed);
        ActiveCall(Arc::clone(&self.0))
    }

    pub fn are_none(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// Counts a call until it is dropped.
pub(super) struct ActiveCall(Arc<AtomicUsize>);

impl Drop for ActiveCall {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A call that has begun. It is cancelled when it is dropped.
pub(super) struct GrpcCall<A> {
    requests: SendStream<Bytes>,
    answer: Option<ResponseFuture>,
    body: Option<RecvStream>,
    received: BytesMut,
    _active: ActiveCall,
    _answers: PhantomData<fn() -> A>,
}

impl<A: Message + Default> GrpcCall<A> {
    pub fn new(requests: SendStream<Bytes>, answer: ResponseFuture, active: ActiveCall) -> Self {
        Self {
            requests,
            answer: Some(answer),
            body: None,
            received: BytesMut::new(),
            _active: active,
            _answers: PhantomData,
        }
    }

    /// Sends a message, which may be the last one.
    pub fn send(&mut self, message: &impl Message, last: bool) -> Result<(), CallFailure> {
        let length = message.encoded_len();
        let mut frame = BytesMut::with_capacity(PREFIX + length);
        frame.put_u8(0);
        frame.put_u32(u32::try_from(length).map_err(|_| lost("a request is too long"))?);
        message.encode(&mut frame).map_err(lost)?;
        self.requests.send_data(frame.freeze(), last).map_err(lost)
    }

    /// The next message of the answer; `None` after the last one, if the call has succeeded.
    pub async fn next(&mut self) -> Result<Option<A>, CallFailure> {
        loop {
            if let Some(message) = self.message()? {
                return A::decode(message).map(Some).map_err(lost);
            }
            if let Some(answer) = self.answer.take() {
                let answer = answer.await.map_err(lost)?;
                if !answer.status().is_success() {
                    return Err(lost(format!("it answers with HTTP status {}", answer.status())));
                }
                ended(answer.headers())?;
                self.body = Some(answer.into_body());
            }
            let Some(body) = &mut self.body else { return Ok(None) };
            if let Some(data) = body.data().await {
                let data = data.map_err(lost)?;
                body.flow_control().release_capacity(data.len()).map_err(lost)?;
                self.received.extend_from_slice(&data);
                continue;
            }
            let trailers = body.trailers().await.map_err(lost)?;
            ended(&trailers.unwrap_or_default())?;
            return Ok(None);
        }
    }

    /// The only message of an answer.
    pub async fn only(&mut self) -> Result<A, CallFailure> {
        let answer = self.next().await?.ok_or_else(|| lost("it answers with nothing"))?;
        match self.next().await? {
            None => Ok(answer),
            Some(_) => Err(lost("it answers more than once")),
        }
    }

    /// Takes a message out of the bytes that were received.
    fn message(&mut self) -> Result<Option<Bytes>, CallFailure> {
        let Some(prefix) = self.received.first_chunk::<PREFIX>() else { return Ok(None) };
        let [compressed, length @ ..] = *prefix;
        let length = u32::from_be_bytes(length) as usize;
        if compressed != 0 {
            return Err(lost("it sends a compressed message"));
        }
        if length > MAX_MESSAGE {
            let message = format!("{TOO_LONG}: {length} bytes");
            return Err(CallFailure::Refused(GrpcStatus { code: RESOURCE_EXHAUSTED, message }));
        }
        if self.received.len() < PREFIX + length {
            return Ok(None);
        }
        self.received.advance(PREFIX);
        Ok(Some(self.received.split_to(length).freeze()))
    }
}

/// Reads the status at the end of a call; headers without one are not the end.
fn ended(headers: &HeaderMap) -> Result<(), CallFailure> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(code) = text("grpc-status") else { return Ok(()) };
    let code = code.parse().unwrap_or(2);
    if code == 0 {
        return Ok(());
    }
    let message = decoded(text("grpc-message").unwrap_or("no reason is given"));
    Err(CallFailure::Refused(GrpcStatus { code, message }))
}

/// Decodes what gRPC encodes with percent signs.
fn decoded(message: &str) -> String {
    let mut bytes = Vec::with_capacity(message.len());
    let mut rest = message.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(super) fn lost(reason: impl ToString) -> CallFailure {
    CallFailure::Lost(reason.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_a_status_are_decoded() {
        assert_eq!(decoded("a%20b%"), "a b%");
        assert_eq!(decoded("etcdserver: %C3%A4 %zz"), "etcdserver: ä %zz");
    }

    #[test]
    fn only_a_refusal_is_certain_not_to_be_done() {
        let refused = |code| CallFailure::Refused(GrpcStatus { code, message: String::new() });
        assert!(!refused(NOT_FOUND).may_be_done());
        assert!(!CallFailure::NotSent(String::new()).may_be_done());
        for code in [1, 2, 4, 10, 13, 14, 15] {
            assert!(refused(code).may_be_done() && refused(code).passes(), "{code}");
        }
    }
}
