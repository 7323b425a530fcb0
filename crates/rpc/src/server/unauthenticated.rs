//! The connections on which no token has arrived yet.
//!
//! Invariant: a source that connects often takes no place of another source: if there are too many
//! connections, the oldest one of the source with the most is closed.

use std::collections::{HashMap, VecDeque};

use tokio::task::AbortHandle;

use crate::Admission;

/// Unauthenticated connections, the oldest first.
#[derive(Default)]
pub(super) struct Unauthenticated {
    waiting: VecDeque<(AbortHandle, Admission)>,
}

impl Unauthenticated {
    /// Adds a connection, and closes others if there are too many.
    pub fn add(&mut self, connection: AbortHandle, admission: Admission, most: usize) {
        self.waiting.push_back((connection, admission));
        if self.waiting.len() <= most {
            return;
        }
        self.waiting
            .retain(|(connection, admission)| !connection.is_finished() && !admission.is_given());
        while self.waiting.len() > most {
            let Some((oldest, _)) = self.waiting.remove(self.of_the_most()) else { return };
            oldest.abort();
        }
    }

    /// The place of the oldest connection of the source with the most connections.
    fn of_the_most(&self) -> usize {
        let mut counts = HashMap::new();
        for (_, admission) in &self.waiting {
            *counts.entry(admission.source()).or_insert(0) += 1;
        }
        let most = counts.values().copied().max().unwrap_or(0);
        let is_of_the_most = |(_, admission): &(AbortHandle, Admission)| {
            counts.get(&admission.source()) == Some(&most)
        };
        self.waiting.iter().position(is_of_the_most).unwrap_or(0)
    }
}
