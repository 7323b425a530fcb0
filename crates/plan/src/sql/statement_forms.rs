//! A statement as the planner is to read it.
//!
//! The planner's errors may show that a statement needs another form. Then it is written again.

use datafusion::error::DataFusionError;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement as DfStatement;
use futures::FutureExt;

use super::literals::{self, Declared};
use super::naming::{Reused, same_names, sort_keys};
use super::parameters::ParameterValues;
use super::{equivalents, semantics, using};

/// Functions that have another value at each call.
const VARYING: [&str; 3] = ["random", "uuid", "gen_random_uuid"];

/// Writes a statement as the planner is to read it.
pub(crate) struct StatementWriter<'a> {
    state: &'a SessionState,
    values: &'a ParameterValues,
    /// The user's functions.
    declared: Declared,
    /// True if the planner gave different expressions the same name.
    tells_apart: bool,
    /// True if the planner took names inside of expressions of ORDER BY as those of items.
    sorts_by_keys: bool,
    reused: Reused,
}

impl<'a> StatementWriter<'a> {
    pub(crate) fn new(
        state: &'a SessionState,
        values: &'a ParameterValues,
        declared: Declared,
    ) -> Self {
        let reused = Reused::default();
        Self { state, values, declared, tells_apart: false, sorts_by_keys: false, reused }
    }

    /// The statement as the planner is to read it, and whether all keys of USING and NATURAL are
    /// merged.
    pub(crate) fn as_in_sql(&self, query: &DfStatement) -> (DfStatement, bool) {
        let mut typed = query.clone();
        if self.tells_apart {
            same_names::name_items(&mut typed);
        }
        if self.sorts_by_keys {
            sort_keys::write(&mut typed);
        }
        self.reused.write(&mut typed, &|name| self.varies(name));
        same_names::name_columns(&mut typed);
        self.values.put_into(&mut typed);
        equivalents::write(&mut typed, &|name| self.has_function(name));
        semantics::as_in_sql(&mut typed);
        literals::typed(&mut typed, &self.declared);
        if self.tells_apart {
            same_names::tell_apart(&mut typed);
        }
        // The session has all tables, so a plan waits for nothing.
        let planner = |asked| self.state.statement_to_plan(asked).now_or_never()?.ok();
        let keys_are_merged = using::merge_keys(&mut typed, self.tells_apart, &planner);
        (typed, keys_are_merged)
    }

    /// Whether the statement is to be written otherwise after an error of the planner.
    pub(crate) fn learns_from(&mut self, query: &DfStatement, error: &DataFusionError) -> bool {
        if self.sort_by_keys(query) {
            return true;
        }
        if !self.tells_apart && same_names::is_refusal(error) {
            self.tells_apart = true;
            return true;
        }
        let mut keyed = query.clone();
        if self.sorts_by_keys {
            sort_keys::write(&mut keyed);
        }
        let mut reused = std::mem::take(&mut self.reused);
        let found = reused.add(&keyed, error, &|name| self.varies(name));
        self.reused = reused;
        found
    }

    /// Whether the statement is to be sorted by keys that are items. False if it is already, or has no
    /// such key.
    pub(crate) fn sort_by_keys(&mut self, query: &DfStatement) -> bool {
        let begins = !self.sorts_by_keys && sort_keys::write(&mut query.clone());
        self.sorts_by_keys |= begins;
        begins
    }

    fn has_function(&self, name: &str) -> bool {
        let is = |known: &String| known.eq_ignore_ascii_case(name);
        self.state.scalar_functions().keys().any(is)
            || self.state.aggregate_functions().keys().any(is)
            || self.state.window_functions().keys().any(is)
            || self.state.higher_order_functions().keys().any(is)
    }

    /// Whether a function may have another value at each call. A function of the user counts as
    /// such, so that it is not called twice.
    fn varies(&self, name: &str) -> bool {
        VARYING.contains(&name) || self.declared.contains_key(name)
    }
}
