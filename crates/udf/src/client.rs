//! The calling side of a UDF's connection: sends batches, receives one column.
//!
//! Invariant: an answer is used only if it has the declared type and as many rows as were sent, or
//! for a table function the first ones of them, at least one. A lost or broken instance is an
//! error, never a column of nulls.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use arrow_array::{Array, ArrayRef, RecordBatch, new_empty_array};
use arrow_schema::{FieldRef, SchemaRef};
use snowmelt_wire::{BatchDecoder, BatchEncoder, Frame, Kind};

use crate::CallError;
use crate::connection::Connection;

/// The maximum number of rows in one call: larger batches are split.
pub const MAX_CALL_ROWS: usize = 8192;

/// The approximate maximum of bytes of arguments in one call: batches with long rows are split
/// further.
pub const MAX_CALL_BYTES: usize = 16 << 20;

/// A connection to an instance that has loaded one UDF. Calls are made one at a time.
pub struct Client {
    connection: Connection,
    result: FieldRef,
    // `None` until the first answer, which is preceded by its schema.
    answers: Option<BatchDecoder>,
    encoder: BatchEncoder,
    // Of a table function, whose answers may be for the first rows: the most rows that a call
    // sends.
    part_rows: Option<usize>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("function", &self.connection.function())
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Sends the schemas on a connection whose `Load` was answered by `Ready`. A `timeout` of zero
    /// means no limit.
    pub fn open(
        function: &str,
        socket: UnixStream,
        arguments: SchemaRef,
        result: FieldRef,
        timeout: Duration,
    ) -> Result<Self, CallError> {
        let mut encoder = BatchEncoder::default();
        let connection =
            Connection::open(function, socket, &mut encoder, &arguments, &result, timeout)?;
        Ok(Self { connection, result, answers: None, encoder, part_rows: None })
    }

    /// Makes this the client of a table function.
    pub fn in_parts(self) -> Self {
        Self { part_rows: Some(MAX_CALL_ROWS), ..self }
    }

    /// Calls the function once. Returns the results of the first rows of the batch, which must have
    /// some: of all rows that the call answers. `first` is the row of the caller's batch at which
    /// this batch begins, for errors.
    pub fn call_part(&mut self, batch: &RecordBatch, first: usize) -> Result<ArrayRef, CallError> {
        let most = self.part_rows.unwrap_or(MAX_CALL_ROWS);
        let rows = rows_per_call(batch).min(most).min(batch.num_rows());
        let answer = self.call_piece(&batch.slice(0, rows), first)?;
        if let Some(most) = &mut self.part_rows {
            // Rows that are sent again cost time on both sides.
            *most = (answer.len() * 2).clamp(1, MAX_CALL_ROWS);
        }
        Ok(answer)
    }

    /// The result of every row, in order. Large batches are sent in several calls.
    pub fn call(&mut self, batch: &RecordBatch) -> Result<ArrayRef, CallError> {
        if batch.num_rows() == 0 {
            return Ok(new_empty_array(self.result.data_type()));
        }
        let mut pieces = Vec::new();
        let mut first = 0;
        while first < batch.num_rows() {
            let rest = batch.slice(first, batch.num_rows() - first);
            let piece = self.call_part(&rest, first)?;
            first += piece.len();
            pieces.push(piece);
        }
        self.connection.joined(&pieces)
    }

    fn call_piece(&mut self, batch: &RecordBatch, first: usize) -> Result<ArrayRef, CallError> {
        self.connection.check_usable()?;
        self.connection.send(self.encoder.batch(batch))?;
        let answer = self.receive(first)?;
        self.check(&answer, batch.num_rows())?;
        Ok(answer)
    }

    fn receive(&mut self, first: usize) -> Result<ArrayRef, CallError> {
        loop {
            let frame = self.connection.receive()?;
            match frame.kind {
                Kind::Schema => self.begin_answers(&frame)?,
                Kind::Batch => return self.decode(&frame),
                Kind::Failure => return Err(self.connection.failure(&frame, first)),
                found => return Err(self.unexpected(found, "Schema, Batch or Failure")),
            }
        }
    }

    fn unexpected(&mut self, found: Kind, expected: &'static str) -> CallError {
        self.connection.wire(snowmelt_wire::Error::Unexpected { found, expected })
    }

    fn begin_answers(&mut self, frame: &Frame) -> Result<(), CallError> {
        let mut decoder = BatchDecoder::default();
        decoder.push(frame).map_err(|error| self.connection.wire(error))?;
        self.answers = Some(decoder);
        Ok(())
    }

    fn decode(&mut self, frame: &Frame) -> Result<ArrayRef, CallError> {
        let Some(answers) = &mut self.answers else {
            return Err(self.unexpected(Kind::Batch, "Schema"));
        };
        let batches = answers.push(frame).map_err(|error| self.connection.wire(error))?;
        self.connection.column(&batches)
    }

    fn check(&self, answer: &ArrayRef, expected: usize) -> Result<(), CallError> {
        let function = self.connection.function().to_owned();
        let is_complete = match self.part_rows {
            Some(_) => (1..=expected).contains(&answer.len()),
            None => answer.len() == expected,
        };
        if !is_complete {
            return Err(CallError::Length { function, found: answer.len(), expected });
        }
        if answer.data_type() != self.result.data_type() {
            let found = answer.data_type().to_string();
            let expected = self.result.data_type().to_string();
            return Err(CallError::Type { function, found, expected });
        }
        Ok(())
    }
}

