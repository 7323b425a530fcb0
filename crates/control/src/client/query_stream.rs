//! The answer of a query, as it arrives.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::{Buf, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use snowmelt_api::{Event, Profile};
use snowmelt_types::{Code, ErrorReport, Report};
use snowmelt_wire::{BatchDecoder, Frame, HEADER_BYTES, Kind};

/// The parts of the answer of a query, in order.
#[derive(Debug)]
pub enum QueryFrame {
    /// An event, for the progress display.
    Event(Event),
    /// The schema of the answer; comes once, before the first batch.
    Schema(SchemaRef),
    /// Some rows of the answer.
    Batch(RecordBatch),
    /// The profile of the query; comes once, after the last batch.
    Profile(Box<Profile>),
}

/// The answer of a query as a stream. Dropping it cancels the query.
pub struct QueryStream {
    body: Incoming,
    buffer: BytesMut,
    decoder: BatchDecoder,
    ready: std::collections::VecDeque<QueryFrame>,
    ended: bool,
}

impl QueryStream {
    pub(super) fn new(body: Incoming) -> Self {
        Self {
            body,
            buffer: BytesMut::new(),
            decoder: BatchDecoder::default(),
            ready: std::collections::VecDeque::new(),
            ended: false,
        }
    }

    /// Returns the next part; `None` once the answer is complete.
    pub async fn next(&mut self) -> Result<Option<QueryFrame>, ErrorReport> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Ok(Some(ready));
            }
            if self.ended {
                return Ok(None);
            }
            let frame = self.frame().await?;
            self.take(frame)?;
        }
    }

    fn take(&mut self, frame: Frame) -> Result<(), ErrorReport> {
        let broken = |error: snowmelt_wire::Error| error.report();
        match frame.kind {
            Kind::Event => self.ready.push_back(QueryFrame::Event(frame.parse().map_err(broken)?)),
            Kind::Profile => {
                let profile = frame.parse().map_err(broken)?;
                self.ready.push_back(QueryFrame::Profile(Box::new(profile)));
            }
            Kind::Schema => {
                self.decoder.push(&frame).map_err(broken)?;
                let schema = self.decoder.schema().map(QueryFrame::Schema);
                self.ready.extend(schema);
            }
            Kind::Batch => {
                let batches = self.decoder.push(&frame).map_err(broken)?;
                self.ready.extend(batches.into_iter().map(QueryFrame::Batch));
            }
            Kind::End => self.ended = true,
            Kind::Failure => return Err(frame.parse::<ErrorReport>().map_err(broken)?),
            found => {
                return Err(broken(snowmelt_wire::Error::Unexpected {
                    found,
                    expected: "an answer",
                }));
            }
        }
        Ok(())
    }

    async fn frame(&mut self) -> Result<Frame, ErrorReport> {
        loop {
            if let Some(frame) = self.buffered()? {
                return Ok(frame);
            }
            let data = self.body.frame().await.ok_or_else(cut_short)?.map_err(|_| cut_short())?;
            if let Ok(data) = data.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }

    fn buffered(&mut self) -> Result<Option<Frame>, ErrorReport> {
        let Some(header) = self.buffer.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let (kind, length) =
            snowmelt_wire::decode_header(*header).map_err(|error| error.report())?;
        if self.buffer.len() < HEADER_BYTES + length {
            return Ok(None);
        }
        self.buffer.advance(HEADER_BYTES);
        Ok(Some(Frame::new(kind, self.buffer.split_to(length).freeze())))
    }
}

fn cut_short() -> ErrorReport {
    let message = "the platform went away before the answer was complete";
    ErrorReport::new(Code::SERVER_UNREACHABLE, message).hint("run the query again")
}
