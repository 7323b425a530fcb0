//! A netlink socket that sends batches.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send,
    socket_with,
};

use super::constants::{NLM_F_ACK, NLM_F_DUMP, NLMSG_ERROR};
use super::message::{Batch, Parsed, messages, u32_at};

/// The kernel receives a batch as one datagram, which must fit its buffer.
const MAX_BYTES: usize = 64 << 10;
/// The kernel answers within the call that sends; a missing answer is a bug of ours.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A message of a batch was refused; later ones may have been executed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step}: {source}")]
pub struct BatchFailure {
    /// The step, as a verb phrase.
    pub step: &'static str,
    /// The kernel's error.
    pub source: io::Error,
}

/// A socket of the namespace in which it was opened.
#[derive(Debug)]
pub struct Socket {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
    messages: u64,
    calls: u64,
    /// Whether the last message of a batch only marks its end.
    ends_batches: bool,
}

impl Socket {
    /// Opens a socket in the calling thread's network namespace.
    pub fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let socket =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT))?;
        let ends_batches = protocol == Some(NETFILTER);
        let buffer = vec![0; 32 << 10];
        Ok(Self { socket, sequence: 0, buffer, messages: 0, calls: 0, ends_batches })
    }

    /// The number of messages sent so far.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// The number of system calls that sent messages.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Sends a batch and waits until the kernel has executed it.
    ///
    /// # Errors
    /// The first message that was refused.
    pub fn run(&mut self, mut batch: Batch) -> Result<(), BatchFailure> {
        let mut first = 0;
        while first < batch.messages.len() {
            let last = end_of_datagram(&batch, first);
            self.run_part(&mut batch, first, last)?;
            first = last;
        }
        Ok(())
    }

    /// Sends one request and collects the answers.
    pub fn ask(&mut self, mut batch: Batch) -> Result<Vec<Parsed>, BatchFailure> {
        let step = batch.messages.first().map_or("ask the kernel", |(_, step)| step);
        let failed = |source| BatchFailure { step, source };
        let dumps = batch.bytes.get(6..8).is_some_and(|flags| {
            u16::from_ne_bytes([flags[0], flags[1]]) & NLM_F_DUMP == NLM_F_DUMP
        });
        let begin = self.number(&mut batch, 0, 1);
        self.send(&batch.bytes).map_err(failed)?;
        let mut answers = Vec::new();
        loop {
            for message in self.receive().map_err(failed)? {
                match error_of(&message) {
                    // An unread answer to an earlier request.
                    _ if message.sequence != begin => {}
                    Some(0) => return Ok(answers),
                    Some(code) => return Err(failed(io::Error::from_raw_os_error(code))),
                    None if message.is_done() => return Ok(answers),
                    None => answers.push(message),
                }
            }
            // A request for one object has one answer, and nothing that marks its end.
            if !dumps && !answers.is_empty() {
                return Ok(answers);
            }
        }
    }

    /// Sends a part of a batch. An acknowledgement is requested of the last message only, because
    /// errors are reported without a request. The end of a batch of rules is excluded: kernels
    /// before 6.10 do not acknowledge it.
    fn run_part(
        &mut self,
        batch: &mut Batch,
        first: usize,
        last: usize,
    ) -> Result<(), BatchFailure> {
        let begin = self.number(batch, first, last);
        let steps = &batch.messages[first..last];
        // Requests are executed in order: with the answer to the last one all have been.
        let answered = if self.ends_batches { steps.len() - 2 } else { steps.len() - 1 };
        let (offset, step) = steps[answered];
        batch.bytes[offset + 6] |= NLM_F_ACK as u8;
        let from = steps[0].0;
        let to = batch.messages.get(last).map_or(batch.bytes.len(), |(offset, _)| *offset);
        self.send(&batch.bytes[from..to]).map_err(|source| BatchFailure { step, source })?;
        loop {
            let received = self.receive().map_err(|source| BatchFailure { step, source })?;
            for message in received {
                // Unread answers to an earlier batch have smaller numbers.
                let number = message.sequence.wrapping_sub(begin) as usize;
                let Some((_, step)) = steps.get(number) else { continue };
                match error_of(&message) {
                    Some(0) if number == answered => return Ok(()),
                    Some(0) | None => {}
                    Some(code) => {
                        let source = io::Error::from_raw_os_error(code);
                        return Err(BatchFailure { step, source });
                    }
                }
            }
        }
    }

    /// Numbers the messages; returns the first number.
    fn number(&mut self, batch: &mut Batch, first: usize, last: usize) -> u32 {
        let begin = self.sequence.wrapping_add(1);
        for (offset, _) in &batch.messages[first..last] {
            self.sequence = self.sequence.wrapping_add(1);
            batch.bytes[offset + 8..offset + 12].copy_from_slice(&self.sequence.to_ne_bytes());
        }
        self.messages += (last - first) as u64;
        begin
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.calls += 1;
        let sent = send(&self.socket, bytes, SendFlags::empty())?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    fn receive(&mut self) -> io::Result<Vec<Parsed>> {
        let (length, _) = recv(&self.socket, &mut *self.buffer, RecvFlags::empty())?;
        Ok(messages(&self.buffer[..length]))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The index after the last message that fits into a datagram with `first`.
fn end_of_datagram(batch: &Batch, first: usize) -> usize {
    let begin = batch.messages[first].0;
    let behind = batch.messages[first + 1..].iter().enumerate();
    let ends = |(number, (offset, _)): (usize, &(usize, _))| (first + 1 + number, *offset - begin);
    let all = (batch.messages.len(), batch.bytes.len() - begin);
    let fitting = behind.map(ends).chain([all]).take_while(|(_, bytes)| *bytes <= MAX_BYTES);
    fitting.last().map_or(first + 1, |(number, _)| number)
}

/// The error number in an acknowledgement, 0 for success; none for other messages.
fn error_of(message: &Parsed) -> Option<i32> {
    (message.kind == NLMSG_ERROR && message.body.len() >= 4)
        .then(|| (u32_at(&message.body, 0) as i32).wrapping_neg())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{AF_UNSPEC, RTM_DELLINK, RTM_GETLINK};

    #[test]
    fn the_error_names_the_refused_step_of_a_batch() {
        let mut socket = Socket::open(None).unwrap();
        let mut batch = Batch::new();
        let mut missing = [0; 16];
        missing[4..8].copy_from_slice(&i32::MAX.to_ne_bytes());
        let mut loopback = [0; 16];
        loopback[4..8].copy_from_slice(&1i32.to_ne_bytes());
        batch.add("query lo", RTM_GETLINK, 0, &loopback, |_| {});
        batch.add("remove a missing device", RTM_DELLINK, 0, &missing, |_| {});
        let failed = socket.run(batch).unwrap_err();
        assert_eq!(failed.step, "remove a missing device");
        assert_eq!((socket.messages(), socket.calls()), (2, 1));
    }

    #[test]
    fn a_dump_returns_its_entries() {
        let mut socket = Socket::open(None).unwrap();
        let mut batch = Batch::new();
        batch.add("list links", RTM_GETLINK, NLM_F_DUMP, &[AF_UNSPEC; 16], |_| {});
        assert!(!socket.ask(batch).unwrap().is_empty());
    }

    #[test]
    fn a_batch_is_split_into_datagrams_that_fit() {
        let mut batch = Batch::new();
        for _ in 0..5 {
            batch.add("fill", 16, 0, &vec![0; 30_000], |_| {});
        }
        assert_eq!(end_of_datagram(&batch, 0), 2);
        assert_eq!(end_of_datagram(&batch, 4), 5);
    }
}
