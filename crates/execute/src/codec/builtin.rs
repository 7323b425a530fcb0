//! The built-in functions by name, for the decoding of plans.
//!
//! A worker decodes one plan, often its only one, which calls a few functions of about 400. To make
//! all of them took a large part of a worker's start. So the functions of a kind are made when the
//! first of this kind is asked for, and the functions of most queries are made without the others.
//!
//! Invariant: a name stands for the same function as in a session that plans
//! (`plan`), where a function that is registered later replaces an earlier one.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, OnceLock};

use datafusion::execution::SessionStateDefaults as Defaults;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::logical_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF, WindowUDF};

use crate::{sql_functions, sql_semantics};

type Named<F> = HashMap<String, Arc<F>>;

/// The functions of each kind, once one of them was asked for.
#[derive(Debug, Default)]
pub(super) struct Builtin {
    /// Functions of this project that replace operators.
    checked: OnceLock<Named<ScalarUDF>>,
    /// Functions of this project that no operator stands for.
    everyday: OnceLock<Named<ScalarUDF>>,
    scalars: OnceLock<Named<ScalarUDF>>,
    aggregates: OnceLock<Named<AggregateUDF>>,
    windows: OnceLock<Named<WindowUDF>>,
    higher_order: OnceLock<Named<HigherOrderUDF>>,
}

/// The functions that this process has made.
pub(super) static BUILTIN: LazyLock<Builtin> = LazyLock::new(Builtin::default);

impl Builtin {
    /// Returns a function of single rows by its name.
    pub(super) fn scalar(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        let named = |all| by_name(all, ScalarUDF::name, ScalarUDF::aliases);
        let found = self.checked.get_or_init(|| named(sql_semantics::scalars())).get(name);
        let found = found.or_else(|| {
            self.everyday.get_or_init(|| named(sql_functions::scalars())).get(name).or_else(|| {
                self.scalars.get_or_init(|| named(Defaults::default_scalar_functions())).get(name)
            })
        });
        found.cloned()
    }

    /// Returns a function of groups of rows by its name.
    pub(super) fn aggregate(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        match name {
            "count" => return Some(count_udaf()),
            "min" => return Some(min_udaf()),
            "max" => return Some(max_udaf()),
            _ => (),
        }
        if let Some(own) = sql_semantics::aggregates().into_iter().find(|own| own.name() == name) {
            return Some(own);
        }
        let all = self.aggregates.get_or_init(|| {
            let all = Defaults::default_aggregate_functions();
            by_name(all, AggregateUDF::name, AggregateUDF::aliases)
        });
        all.get(name).cloned()
    }

    /// Returns a function of windows by its name.
    pub(super) fn window(&self, name: &str) -> Option<Arc<WindowUDF>> {
        let all = self.windows.get_or_init(|| {
            by_name(Defaults::default_window_functions(), WindowUDF::name, WindowUDF::aliases)
        });
        let excluding = || sql_functions::exclusions::of_name(name, |name| self.aggregate(name));
        all.get(name).cloned().or_else(excluding)
    }

    /// Returns a function that takes a function, by its name.
    pub(super) fn higher_order(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        let all = self.higher_order.get_or_init(|| {
            let mut all = Defaults::default_higher_order_functions();
            all.push(sql_functions::higher_order());
            by_name(all, HigherOrderUDF::name, HigherOrderUDF::aliases)
        });
        all.get(name).cloned()
    }
}

/// Indexes functions by their names and aliases, as a session registers them.
fn by_name<F>(all: Vec<Arc<F>>, name: fn(&F) -> &str, aliases: fn(&F) -> &[String]) -> Named<F> {
    let mut named = Named::with_capacity(all.len());
    for function in all {
        for alias in aliases(&function) {
            named.insert(alias.clone(), Arc::clone(&function));
        }
        named.insert(name(&function).to_owned(), function);
    }
    named
}

#[cfg(test)]
mod tests {
    use datafusion::execution::session_state::SessionStateBuilder;

    use super::*;

    #[test]
    fn a_name_stands_for_the_function_of_a_session() {
        let mut state = SessionStateBuilder::new().with_default_features().build();
        sql_semantics::register(&mut state).unwrap();
        sql_functions::register(&mut state).unwrap();
        sql_functions::exclusions::register(&mut state).unwrap();
        let builtin = Builtin::default();
        assert!(state.scalar_functions().len() > 200);
        for known in state.scalar_functions().values() {
            let expected = &state.scalar_functions()[known.name()];
            assert_eq!(builtin.scalar(known.name()).as_ref(), Some(expected));
        }
        for known in state.aggregate_functions().values() {
            let expected = &state.aggregate_functions()[known.name()];
            assert_eq!(builtin.aggregate(known.name()).as_ref(), Some(expected));
        }
        for known in state.window_functions().values() {
            let expected = &state.window_functions()[known.name()];
            assert_eq!(builtin.window(known.name()).as_ref(), Some(expected));
        }
        for known in state.higher_order_functions().values() {
            let expected = &state.higher_order_functions()[known.name()];
            assert_eq!(builtin.higher_order(known.name()).as_ref(), Some(expected));
        }
        assert!(builtin.scalar("nothing").is_none() && builtin.aggregate("nothing").is_none());
    }

    #[test]
    fn only_what_is_asked_for_is_made() {
        let builtin = Builtin::default();
        for name in ["count", "sum", "avg", "min", "max"] {
            assert!(builtin.aggregate(name).is_some(), "{name}");
        }
        assert!(builtin.aggregates.get().is_none(), "the usual ones are made alone");
        assert!(builtin.scalar("checked_add").is_some());
        assert!(builtin.checked.get().is_some() && builtin.everyday.get().is_none());
        assert!(builtin.scalars.get().is_none() && builtin.windows.get().is_none());
        assert!(builtin.scalar("lower").is_some() && builtin.scalars.get().is_some());
    }
}
