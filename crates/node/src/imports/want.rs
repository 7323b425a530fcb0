//! What a function may import and which zygotes it may share: how functions and zygotes compare.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use snowmelt_types::{Digest, Tenant};

/// Zygotes are never shared across scopes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Scope {
    /// Whose code it is.
    pub tenant: Tenant,
    /// Interpreter and runtime.
    pub base: Digest,
}

/// Packages that can be seen and modules that are imported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Set {
    /// Content of each wheel to the top-level names that it provides.
    pub wheels: BTreeMap<Digest, Arc<BTreeSet<String>>>,
    /// Full names of modules: of the wheels and of the standard library.
    pub modules: BTreeSet<String>,
    /// The code whose shared set-ups have run. Such a zygote serves no other code.
    pub code: Option<Digest>,
}

/// What a function declares.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Want {
    /// Which zygotes it may share.
    pub scope: Scope,
    /// What they may have imported.
    pub set: Set,
}

impl Set {
    /// The subset rule (SOCK 4.2): everything here is in `other` too.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.wheels.keys().all(|wheel| other.wheels.contains_key(wheel))
            && self.modules.is_subset(&other.modules)
            && (self.code.is_none() || self.code == other.code)
    }

    /// Whether this has all that `other` declares, which it serves.
    pub fn is_all_of(&self, other: &Self) -> bool {
        self.modules.len() == other.modules.len() && self.code == other.code
    }

    /// The common part, without modules whose wheel only one of them has.
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

    /// Whether one of the wheels has this top-level name.
    pub fn provides(&self, name: &str) -> bool {
        self.wheels.values().any(|names| names.contains(name))
    }

    /// Top-level names of the wheels that only `self` has.
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
