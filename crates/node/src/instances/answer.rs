//! The answers of functions, as text that is not parsed here, and the memory that they take.
//!
//! Why as text: as a tree of values an answer takes up to a hundred times its length, in the one
//! process that serves all tenants. Invariant: no more is read from an instance than one answer may
//! have, and only once there is memory for it in addition to all other answers in progress.

use snowmelt_api::{Answer, AnswerGuard};
use snowmelt_types::{ByteSize, Tenant};
use snowmelt_wire::{Frame, Kind, read_header, read_payload};

use super::answer_memory::{AnswerBudget, AnswerSpace};
use crate::process::limits::MAX_ANSWER;
use crate::process::readable_stream::ReadableStream;
use crate::{Error, Result};

/// The longest message of an instance that is not an answer, such as a failure or signatures.
const MAX_OTHER: ByteSize = ByteSize::mib(4);

/// The reader of answers, which reads an answer only once there is memory for it.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    rooms: AnswerBudget,
}

impl Answers {
    /// Waits for memory for an answer of `length` bytes that comes from another host.
    pub async fn room(&self, tenant: &Tenant, length: u64) -> Result<AnswerSpace> {
        self.rooms.make(tenant, length).await
    }

    /// Reads the answer of a tenant's function, or the reason why the function failed.
    pub async fn read(
        &self,
        from: &mut ReadableStream,
        tenant: &Tenant,
        name: &str,
    ) -> Result<(Frame, Option<AnswerSpace>)> {
        let (kind, length) = read_header(from).await?.ok_or(snowmelt_wire::Error::Closed)?;
        if kind != Kind::Return {
            return Ok((other(from, kind, length).await?, None));
        }
        if length as u64 > MAX_ANSWER.bytes() {
            let bytes = ByteSize(length as u64);
            return Err(Error::AnswerTooLong { name: name.to_owned(), bytes });
        }
        let room = self.rooms.make(tenant, length as u64).await?;
        Ok((read_payload(from, kind, length).await?, Some(room)))
    }
}

/// Reads a message that is not the answer of a function.
pub(crate) async fn read_other(from: &mut ReadableStream) -> Result<Frame> {
    let (kind, length) = read_header(from).await?.ok_or(snowmelt_wire::Error::Closed)?;
    other(from, kind, length).await
}

async fn other(from: &mut ReadableStream, kind: Kind, length: usize) -> Result<Frame> {
    if length as u64 > MAX_OTHER.bytes() {
        return Err(snowmelt_wire::Error::TooLong(length as u64).into());
    }
    Ok(read_payload(from, kind, length).await?)
}

/// Parses the answer that a frame holds, which keeps `room` until it is dropped.
pub(crate) fn parsed(frame: &Frame, room: Option<AnswerSpace>) -> Result<Answer> {
    Ok(Answer::holding(frame.parse()?, room.map(AnswerGuard::new)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn header(kind: Kind, length: u32) -> [u8; 8] {
        let mut header = [0; 8];
        header[..4].copy_from_slice(&length.to_le_bytes());
        header[4] = kind as u8;
        header
    }

    fn tenant() -> Tenant {
        "t".parse().unwrap()
    }

    async fn said(answers: &Answers, bytes: &[u8]) -> Result<(Frame, Option<AnswerSpace>)> {
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(bytes).unwrap();
        drop(far);
        answers.read(&mut ReadableStream::new(near).unwrap(), &tenant(), "f").await
    }

    #[tokio::test]
    async fn an_answer_is_kept_as_it_was_written() {
        let text = br#"{"a": [1, 2.50, 123456789012345678901234567890], "a": null}"#;
        let whole = [&header(Kind::Return, text.len() as u32)[..], text].concat();
        let (frame, room) = said(&Answers::default(), &whole).await.unwrap();
        let answer = parsed(&frame, room).unwrap();
        assert_eq!(answer.json().as_bytes(), text);
        assert_eq!(serde_json::to_vec(&answer).unwrap(), text);
    }

    #[tokio::test]
    async fn invalid_json_is_not_accepted_as_an_answer() {
        for text in [&b"{\"a\": }"[..], b"\"\xff\"", b"1 2", b""] {
            let whole = [&header(Kind::Return, text.len() as u32)[..], text].concat();
            let (frame, room) = said(&Answers::default(), &whole).await.unwrap();
            assert!(parsed(&frame, room).is_err(), "{text:?}");
        }
    }

    /// Checks that parsing a deeply nested answer does not use up the stack.
    #[tokio::test]
    async fn a_deep_answer_is_checked_without_recursion() {
        let text = [vec![b'['; 1 << 20], vec![b']'; 1 << 20]].concat();
        let whole = [&header(Kind::Return, text.len() as u32)[..], &text].concat();
        let (near, mut far) = UnixStream::pair().unwrap();
        let sending = std::thread::spawn(move || far.write_all(&whole));
        let answers = Answers::default();
        let mut near = ReadableStream::new(near).unwrap();
        let (frame, room) = answers.read(&mut near, &tenant(), "f").await.unwrap();
        sending.join().unwrap().unwrap();
        drop(parsed(&frame, room));
    }

    #[tokio::test]
    async fn lengths_are_refused_before_anything_is_read() {
        let answers = Answers::default();
        let long = header(Kind::Return, (MAX_ANSWER.bytes() + 1) as u32);
        assert!(matches!(said(&answers, &long).await, Err(Error::AnswerTooLong { .. })));
        let long = header(Kind::Failure, (MAX_OTHER.bytes() + 1) as u32);
        assert!(matches!(said(&answers, &long).await, Err(Error::Wire(_))));
    }
}
