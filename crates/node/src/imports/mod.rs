//! The import cache (SOCK 4.2): a tree of zygotes for each tenant and interpreter, which grows
//! from use.
//!
//! [`model`] is plain data without a process or a clock: `tree` says which zygote may be forked for
//! which function, `demand` which imports are requested and how often, `plan` which zygotes are
//! worth their memory. [`cache`] looks up the running zygotes and forks them, [`growth`] makes them
//! and [`maintenance`] releases them; [`admission`] shares the slots of first zygotes among
//! tenants.
//!
//! Invariant: a zygote serves only a function of the same tenant that declares everything that the
//! zygote could see or has imported.

mod admission;
mod cache;
mod figures;
mod first_start;
mod growth;
mod maintenance;
mod member;
mod model;
mod slot;
mod start;
mod state;

pub(crate) use admission::Admitted;
pub(crate) use cache::ImportCache;
pub(crate) use member::{Child, ImportCoverage, ZygoteMember};
pub(crate) use model::want::{Set, Want, ZygoteScope};
pub(crate) use start::{CodeBinds, Packages, ZygoteSource};
pub(crate) use state::IdleChildren;
