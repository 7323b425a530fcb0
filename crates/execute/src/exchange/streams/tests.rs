//! Tests of both ends of streams.

use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use snowmelt_wire::Receiver;

use super::*;
use crate::exchange::streams::target::StreamTarget;
use crate::exchange::target::OutputTarget;
use crate::exchange::write::ExchangeWriter;

fn batch(numbers: std::ops::Range<i64>) -> RecordBatch {
    let numbers = Arc::new(Int64Array::from_iter_values(numbers)) as ArrayRef;
    RecordBatch::try_from_iter([("n", numbers)]).unwrap()
}

fn schema() -> SchemaRef {
    batch(0..1).schema()
}

/// A task that sends, and the streams of the receivers 10, 11, …, each with these partitions.
fn sender(partitions: &[&[u32]], limit: u64) -> (StreamTarget, Vec<StdStream>) {
    let mut near = Vec::new();
    let mut far = Vec::new();
    let mut receivers = Vec::new();
    for (task, partitions) in (10..).zip(partitions) {
        let (one, other) = StdStream::pair().unwrap();
        near.push((task, one));
        far.push(other);
        receivers.push(Receiver { task, partitions: partitions.to_vec() });
    }
    (StreamTarget::new(&receivers, near, limit).unwrap(), far)
}

fn source(sockets: Vec<StdStream>) -> StreamSource {
    StreamSource::new(3, (0..).zip(sockets).collect())
}

async fn rows(source: &StreamSource) -> DataFusionResult<Vec<i64>> {
    let mut reader = source.read(schema())?;
    let mut rows = Vec::new();
    while let Some(frame) = reader.frame().await? {
        let Some(batch) = reader.decode(&frame)? else { continue };
        let column = batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap();
        rows.extend(column.values().iter().copied());
    }
    rows.sort_unstable();
    Ok(rows)
}

#[tokio::test]
async fn rows_of_all_senders_come_with_their_partitions() {
    let mut sockets = Vec::new();
    let mut writers = Vec::new();
    for _ in 0..2 {
        let (target, mut far) = sender(&[&[0, 2], &[1]], 1 << 20);
        sockets.push(far.remove(0));
        drop(far);
        writers.push(ExchangeWriter::new(Box::new(target), 100, 0));
    }
    let source = source(sockets);
    let writing = async {
        for (from, writer) in [0, 1000].into_iter().zip(&writers) {
            for start in (from..from + 1000).step_by(250) {
                writer.add(((start / 250) % 2 * 2) as u32, batch(start..start + 250)).unwrap();
                writer.settle().await.unwrap();
            }
            let index = writer.finish().await.unwrap();
            assert_eq!(index.iter().map(|part| part.rows).collect::<Vec<_>>(), [500, 500]);
            assert!(index.iter().all(|part| part.ranges.len() == 1 && part.bytes() > 4000));
        }
    };
    let (found, ()) = tokio::join!(rows(&source), writing);
    assert_eq!(found.unwrap(), (0..2000).collect::<Vec<_>>());
    assert!(source.lost().is_empty());
    assert!(rows(&source).await.is_err(), "rows are not kept for a second reader");
}

#[tokio::test]
async fn a_stream_without_an_end_is_that_of_a_lost_task() {
    let (target, mut far) = sender(&[&[0]], 1 << 20);
    let source = source(vec![far.remove(0)]);
    let writer = ExchangeWriter::new(Box::new(target), 100, 0);
    writer.add(0, batch(0..500)).unwrap();
    writer.settle().await.unwrap();
    drop(writer);
    let error = rows(&source).await.unwrap_err();
    assert!(error.to_string().contains("ended before its last row"), "{error}");
    assert_eq!(source.lost(), [0]);
}

#[tokio::test]
async fn a_receiver_that_does_not_read_keeps_no_rows_from_the_others() {
    let (target, mut far) = sender(&[&[0], &[1]], 64 << 20);
    let idle = far.remove(0);
    let reads = far.remove(0);
    let source = source(vec![reads]);
    let writer = ExchangeWriter::new(Box::new(target), 8192, 0);
    let writing = async {
        for start in (0..1_000_000).step_by(10_000) {
            // More than the buffers of a socket have room for.
            writer.add(0, batch(start..start + 10_000)).unwrap();
            writer.add(1, batch(start..start + 10_000)).unwrap();
            writer.settle().await.unwrap();
        }
        // It needs no rows, which is known when it closes.
        drop(idle);
        writer.finish().await.unwrap();
    };
    let (found, ()) = tokio::join!(rows(&source), writing);
    assert_eq!(found.unwrap().len(), 1_000_000);
}

#[tokio::test]
async fn a_writer_waits_when_too_many_bytes_are_on_their_way() {
    let (target, far) = sender(&[&[0]], 100);
    let writer = ExchangeWriter::new(Box::new(target), 8192, 0);
    writer.add(0, batch(0..1_000_000)).unwrap();
    let settled = writer.settle();
    let mut settled = std::pin::pin!(settled);
    for _ in 0..100 {
        tokio::task::yield_now().await;
        assert!(futures::poll!(settled.as_mut()).is_pending());
    }
    assert!(writer.is_wanted());
    drop(far);
    settled.await.unwrap();
    writer.finish().await.unwrap();
    assert!(!writer.is_wanted(), "nobody reads it");
}

#[tokio::test]
async fn a_receiver_that_nobody_connected_is_an_error() {
    let receivers = [Receiver { task: 7, partitions: vec![0] }];
    assert!(StreamTarget::new(&receivers, Vec::new(), 0).is_err());
    let (target, _far) = sender(&[&[0]], 100);
    let piece = crate::exchange::target::OutputPiece { partition: 5, frames: vec![0] };
    assert!(target.write(vec![piece]).is_err());
}
