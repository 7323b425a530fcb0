//! Parses a statement that may define a function, for the platform.

use std::panic::{AssertUnwindSafe, catch_unwind};

use snowmelt_execute::process::panics;
use snowmelt_plan::sql::definition;
use snowmelt_types::Report;
use snowmelt_wire::{Frame, FrameStream, Kind, Result as WireResult, Statement};
use tokio::runtime::Builder;

/// Answers a connection whose first frame is given.
pub(super) fn answer(frame: &Frame, mut stream: FrameStream) -> WireResult<()> {
    let Statement { sql } = frame.parse()?;
    panics::install_hook();
    let runtime = Builder::new_current_thread().build()?;
    let parsing = AssertUnwindSafe(|| runtime.block_on(definition(&sql)));
    match catch_unwind(parsing) {
        Ok(Ok(found)) => stream.send(&Frame::json(Kind::Definition, &found)?),
        Ok(Err(error)) => stream.send(&Frame::json(Kind::Failure, &error.report())?),
        Err(_) => {
            let report = panics::report("the parser of the statement");
            stream.send(&Frame::json(Kind::Failure, &report)?)
        }
    }
}
