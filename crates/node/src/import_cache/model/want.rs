//! The imports that a function may do and the zygotes that it may share: how functions and zygotes
//! compare.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use snowmelt_types::{Digest, Tenant};

/// The bounds within which zygotes are shared: never across scopes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ZygoteScope {
    /// The tenant whose code runs.
    pub tenant: Tenant,
    /// The digest of the interpreter and the runtime.
    pub base: Digest,
}

/// The packages that can be seen and the modules that are imported, by a function or in a zygote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Set {
    /// The top-level names that each wheel provides, by the digest of the wheel's content.
    pub wheels: BTreeMap<Digest, Arc<BTreeSet<String>>>,
    /// The full names of the modules, of the wheels and of the standard library.
    pub modules: BTreeSet<String>,
    /// The code whose shared set-ups have run; a zygote with such state serves no other code.
    /// `None` if none have run.
    pub code: Option<Digest>,
}

/// The imports that a function declares, and the zygotes that may serve it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Want {
    /// The scope of the zygotes that the function may share.
    pub scope: ZygoteScope,
    /// The most that such a zygote may see and have imported.
    pub set: Set,
}

impl Set {
    /// Returns whether everything in this set is in `other` too: the subset rule (SOCK 4.2).
    pub fn is_subset(&self, other: &Self) -> bool {
        self.wheels.keys().all(|wheel| other.wheels.contains_key(wheel))
            && self.modules.is_subset(&other.modules)
            && (self.code.is_none() || self.code == other.code)
    }

    /// Returns whether this set, which serves `other`, has all modules and set-ups that `other`
    /// declares.
    pub fn is_all_of(&self, other: &Self) -> bool {
        self.modules.len() == other.modules.len() && self.code == other.code
    }

    /// Returns the common part of two sets, without modules whose wheel only one of them has.
    pub fn shared(&self, other: &Self) -> Self {
        let both = |wheel: &&Digest| other.wheels.contains_key(*wheel);
        let keep: BTreeSet<Digest> = self.wheels.keys().filter(both).cloned().collect();
        let wheels: BTreeMap<_, _> = self
            .wheels
            .iter()
            .filter(|(wheel, _)| keep.contains(*wheel))
            .map(|(wheel, names)| (wheel.clone(), Arc::clone(names)))
            .collect();
        let code = self.code.clone().filter(|code| Some(code) == other.code.as_ref());
        let mut shared = Self { wheels, modules: BTreeSet::new(), code };
        let importable = |module: &&String| {
            let top = top(module);
            other.modules.contains(*module) && (!self.provides(top) || shared.provides(top))
        };
        let modules: BTreeSet<String> = self.modules.iter().filter(importable).cloned().collect();
        shared.modules = modules;
        shared
    }

    /// Returns whether one of the wheels has this top-level name.
    pub fn provides(&self, name: &str) -> bool {
        self.wheels.values().any(|names| names.contains(name))
    }

    /// Returns the top-level names of the wheels that only `self` has.
    pub fn names_beyond<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a String> {
        let own = self.wheels.iter().filter(|(wheel, _)| !other.wheels.contains_key(*wheel));
        own.flat_map(|(_, names)| names.iter())
    }
}

fn top(module: &str) -> &str {
    module.split('.').next().unwrap_or(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(wheels: &[(&str, &[&str])], modules: &[&str]) -> Set {
        let names = |names: &[&str]| Arc::new(names.iter().map(|n| (*n).to_owned()).collect());
        Set {
            wheels: wheels.iter().map(|(w, brought)| (Digest::of(w), names(brought))).collect(),
            modules: modules.iter().map(|module| (*module).to_owned()).collect(),
            code: None,
        }
    }

    #[test]
    fn state_of_code_is_for_that_code_only() {
        let numpy: (&str, &[&str]) = ("numpy 2", &["numpy"]);
        let plain = set(&[numpy], &["numpy"]);
        let of = |code: &str| Set { code: Some(Digest::of(code)), ..plain.clone() };
        assert!(plain.is_subset(&of("a")) && of("a").is_subset(&of("a")));
        assert!(!of("a").is_subset(&of("b")) && !of("a").is_subset(&plain));
        assert_eq!(of("a").shared(&of("b")), plain);
        assert_eq!(of("a").shared(&of("a")), of("a"));
        assert!(!plain.is_all_of(&of("a")) && of("a").is_all_of(&of("a")));
    }

    #[test]
    fn shares_a_module_only_with_its_wheel() {
        let numpy: (&str, &[&str]) = ("numpy 2", &["numpy"]);
        let old = set(&[numpy, ("pandas 1", &["pandas"])], &["json", "numpy", "pandas"]);
        let new = set(&[numpy, ("pandas 2", &["pandas"])], &["json", "numpy", "pandas"]);
        assert_eq!(old.shared(&new), set(&[numpy], &["json", "numpy"]));
        assert!(old.shared(&new).is_subset(&old) && !old.is_subset(&new));
    }
}
