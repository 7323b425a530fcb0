//! The TLS of a connection between hosts, apart from its socket.
//!
//! Bytes are decrypted where they arrived, and encrypted into the buffer that is sent: between hosts
//! run gigabytes, and each copy of them costs as much as a tenth of the cipher.

use std::io::IoSlice;

use rustls::CommonState;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic,
};

use super::tls_buffers::{Arrived, Outgoing};

/// The most bytes of a write that are encrypted at once.
pub(super) const MAX_WRITE: usize = 128 << 10;

/// The most bytes in a record of TLS.
pub(super) const MAX_RECORD: usize = 16 << 10;

/// The bytes that TLS adds to a record: its header, the kind of its content, and its tag.
const RECORD_COST: usize = 5 + 1 + 16;

/// An end of TLS on a connection.
pub(super) enum TlsSession {
    /// The end that has opened it.
    Client(UnbufferedClientConnection),
    /// The end that has accepted it.
    Server(UnbufferedServerConnection),
}

/// The work of a session once it is able to send.
#[derive(Clone, Copy)]
pub(super) enum Wish<'w> {
    Nothing,
    /// Encrypts the beginning of these bytes.
    Write(&'w [IoSlice<'w>]),
    /// Announces that nothing follows.
    Close,
}

/// The outcome of a step of a session.
#[derive(Debug)]
pub(super) enum Step {
    /// Something was done: the next step can be taken at once.
    Taken,
    /// The wish was granted, with this many bytes.
    Granted(usize),
    /// Nothing was done: bytes of the other side are needed first.
    Waits,
    /// Nothing follows from the other side, as it has said.
    PeerEnded,
    /// Neither side sends anything more.
    Ended,
}

impl TlsSession {
    /// Returns the state of the connection.
    pub(super) fn state(&self) -> &CommonState {
        match self {
            Self::Client(session) => session,
            Self::Server(session) => session,
        }
    }

    /// Takes one step with the bytes that have arrived. Decrypted bytes are given to `decrypted`, what
    /// is to be sent comes into `outgoing`.
    pub(super) fn step(
        &mut self,
        arrived: &mut Arrived,
        outgoing: &mut Outgoing,
        wish: Wish<'_>,
        decrypted: impl FnMut(&[u8]),
    ) -> Result<Step, rustls::Error> {
        let bytes = arrived.waiting();
        let (used, step) = match self {
            Self::Client(session) => {
                taken(session.process_tls_records(bytes), outgoing, wish, decrypted)
            }
            Self::Server(session) => {
                taken(session.process_tls_records(bytes), outgoing, wish, decrypted)
            }
        };
        arrived.consume(used);
        step
    }
}

/// Does what the session asks for. Returns the number of arrived bytes that are done with.
fn taken<Side>(
    status: UnbufferedStatus<'_, '_, Side>,
    outgoing: &mut Outgoing,
    wish: Wish<'_>,
    mut decrypted: impl FnMut(&[u8]),
) -> (usize, Result<Step, rustls::Error>) {
    let mut used = status.discard;
    let step = match status.state {
        Err(error) => Err(error),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                Some(Ok(record)) => {
                    used += record.discard;
                    decrypted(record.payload);
                }
                Some(Err(error)) => break Err(error),
                None => break Ok(Step::Taken),
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut data)) => outgoing
            .put(0, |room| match data.encode(room) {
                Err(EncodeError::InsufficientSize(size)) => Ok(Err(size.required_size)),
                Err(EncodeError::AlreadyEncoded) => Ok(Ok(0)),
                Ok(put) => Ok(Ok(put)),
            })
            .map(|_| Step::Taken),
        // It is in `outgoing`, from where everything is sent in its order.
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            Ok(Step::Taken)
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Step::Waits),
        Ok(ConnectionState::WriteTraffic(traffic)) => grant(traffic, outgoing, wish),
        Ok(ConnectionState::PeerClosed) => Ok(Step::PeerEnded),
        Ok(ConnectionState::Closed) => Ok(Step::Ended),
        Ok(_) => Err(rustls::Error::General("TLS is in an unknown state".to_owned())),
    };
    (used, step)
}

fn grant<Side>(
    mut traffic: WriteTraffic<'_, Side>,
    outgoing: &mut Outgoing,
    wish: Wish<'_>,
) -> Result<Step, rustls::Error> {
    match wish {
        Wish::Nothing => Ok(Step::Waits),
        Wish::Write(slices) => write(&mut traffic, outgoing, slices).map(Step::Granted),
        Wish::Close => {
            let closed = |room: &mut [u8]| fitting(traffic.queue_close_notify(room));
            outgoing.put(RECORD_COST + 2, closed).map(Step::Granted)
        }
    }
}

/// Encrypts the beginning of these bytes. Short pieces, such as the head of an answer, come into a
/// record together.
fn write<Side>(
    traffic: &mut WriteTraffic<'_, Side>,
    outgoing: &mut Outgoing,
    slices: &[IoSlice<'_>],
) -> Result<usize, rustls::Error> {
    let mut encrypt = |bytes: &[u8]| {
        let size = bytes.len() + (bytes.len() / MAX_RECORD + 1) * RECORD_COST;
        outgoing.put(size, |room| fitting(traffic.encrypt(bytes, room)))
    };
    if let [only] = slices {
        let length = only.len().min(MAX_WRITE);
        return encrypt(&only[..length]).map(|_| length);
    }
    let mut written = 0;
    let mut short = Vec::new();
    for slice in slices {
        let piece = &slice[..slice.len().min(MAX_WRITE - written)];
        written += piece.len();
        if short.len() + piece.len() <= MAX_RECORD {
            short.extend_from_slice(piece);
            continue;
        }
        encrypt(&short)?;
        short.clear();
        encrypt(piece)?;
    }
    encrypt(&short)?;
    Ok(written)
}

/// Returns the bytes that were put into a buffer, or how many it should have room for.
fn fitting(result: Result<usize, EncryptError>) -> Result<Result<usize, usize>, rustls::Error> {
    match result {
        Ok(put) => Ok(Ok(put)),
        Err(EncryptError::InsufficientSize(size)) => Ok(Err(size.required_size)),
        Err(EncryptError::EncryptExhausted) => Err(rustls::Error::EncryptError),
    }
}
