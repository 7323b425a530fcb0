//! The calling side of an aggregate function's connection: sends rows and states of groups, takes
//! states and results.
//!
//! Invariant: an array that is taken has the declared type and one value for each group. A lost or
//! broken instance is an error, and its states are lost with it: the task that called it fails.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{Array, ArrayRef, RecordBatch, new_empty_array};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use snowmelt_wire::{
    AggregateCall, AggregateDone, AggregateStep, BatchDecoder, BatchEncoder, Frame, Kind,
};

use crate::CallError;
use crate::client::{MAX_CALL_ROWS, rows_per_call};
use crate::connection::Connection;

/// The type of the states of groups.
pub const STATE_TYPE: DataType = DataType::LargeBinary;

/// A connection to an instance that has loaded one aggregate function. Calls are made one at a
/// time.
pub struct AggregateClient {
    connection: Connection,
    rows: BatchEncoder,
    states: BatchEncoder,
    result: DataType,
    forgotten: Vec<u64>,
}

impl std::fmt::Debug for AggregateClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let function = self.connection.function();
        f.debug_struct("AggregateClient").field("function", &function).finish_non_exhaustive()
    }
}

/// The groups of one accumulator of an instance.
#[derive(Clone, Copy, Debug)]
pub struct Groups {
    /// The number of the accumulator.
    pub accumulator: u64,
    /// The number of groups.
    pub count: u64,
}

impl AggregateClient {
    /// Sends the schemas on a connection whose `Load` was answered by `Ready`. A `timeout` of zero
    /// means no limit. `rows` has the arguments, then the group ([`group_field`]).
    pub fn open(
        function: &str,
        socket: UnixStream,
        rows: &SchemaRef,
        result: &FieldRef,
        timeout: Duration,
    ) -> Result<Self, CallError> {
        let mut encoder = BatchEncoder::default();
        let connection = Connection::open(function, socket, &mut encoder, rows, result, timeout)?;
        Ok(Self {
            connection,
            rows: encoder,
            states: BatchEncoder::default(),
            result: result.data_type().clone(),
            forgotten: Vec::new(),
        })
    }

    /// Adds rows to their groups. Returns an estimate of the memory of the accumulator's states.
    pub fn update(&mut self, groups: Groups, rows: &RecordBatch) -> Result<u64, CallError> {
        self.add(AggregateStep::Update, groups, rows)
    }

    /// Merges states into those of their groups; `states` has the columns of [`state_schema`].
    /// Returns an estimate of the memory of the accumulator's states.
    pub fn merge(&mut self, groups: Groups, states: &RecordBatch) -> Result<u64, CallError> {
        self.add(AggregateStep::Merge, groups, states)
    }

    /// Takes the states of the first groups.
    pub fn take_states(&mut self, groups: Groups, first: u64) -> Result<ArrayRef, CallError> {
        self.take(AggregateStep::State, groups, first)
    }

    /// Takes the results of the first groups.
    pub fn take_results(&mut self, groups: Groups, first: u64) -> Result<ArrayRef, CallError> {
        self.take(AggregateStep::Finish, groups, first)
    }

    /// Drops the states of accumulators, at the next call.
    pub fn forget(&mut self, accumulators: impl IntoIterator<Item = u64>) {
        self.forgotten.extend(accumulators);
    }

    fn add(
        &mut self,
        step: AggregateStep,
        groups: Groups,
        batch: &RecordBatch,
    ) -> Result<u64, CallError> {
        let step_rows = rows_per_call(batch);
        let mut bytes = 0;
        for first in (0..batch.num_rows()).step_by(step_rows) {
            let piece = batch.slice(first, step_rows.min(batch.num_rows() - first));
            self.send(step, groups, 0)?;
            let encoder = match step {
                AggregateStep::Merge => &mut self.states,
                _ => &mut self.rows,
            };
            self.connection.send(encoder.batch(&piece))?;
            let done = self.receive(Kind::Aggregate, "Aggregate or Failure", first)?;
            let done: AggregateDone = done.parse().map_err(|error| self.connection.wire(error))?;
            bytes = done.bytes;
        }
        Ok(bytes)
    }

