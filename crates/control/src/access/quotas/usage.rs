//! An amount, and who uses how much of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use snowmelt_api::{QuotaHolder, QuotaKind};

/// The most holders that are shown or listed by name.
const MAX_SHOWN: usize = 5;
const MAX_LISTED: usize = 100;

/// An amount with its users. Those that use nothing are not kept.
#[derive(Debug, Default)]
pub(super) struct Usage {
    pub sum: u64,
    by: BTreeMap<Arc<str>, u64>,
}

impl Usage {
    pub fn add(&mut self, who: &Arc<str>, amount: u64) {
        if amount == 0 {
            return;
        }
        self.sum = self.sum.saturating_add(amount);
        match self.by.get_mut(who) {
            Some(used) => *used = used.saturating_add(amount),
            None => drop(self.by.insert(Arc::clone(who), amount)),
        }
    }

    pub fn take(&mut self, who: &str, amount: u64) {
        self.sum = self.sum.saturating_sub(amount);
        if let Some(used) = self.by.get_mut(who) {
            *used = used.saturating_sub(amount);
            if *used == 0 {
                self.by.remove(who);
            }
        }
    }

    /// Returns who uses how much, the most first.
    pub fn holders(&self) -> Vec<QuotaHolder> {
        let holders = self.by.iter();
        let mut holders: Vec<_> = holders
            .map(|(name, used)| QuotaHolder { name: name.to_string(), used: *used })
            .collect();
        holders.sort_by(|a, b| b.used.cmp(&a.used).then_with(|| a.name.cmp(&b.name)));
        holders.truncate(MAX_LISTED);
        holders
    }

    /// Returns a text such as `5 of function f, 3 of query q-12`; empty where nothing is used.
    pub fn shown(&self, kind: QuotaKind) -> String {
        let holders = self.holders();
        let some = holders.iter().take(MAX_SHOWN);
        let mut some: Vec<_> =
            some.map(|one| format!("{} of {}", kind.shown(one.used), one.name)).collect();
        let others = self.by.len().saturating_sub(MAX_SHOWN);
        if others > 0 {
            some.push(format!("the rest of {others} others"));
        }
        some.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_who_uses_the_most() {
        let mut usage = Usage::default();
        let who = |name: &str| Arc::from(name);
        usage.add(&who("query q-12"), 3);
        usage.add(&who("function f"), 4);
        usage.add(&who("function f"), 1);
        assert_eq!(usage.shown(QuotaKind::Instances), "5 of function f, 3 of query q-12");
        for more in ["a", "b", "c", "d"] {
            usage.add(&who(more), 1);
        }
        assert!(usage.shown(QuotaKind::Instances).ends_with("1 of c, the rest of 1 others"));
        for name in ["a", "b", "c", "d"] {
            usage.take(name, 1);
        }
        usage.take("function f", 5);
        usage.take("query q-12", 3);
        assert_eq!((usage.sum, usage.by.len()), (0, 0), "nothing is kept of those without");
    }
}
