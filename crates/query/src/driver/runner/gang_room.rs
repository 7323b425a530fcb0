//! The room of a gang, for all of its tasks.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use snowmelt_wire::GangAsk;

use crate::driver::TaskRunner;

/// Room for all tasks of a gang, which is given back when none of them runs any more.
pub(crate) struct GangReservation {
    runner: Arc<dyn TaskRunner>,
    pub(crate) gang: u64,
}

impl Drop for GangReservation {
    fn drop(&mut self) {
        self.runner.disband(self.gang);
    }
}

/// The request for the room of a gang: one for all of its tasks. `None` if there is no room.
pub(crate) type Reserving = Shared<BoxFuture<'static, Option<Arc<GangReservation>>>>;

/// Asks for the room of a gang once the first of its tasks waits for it.
pub(crate) fn reserve(runner: Arc<dyn TaskRunner>, ask: GangAsk) -> Reserving {
    let reserving = async move {
        let gang = runner.reserve(&ask).await?;
        Some(Arc::new(GangReservation { runner, gang }))
    };
    reserving.boxed().shared()
}