    fn take(
        &mut self,
        step: AggregateStep,
        mut groups: Groups,
        first: u64,
    ) -> Result<ArrayRef, CallError> {
        let mut pieces = Vec::new();
        let mut left = first;
        while left > 0 {
            let most = left.min(MAX_CALL_ROWS as u64);
            self.send(step, groups, most)?;
            let piece = self.taken(step, most)?;
            left -= piece.len() as u64;
            groups.count = groups.count.saturating_sub(piece.len() as u64);
            pieces.push(piece);
        }
        match pieces.as_slice() {
            [] => Ok(new_empty_array(&self.type_of(step))),
            pieces => self.connection.joined(pieces),
        }
    }

    fn send(&mut self, step: AggregateStep, groups: Groups, take: u64) -> Result<(), CallError> {
        self.connection.check_usable()?;
        let Groups { accumulator, count } = groups;
        let forget = std::mem::take(&mut self.forgotten);
        let call = AggregateCall { step, accumulator, groups: count, take, forget };
        self.connection.send(Frame::json(Kind::Aggregate, &call))
    }

    /// Receives the answer to a call that takes at most `most` groups.
    fn taken(&mut self, step: AggregateStep, most: u64) -> Result<ArrayRef, CallError> {
        let mut decoder = BatchDecoder::default();
        let schema = self.receive(Kind::Schema, "Schema or Failure", 0)?;
        decoder.push(&schema).map_err(|error| self.connection.wire(error))?;
        let frame = self.receive(Kind::Batch, "Batch", 0)?;
        let batches = decoder.push(&frame).map_err(|error| self.connection.wire(error))?;
        let column = self.connection.column(&batches)?;
        let function = self.connection.function().to_owned();
        if column.is_empty() || column.len() as u64 > most {
            self.connection.give_up();
            let found = column.len();
            let expected = most as usize;
            return Err(CallError::Length { function, found, expected });
        }
        let expected = self.type_of(step);
        if *column.data_type() != expected {
            self.connection.give_up();
            let found = column.data_type().to_string();
            let expected = expected.to_string();
            return Err(CallError::Type { function, found, expected });
        }
        Ok(column)
    }

    fn type_of(&self, step: AggregateStep) -> DataType {
        match step {
            AggregateStep::State => STATE_TYPE,
            _ => self.result.clone(),
        }
    }

    /// Receives the next frame, which must be of a given kind. `first` is the row of the batch at
    /// which the sent rows begin.
    fn receive(
        &mut self,
        kind: Kind,
        expected: &'static str,
        first: usize,
    ) -> Result<Frame, CallError> {
        let frame = self.connection.receive()?;
        match frame.kind {
            Kind::Failure => Err(self.connection.failure(&frame, first)),
            _ => frame.expect(kind, expected).map_err(|error| self.connection.wire(error)),
        }
    }
}

/// The last column of rows and states: the group of each row.
pub fn group_field() -> Field {
    Field::new("", DataType::UInt64, false)
}

