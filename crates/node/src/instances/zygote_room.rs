//! The room for instances together with the zygote that they are forked from.

use snowmelt_ledger::Use;

use crate::import_cache::ImportCache;
use crate::resources::account::{Account, INSTANCE_PATIENCE, InstanceRooms, ZygoteRoom, zygote};
use crate::user_code::unit::WarmStart;
use crate::{InstanceLimits, Result, Unit};

/// The source of the room in which an instance is started.
#[derive(Debug)]
pub(crate) enum InstanceRoom {
    /// The room is asked for now, and waited for if there is none.
    Asked(Use),
    /// The room is asked for now, and not waited for.
    AtOnce(Use),
    /// The room was reserved before.
    Given(InstanceRooms),
}

impl Account {
    /// Reserves room for new instances, and for their zygote if one has to be started: both at
    /// once, so that nobody has the one and waits for the other. Reserves room for as many
    /// instances as there is, `most` at most; if there is room for none, waits for the room of one.
    pub(crate) async fn rooms(
        &self,
        imports: &ImportCache,
        unit: &Unit,
        limits: &InstanceLimits,
        use_: Use,
        most: usize,
    ) -> Result<InstanceRooms> {
        let first = needs_zygote(imports, unit).then(zygote);
        if let Some(rooms) = self.rooms_at_once(&unit.tenant, limits, use_, most, first) {
            return Ok(rooms);
        }
        let one = self.instance(limits) + first.unwrap_or_default();
        let ask = self.ask(&unit.tenant, use_, one);
        let mut room = self.within(ask, INSTANCE_PATIENCE).await?;
        let zygote = first.map(|amount| room.take(amount, Use::Zygote));
        Ok(InstanceRooms { each: vec![Some(room)], zygote: ZygoteRoom::new(zygote) })
    }
}

/// Returns whether the first instance of a unit needs a zygote that does not run.
pub(crate) fn needs_zygote(imports: &ImportCache, unit: &Unit) -> bool {
    match &unit.start {
        WarmStart::Zygote(forked) => imports.lacks(&forked.want),
        WarmStart::Program(_) => false,
    }
}
