//! The connection to one instance, which the clients of scalar and aggregate functions have in
//! common.
//!
//! Invariant: after an error of the connection no frame is sent any more, since bytes of an answer
//! may be unread.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, FieldRef, Schema};
use snowmelt_wire::{BatchEncoder, Error, Frame, FrameStream, FunctionFailure, Result};

use crate::CallError;

/// A connection to an instance that has loaded one function.
pub(crate) struct Connection {
    function: String,
    stream: FrameStream,
    timeout: Duration,
    // After an error with unread bytes, the connection cannot be used.
    broken: bool,
}

impl Connection {
    /// A connection whose `Load` was answered by `Ready`. Sends the schema of the rows, by the
    /// encoder of their batches, and that of the result. A `timeout` of zero means no limit.
    pub(crate) fn open(
        function: &str,
        socket: UnixStream,
        encoder: &mut BatchEncoder,
        rows: &Schema,
        result: &FieldRef,
        timeout: Duration,
    ) -> Result<Self, CallError> {
        let limit = (!timeout.is_zero()).then_some(timeout);
        let limited = socket.set_read_timeout(limit).and_then(|()| socket.set_write_timeout(limit));
        let function = function.to_owned();
        let stream = FrameStream::new(socket);
        let mut made = Self { function, stream, timeout, broken: false };
        limited.map_err(|source| made.wire(source.into()))?;
        made.send(encoder.schema(rows))?;
        made.send(BatchEncoder::default().schema(&Schema::new(vec![Arc::clone(result)])))?;
        Ok(made)
    }

    /// The name of the function, for errors.
    pub(crate) fn function(&self) -> &str {
        &self.function
    }

    /// Checks, before a call, that the connection can be used.
    pub(crate) fn check_usable(&self) -> Result<(), CallError> {
        match self.broken {
            true => Err(CallError::Lost { function: self.function.clone() }),
            false => Ok(()),
        }
    }

    /// Gives the connection up: its answers cannot be trusted.
    pub(crate) fn give_up(&mut self) {
        self.broken = true;
    }

    pub(crate) fn send(&mut self, frame: Result<Frame>) -> Result<(), CallError> {
        let sent = frame.and_then(|frame| self.stream.send(&frame));
        sent.map_err(|error| self.wire(error))
    }

    pub(crate) fn receive(&mut self) -> Result<Frame, CallError> {
        self.stream.receive().map_err(|error| self.wire(error))
    }

    /// Reads the failure in a frame. `first` is the row of the caller's batch at which the sent
    /// rows begin.
    pub(crate) fn failure(&mut self, frame: &Frame, first: usize) -> CallError {
        match frame.parse::<FunctionFailure>() {
            Ok(mut failure) => {
                failure.row = failure.row.map(|row| row.saturating_add(first as u64));
                CallError::Failed(Box::new(failure))
            }
            Err(error) => self.wire(error),
        }
    }

    /// The only column of an answer.
    pub(crate) fn column(&mut self, answer: &[RecordBatch]) -> Result<ArrayRef, CallError> {
        match answer {
            [batch] if batch.num_columns() == 1 => Ok(Arc::clone(batch.column(0))),
            _ => {
                let message = "an answer must be one batch of one column".to_owned();
                Err(self.wire(ArrowError::IpcError(message).into()))
            }
        }
    }

    /// Joins the answers to several calls into one array.
    pub(crate) fn joined(&mut self, pieces: &[ArrayRef]) -> Result<ArrayRef, CallError> {
        match pieces {
            [only] => Ok(Arc::clone(only)),
            pieces => {
                let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
                arrow_select::concat::concat(&pieces).map_err(|error| self.wire(error.into()))
            }
        }
    }

    /// Converts a failure of the connection, which cannot be used after it.
    pub(crate) fn wire(&mut self, error: Error) -> CallError {
        self.broken = true;
        let function = self.function.clone();
        match error {
            Error::Closed => CallError::Lost { function },
            Error::Io(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    CallError::Timeout { function, limit: self.timeout }
                }
                _ => CallError::Lost { function },
            },
            source => CallError::Protocol { function, source },
        }
    }
}