/// The columns of states that are merged.
pub fn state_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("state", STATE_TYPE, true), group_field()]))
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int64Array, LargeBinaryArray, UInt64Array};
    use snowmelt_wire::FrameStream;

    use super::*;

    fn rows(count: i64) -> RecordBatch {
        let schema = Schema::new(vec![Field::new("a", DataType::Int64, true), group_field()]);
        let values = Int64Array::from_iter_values(0..count);
        let groups = UInt64Array::from_iter_values((0..count).map(|row| row as u64 % 7));
        RecordBatch::try_new(schema.into(), vec![Arc::new(values), Arc::new(groups)]).unwrap()
    }

    /// Makes a client whose instance takes rows, and answers other calls by `reply`, given the
    /// call; the receiver gets each call with the rows that came with it.
    fn client(
        reply: fn(&AggregateCall) -> ArrayRef,
    ) -> (AggregateClient, std::sync::mpsc::Receiver<(AggregateCall, usize)>) {
        let (near, far) = UnixStream::pair().unwrap();
        let (seen, calls) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut stream = FrameStream::new(far);
            let mut decoder = BatchDecoder::default();
            decoder.push(&stream.receive().unwrap()).unwrap();
            stream.receive().unwrap();
            while let Ok(frame) = stream.receive() {
                let call: AggregateCall = frame.parse().unwrap();
                let mut rows = 0;
                if call.step == AggregateStep::Update {
                    rows = decoder.push(&stream.receive().unwrap()).unwrap()[0].num_rows();
                    let done = AggregateDone { bytes: 100 };
                    stream.send(&Frame::json(Kind::Aggregate, &done).unwrap()).unwrap();
                } else {
                    let answer = RecordBatch::try_from_iter([("return", reply(&call))]).unwrap();
                    let mut encoder = BatchEncoder::default();
                    stream.send(&encoder.schema(&answer.schema()).unwrap()).unwrap();
                    stream.send(&encoder.batch(&answer).unwrap()).unwrap();
                }
                seen.send((call, rows)).unwrap();
            }
        });
        let result = Arc::new(Field::new("return", DataType::Int64, true));
        let schema = rows(0).schema();
        let timeout = Duration::from_secs(60);
        (AggregateClient::open("f", near, &schema, &result, timeout).unwrap(), calls)
    }

    /// Replies with fewer groups than are asked for.
    fn some(call: &AggregateCall) -> ArrayRef {
        let count = call.take.min(3000);
        match call.step {
            AggregateStep::State => {
                Arc::new(LargeBinaryArray::from_iter_values((0..count).map(|_| b"x")))
            }
            _ => Arc::new(Int64Array::from_iter_values(0..count as i64)),
        }
    }

    #[test]
    fn rows_are_sent_in_pieces_and_groups_are_taken_until_all_are_there() {
        let (mut client, calls) = client(some);
        let groups = Groups { accumulator: 4, count: 9000 };
        assert_eq!(client.update(groups, &rows(20_000)).unwrap(), 100);
        client.forget([1, 2]);
        assert_eq!(client.take_states(groups, 9000).unwrap().len(), 9000);
        assert_eq!(client.take_results(groups, 10).unwrap().len(), 10);
        assert!(client.take_results(groups, 0).unwrap().is_empty());
        let calls: Vec<_> = calls.try_iter().collect();
        let sent: Vec<usize> =
            calls.iter().map(|(_, rows)| *rows).filter(|call| *call > 0).collect();
        assert_eq!((sent.len(), sent.iter().sum::<usize>()), (3, 20_000));
        let states: Vec<_> =
            calls.iter().filter(|(call, _)| call.step == AggregateStep::State).collect();
        let left: Vec<_> = states.iter().map(|(call, _)| (call.groups, call.take)).collect();
        assert_eq!(left, [(9000, 8192), (6000, 6000), (3000, 3000)]);
        assert_eq!(states[0].0.forget, [1, 2]);
        assert!(states[1].0.forget.is_empty());
    }

    #[test]
    fn answers_of_a_wrong_length_or_type_are_errors() {
        let groups = Groups { accumulator: 0, count: 5 };
        let (mut none, _calls) = client(|_| Arc::new(Int64Array::from(Vec::<i64>::new())));
        assert!(matches!(none.take_results(groups, 5), Err(CallError::Length { .. })));
        assert!(matches!(none.take_results(groups, 5), Err(CallError::Lost { .. })));
        let (mut many, _calls) = client(|_| Arc::new(Int64Array::from(vec![1; 9])));
        assert!(matches!(many.take_results(groups, 5), Err(CallError::Length { .. })));
        let (mut other, _calls) = client(|_| Arc::new(Int64Array::from(vec![1; 5])));
        let error = other.take_states(groups, 5).unwrap_err().to_string();
        assert_eq!(error, "`f` returned Int64 where LargeBinary is declared");
    }
}
