//! The instances of one function on all hosts, with those that could take a call in the order in
//! which they are asked.
//!
//! Invariant: every host whose instances could take another call is in that order, at the moment of
//! its last change; one that cannot any more, because time has passed, may still be there.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use snowmelt_types::HostName;

use crate::function::Instances;

/// Instances of one function, by host.
#[derive(Debug, Default)]
pub(crate) struct OnHosts {
    by_host: BTreeMap<HostName, Instances>,
    /// The one that was used last comes first. Thousands of hosts may have instances, and nearly all
    /// of them be busy: those are not looked at.
    free: Free,
}

type Free = BTreeSet<(Reverse<Duration>, HostName)>;

impl OnHosts {
    pub fn get(&self, host: &HostName) -> Option<&Instances> {
        self.by_host.get(host)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&HostName, &Instances)> {
        self.by_host.iter()
    }

    /// Hosts that may have an instance for a call, the one that was used last first.
    pub fn free(&self) -> impl Iterator<Item = &HostName> {
        self.free.iter().map(|(_, host)| host)
    }

    pub fn is_empty(&self) -> bool {
        self.by_host.is_empty()
    }

    /// Changes the instances of a host, which has none before if it is not known.
    pub fn change<T>(&mut self, host: &HostName, change: impl FnOnce(&mut Instances) -> T) -> T {
        let Self { by_host, free } = self;
        listed(free, host, by_host.entry(host.clone()).or_default(), change)
    }

    /// Changes the instances of a host, if it has some.
    pub fn change_known<T>(
        &mut self,
        host: &HostName,
        change: impl FnOnce(&mut Instances) -> T,
    ) -> Option<T> {
        let Self { by_host, free } = self;
        by_host.get_mut(host).map(|instances| listed(free, host, instances, change))
    }

    pub fn remove(&mut self, host: &HostName) {
        if let Some(instances) = self.by_host.remove(host) {
            self.free.remove(&(Reverse(instances.last()), host.clone()));
        }
    }

    /// Forgets instances that hosts may not keep any more.
    pub fn sweep(&mut self, now: Duration) {
        let Self { by_host, free } = self;
        by_host.retain(|host, instances| {
            let is_over = instances.is_over(now);
            if is_over {
                free.remove(&(Reverse(instances.last()), host.clone()));
            }
            !is_over
        });
    }
}

/// Changes instances, and their place in the order with them.
fn listed<T>(
    free: &mut Free,
    host: &HostName,
    instances: &mut Instances,
    change: impl FnOnce(&mut Instances) -> T,
) -> T {
    let place = |it: &Instances| it.may_take().then(|| it.last());
    let before = place(instances);
    let changed = change(instances);
    let after = place(instances);
    if before != after {
        if let Some(last) = before {
            free.remove(&(Reverse(last), host.clone()));
        }
        if let Some(last) = after {
            free.insert((Reverse(last), host.clone()));
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Begin(u8),
        End(u8, Option<u32>),
        Remove(u8),
        Sweep,
    }

    fn step() -> impl Strategy<Value = Step> {
        let host = || 0..6_u8;
        prop_oneof![
            4 => host().prop_map(Step::Begin),
            4 => (host(), prop::option::of(0..4_u32)).prop_map(|(host, count)| Step::End(host, count)),
            1 => host().prop_map(Step::Remove),
            1 => Just(Step::Sweep),
        ]
    }

    proptest! {
        #[test]
        fn the_order_has_exactly_the_hosts_that_may_take_a_call(
            each in 1..4_u32,
            steps in prop::collection::vec((step(), 0..30_u64), 1..100),
        ) {
            let name = |number: u8| HostName::try_from(format!("host-{number}")).unwrap();
            let (mut on, mut now) = (OnHosts::default(), Duration::ZERO);
            let idle = Duration::from_secs(60);
            for (step, seconds) in steps {
                now += Duration::from_secs(seconds);
                match step {
                    Step::Begin(host) => on.change(&name(host), |it| it.begin(each, idle)),
                    Step::End(host, count) => {
                        on.change_known(&name(host), |it| it.end(count, now));
                    }
                    Step::Remove(host) => on.remove(&name(host)),
                    Step::Sweep => on.sweep(now),
                }
                let may_take = on.iter().filter(|(_, it)| it.may_take());
                let mut expected: Vec<_> =
                    may_take.map(|(host, it)| (Reverse(it.last()), host)).collect();
                expected.sort_unstable();
                prop_assert!(on.free().eq(expected.iter().map(|(_, host)| *host)));
            }
        }
    }
}
