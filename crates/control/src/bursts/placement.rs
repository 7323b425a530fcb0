//! The hosts of a burst: what it needs, and the error where there is no room for all of it.

use std::sync::Arc;
use std::time::Duration;

use snowmelt_api::{BurstCalls, BurstRoom, FunctionOptions};
use snowmelt_schedule::{GangDemand, GangRoom};
use snowmelt_types::{ByteSize, Code, Digest, ErrorReport, HostName, Tenant};

use super::job::BurstJob;
use super::{Bursts, RankRange};
use crate::cluster::placements::{NoHosts, PlacedGang};
use crate::cluster::trees;
use crate::state::records::{FunctionRecord, JobRecord};

impl Bursts {
    /// Gives a burst its hosts, once there is room for all of it.
    pub(super) async fn place(
        &self,
        job: &BurstJob,
        record: &FunctionRecord,
        calls: &BurstCalls,
    ) -> Result<(PlacedGang, Vec<RankRange>), ErrorReport> {
        let gang = Arc::new(self.gang(record, calls));
        let needed = gang.bytes();
        let waits = |GangRoom { hosts, free, .. }| job.waits(BurstRoom { needed, free, hosts });
        let placed = self.placements.place_gang(&gang, waits).await;
        let (placed, hosts) = placed.map_err(|none| too_few(&gang, none))?;
        job.starts();
        let mut first = 0;
        let mut parts = Vec::with_capacity(hosts.len());
        for (host, count) in hosts {
            parts.push(RankRange { host, first, count });
            first += count;
        }
        Ok((placed, parts))
    }

    /// Counts the memory of a burst of an earlier control, which has none on its own host any more.
    pub(super) fn place_again(&self, record: &JobRecord) -> PlacedGang {
        let others = record.parts.iter().filter(|part| part.address.is_some());
        let parts: Vec<(HostName, u32)> =
            others.map(|part| (part.host.clone(), part.count)).collect();
        let ranks = parts.iter().map(|(_, count)| count).sum();
        let gang = gang(&record.tenant, &record.function.options, ranks);
        self.placements.runs_gang(gang, parts)
    }

    fn gang(&self, record: &FunctionRecord, calls: &BurstCalls) -> GangDemand {
        let ranks = u32::try_from(calls.events.len()).unwrap_or(u32::MAX);
        // Its folder is on this host. On several it fails, and says so.
        let is_here = record.spec.root.is_some() && calls.most_hosts == Some(1);
        GangDemand {
            image: trees::image(record).map(Digest::of),
            most_hosts: calls.most_hosts,
            only: is_here.then(|| self.placements.own_name()),
            ..gang(&record.tenant, &record.spec.options, ranks)
        }
    }
}

fn gang(tenant: &Tenant, options: &FunctionOptions, ranks: u32) -> GangDemand {
    GangDemand {
        tenant: tenant.clone(),
        image: None,
        ranks,
        memory: options.memory.bytes(),
        cpu_millis: options.cpu.0,
        most_hosts: None,
        only: None,
    }
}

fn too_few(gang: &GangDemand, NoHosts { waited, room }: NoHosts) -> ErrorReport {
    let ranks = gang.ranks;
    let each = ByteSize(gang.memory);
    let need = ByteSize(gang.bytes());
    let hosts = match room.hosts {
        0 => "all hosts are drained and have".to_owned(),
        1 => "1 host has".to_owned(),
        many => format!("{many} hosts have"),
    };
    let have = ByteSize(if waited.is_some() { room.free } else { room.most });
    let message = format!("{ranks} functions of {each} need {need}, and {hosts} {have} to give");
    let hint = "ask for less memory for each, or bring up more hosts (`snowmelt node`)";
    match waited {
        None | Some(Duration::ZERO) => ErrorReport::new(Code::HOSTS_FEW, message).hint(hint),
        Some(waited) => {
            let message = format!("{message} after {waited:?}");
            ErrorReport::new(Code::HOSTS_FEW, message).hint(format!(
                "{hint}; `snowmelt burst ls` shows what runs, and cluster.burst_wait is how long a \
                 burst waits"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_is_missing_and_how_long_it_has_waited() {
        let gang = gang(&Tenant::default(), &FunctionOptions::default(), 3);
        let gang = GangDemand { memory: 1 << 30, ..gang };
        let room = GangRoom { hosts: 2, free: 1 << 30, most: 2 << 30 };
        let refused = too_few(&gang, NoHosts { waited: None, room });
        assert_eq!(refused.known_code(), Code::HOSTS_FEW);
        let needs = "3 functions of 1 GiB need 3 GiB, and 2 hosts have";
        assert_eq!(refused.message, format!("{needs} 2 GiB to give"));
        let waited = NoHosts { waited: Some(Duration::from_secs(60)), room };
        assert_eq!(too_few(&gang, waited).message, format!("{needs} 1 GiB to give after 60s"));
        let at_once = NoHosts { waited: Some(Duration::ZERO), room };
        assert_eq!(too_few(&gang, at_once).message, format!("{needs} 1 GiB to give"));
    }
}
