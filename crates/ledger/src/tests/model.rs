//! Checks that any sequence of requests, ends and changes keeps the invariants of the account.

use futures::FutureExt;
use proptest::prelude::*;

use super::*;

const TENANTS: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum LedgerStep {
    Try { tenant: usize, memory: u64, instances: u64 },
    Wait { tenant: usize, memory: u64, instances: u64 },
    WaitForSpare { tenant: usize, memory: u64, instances: u64 },
    Drop(usize),
    GiveUp(usize),
    Split(usize),
    Take { which: usize, memory: u64 },
    Resize { which: usize, memory: u64 },
}

fn step() -> impl Strategy<Value = LedgerStep> {
    let sizes = || (0..TENANTS.len(), 0u64..130, 1u64..4);
    prop_oneof![
        sizes().prop_map(|(tenant, memory, instances)| LedgerStep::Try {
            tenant,
            memory,
            instances
        }),
        sizes().prop_map(|(tenant, memory, instances)| LedgerStep::Wait {
            tenant,
            memory,
            instances
        }),
        sizes().prop_map(|(tenant, memory, instances)| LedgerStep::Wait {
            tenant,
            memory,
            instances
        }),
        sizes().prop_map(|(tenant, memory, instances)| LedgerStep::WaitForSpare {
            tenant,
            memory,
            instances
        }),
        (0usize..32).prop_map(LedgerStep::Drop),
        (0usize..32).prop_map(LedgerStep::Drop),
        (0usize..32).prop_map(LedgerStep::GiveUp),
        (0usize..32).prop_map(LedgerStep::Split),
        ((0usize..32), 0u64..60).prop_map(|(which, memory)| LedgerStep::Take { which, memory }),
        ((0usize..32), 0u64..120).prop_map(|(which, memory)| LedgerStep::Resize { which, memory }),
    ]
}

/// The account, the holders of reservations, and the waiting requests.
struct LedgerModel {
    ledger: Ledger,
    held: Vec<Reservation>,
    waiting: Vec<(RoomRequest, WaitingRequest)>,
    /// Whether a reservation was resized, which is the only way above the capacity.
    was_resized: bool,
}

impl LedgerModel {
    fn apply(&mut self, step: LedgerStep) {
        let of = |tenant: usize, memory, instances| RoomRequest {
            amount: Amount { instances, ..mib(memory) },
            ..ask(TENANTS[tenant], 0)
        };
        match step {
            LedgerStep::Try { tenant, memory, instances } => {
                self.held.extend(self.ledger.try_reserve(&of(tenant, memory, instances)));
            }
            LedgerStep::Wait { tenant, memory, instances } => {
                let ask = of(tenant, memory, instances);
                if let Ok(waiting) = self.ledger.wait(ask.clone()) {
                    self.waiting.push((ask, waiting));
                }
            }
            LedgerStep::WaitForSpare { tenant, memory, instances } => {
                let ask = of(tenant, memory, instances);
                if let Ok(waiting) = self.ledger.wait_for_spare(ask.clone()) {
                    self.waiting.push((ask, waiting));
                }
            }
            LedgerStep::Drop(which) if which < self.held.len() => {
                drop(self.held.swap_remove(which))
            }
            LedgerStep::GiveUp(which) if which < self.waiting.len() => {
                drop(self.waiting.swap_remove(which));
            }
            LedgerStep::Split(which) if which < self.held.len() => {
                let parts = self.held.swap_remove(which).split(3);
                self.held.extend(parts);
            }
            LedgerStep::Take { which, memory } if which < self.held.len() => {
                let part = self.held[which].take(mib(memory), Use::Zygote);
                self.held.push(part);
            }
            LedgerStep::Resize { which, memory } if which < self.held.len() => {
                let now = Amount { memory: ByteSize::mib(memory), ..self.held[which].amount() };
                self.held[which].resize(now);
                self.was_resized = true;
            }
            _ => {}
        }
        let held = &mut self.held;
        self.waiting.retain_mut(|(_, waiting)| match waiting.now_or_never() {
            Some(granted) => {
                held.push(granted.unwrap());
                false
            }
            None => true,
        });
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let figures = self.ledger.figures();
        let sum = self.held.iter().fold(Amount::default(), |sum, one| sum + one.amount());
        prop_assert_eq!(figures.reserved, sum);
        let of_uses = figures.uses.iter().fold(Amount::default(), |sum, (_, one)| sum + *one);
        prop_assert_eq!(of_uses, sum);
        prop_assert_eq!(figures.waiting, self.waiting.len() as u64);
        prop_assert!(self.was_resized || figures.capacity.holds(sum));
        // Were there room for all that wait, none of them would.
        let fits = |ask: &RoomRequest| figures.capacity.holds(sum + ask.amount);
        prop_assert!(self.waiting.is_empty() || !self.waiting.iter().all(|(ask, _)| fits(ask)));
        Ok(())
    }
}

proptest! {
    #[test]
    fn the_account_is_right_after_every_step(steps in prop::collection::vec(step(), 1..200)) {
        let ledger = Ledger::new(capacity(100, 12));
        let held = Vec::new();
        let waiting = Vec::new();
        let mut model = LedgerModel { ledger, held, waiting, was_resized: false };
        for step in steps {
            model.apply(step);
            model.check()?;
        }
        let LedgerModel { ledger, held, waiting, .. } = model;
        drop(waiting);
        drop(held);
        let figures = ledger.figures();
        prop_assert_eq!(figures.reserved, Amount::default());
        prop_assert_eq!((figures.uses.len(), figures.waiting), (0, 0));
    }

    #[test]
    fn all_that_wait_are_granted_in_the_end(steps in prop::collection::vec(step(), 1..100)) {
        let ledger = Ledger::new(capacity(100, 12));
        let held = Vec::new();
        let waiting = Vec::new();
        let mut model = LedgerModel { ledger, held, waiting, was_resized: false };
        for step in steps {
            model.apply(step);
        }
        while !model.waiting.is_empty() {
            prop_assert!(!model.held.is_empty(), "they wait, and nothing is reserved");
            model.apply(LedgerStep::Drop(0));
        }
    }
}
