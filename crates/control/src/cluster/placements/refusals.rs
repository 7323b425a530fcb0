//! The errors of calls that no host runs.

use snowmelt_schedule::CallDemand;
use snowmelt_types::{ByteSize, Code, ErrorReport};

use super::{PATIENCE, Placements, Whose};

impl Placements {
    /// Makes the error of a call for which no host had room in time.
    pub(super) fn no_room(&self, call: &CallDemand, whose: Whose<'_>) -> ErrorReport {
        let (hosts, free) = {
            let state = self.lock();
            let free = state.scheduler.most_free().map(|(host, free)| (host.clone(), free));
            (state.hosts.len(), free)
        };
        let name = whose.function;
        let memory = ByteSize(call.memory);
        let patience = whose.limit.max(PATIENCE);
        let free = match free {
            Some((host, free)) => format!("{host} has the most free memory, {}", ByteSize(free)),
            None => "all of them are drained".to_owned(),
        };
        let message = format!(
            "none of {hosts} hosts had room for an instance of `{name}` ({memory}) within \
             {patience:?}: {free}"
        );
        ErrorReport::new(Code::NO_ROOM, message).hint(
            "try again when other calls have ended, add hosts (`snowmelt node`), or allow more \
             instances of a function on each (cluster.instances_per_host)",
        )
    }

    /// Makes the error of a call for which no host is large enough.
    pub(super) fn too_large(&self, call: &CallDemand, whose: Whose<'_>) -> ErrorReport {
        let name = whose.function;
        let memory = ByteSize(call.memory);
        if let Some(only) = &call.only {
            let message = format!(
                "`{name}` runs on {only} alone, which has no room for an instance of {memory}"
            );
            return ErrorReport::new(Code::NO_ROOM, message).hint(
                "put its image or package into a registry, so that all hosts can read it, ask for \
                 less memory, or lease an instance without `here` (transport=\"auto\")",
            );
        }
        if !self.lock().hosts.values().any(|host| host.memory_of_functions() > 0) {
            let message = "no host runs functions: control takes none, and no other has joined";
            return ErrorReport::new(Code::NO_ROOM, message).hint(
                "start one with `snowmelt node`, or let control take functions (`--memory`)",
            );
        }
        let most = self.lock().hosts.values().map(|host| host.memory_of_functions()).max();
        let most = ByteSize(most.unwrap_or_default());
        let message = format!(
            "no host has room for an instance of `{name}`: it takes {memory}, and the most that one \
             of them has is {most}"
        );
        ErrorReport::new(Code::NO_ROOM, message)
            .hint("ask for less memory, or add a host that has it (`snowmelt node --memory`)")
    }
}