/// The number of rows of one call, at least one, such that rows and bytes are within their limits.
pub(crate) fn rows_per_call(batch: &RecordBatch) -> usize {
    let bytes: usize = batch
        .columns()
        .iter()
        .map(|column| {
            let size = column.to_data().get_slice_memory_size();
            size.unwrap_or_else(|_| column.get_array_memory_size())
        })
        .sum();
    let pieces = bytes.div_ceil(MAX_CALL_BYTES).max(1);
    batch.num_rows().div_ceil(pieces).clamp(1, MAX_CALL_ROWS)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use arrow_array::{Int64Array, RecordBatchOptions, StringArray};
    use arrow_schema::{DataType, Field, Schema};
    use snowmelt_wire::FrameStream;

    use super::*;

    fn text_schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("a", DataType::Utf8, true)]))
    }

    fn texts(rows: usize, bytes: usize) -> RecordBatch {
        let text = "x".repeat(bytes);
        let column = StringArray::from(vec![text.as_str(); rows]);
        RecordBatch::try_new(text_schema(), vec![Arc::new(column)]).unwrap()
    }

    /// A client whose instance answers each batch by `reply`; the receiver gets each call's rows.
    fn client(
        arguments: SchemaRef,
        reply: fn(usize) -> Option<RecordBatch>,
    ) -> (Client, std::sync::mpsc::Receiver<usize>) {
        let (near, far) = UnixStream::pair().unwrap();
        let (seen, calls) = channel();
        std::thread::spawn(move || {
            let mut stream = FrameStream::new(far);
            let mut decoder = BatchDecoder::default();
            decoder.push(&stream.receive().unwrap()).unwrap();
            stream.receive().unwrap();
            while let Ok(frame) = stream.receive() {
                let rows = decoder.push(&frame).unwrap()[0].num_rows();
                seen.send(rows).unwrap();
                let Some(answer) = reply(rows) else { return };
                let mut encoder = BatchEncoder::default();
                stream.send(&encoder.schema(&answer.schema()).unwrap()).unwrap();
                stream.send(&encoder.batch(&answer).unwrap()).unwrap();
            }
        });
        let result = Arc::new(Field::new("return", DataType::Int64, true));
        let timeout = Duration::from_secs(60);
        (Client::open("f", near, arguments, result, timeout).unwrap(), calls)
    }

    fn counted(rows: usize) -> Option<RecordBatch> {
        let column = Arc::new(Int64Array::from_iter_values(0..rows as i64)) as ArrayRef;
        RecordBatch::try_from_iter([("return", column)]).ok()
    }

    #[test]
    fn batches_are_split_by_rows_and_by_bytes() {
        let (mut client, calls) = client(text_schema(), counted);
        assert_eq!(client.call(&texts(20_000, 1)).unwrap().len(), 20_000);
        let rows: Vec<usize> = calls.try_iter().collect();
        assert_eq!((rows.iter().sum::<usize>(), rows.len()), (20_000, 3));
        assert_eq!(client.call(&texts(100, 1 << 20)).unwrap().len(), 100);
        let rows: Vec<usize> = calls.try_iter().collect();
        assert_eq!(rows.iter().sum::<usize>(), 100);
        assert!(rows.iter().all(|rows| *rows <= 17), "{rows:?}");
    }

    #[test]
    fn rows_without_arguments_are_counted_and_an_empty_batch_is_not_sent() {
        let (mut client, calls) = client(Arc::new(Schema::empty()), counted);
        let options = |rows| RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = |rows| {
            let schema = Arc::new(Schema::empty());
            RecordBatch::try_new_with_options(schema, vec![], &options(rows)).unwrap()
        };
        assert_eq!(client.call(&batch(5)).unwrap().len(), 5);
        assert_eq!(client.call(&batch(0)).unwrap().len(), 0);
        assert_eq!(calls.try_iter().collect::<Vec<_>>(), [5]);
    }

    #[test]
    fn a_client_of_a_lost_instance_stays_unusable() {
        let (mut client, _calls) = client(text_schema(), |_| None);
        for _ in 0..2 {
            assert!(matches!(client.call(&texts(1, 1)), Err(CallError::Lost { .. })));
        }
    }

    #[test]
    fn rows_that_an_answer_leaves_out_are_sent_again() {
        let (client, calls) = client(text_schema(), |rows| counted(rows.min(300)));
        let mut client = client.in_parts();
        assert_eq!(client.call(&texts(1_000, 1)).unwrap().len(), 1_000);
        assert_eq!(calls.try_iter().collect::<Vec<_>>(), [1_000, 600, 400, 100]);
        let (client, _calls) = self::client(text_schema(), |_| counted(0));
        let error = client.in_parts().call(&texts(3, 1)).unwrap_err();
        assert_eq!(error.to_string(), "`f` returned 0 values for 3 rows");
    }

    #[test]
    fn a_wrong_length_is_an_error() {
        let (mut client, _calls) = client(text_schema(), |rows| counted(rows + 1));
        let error = client.call(&texts(3, 1)).unwrap_err();
        assert_eq!(error.to_string(), "`f` returned 4 values for 3 rows");
    }
}
