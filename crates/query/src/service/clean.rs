//! Removes the objects of a query whose driver could not: it was lost, or the query was cancelled.
//!
//! The platform asks for the removal once all sandboxes of the query have ended. The answer is
//! `End` or `Failure`.

use bytes::Bytes;
use snowmelt_execute::exchange::Cleaner;
use snowmelt_types::Report;
use snowmelt_wire::{Clean, Frame, FrameStream, Kind, Result as WireResult};
use tokio::runtime::Builder;

/// Answers a connection whose first frame is given.
pub(super) fn answer(frame: &Frame, mut stream: FrameStream) -> WireResult<()> {
    let Clean { locations, folder, aws } = frame.parse()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let cleaned = runtime.block_on(async {
        let cleaner = Cleaner::new(&locations, &folder, &aws)?;
        cleaner.clean_twice().await
    });
    match cleaned {
        Ok(_) => stream.send(&Frame::new(Kind::End, Bytes::new())),
        Err(error) => stream.send(&Frame::json(Kind::Failure, &error.report())?),
    }
}
