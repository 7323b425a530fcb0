//! The import cache (SOCK 4.2): a tree of zygotes for each tenant and interpreter, which grows
//! from use.
//!
//! | member | job |
//! |---|---|
//! | `model` | plain data without a process: which zygote may be forked, which is worth its memory |
//! | `state` | the state that the other members share |
//! | `cache` | looks up the running zygotes, and forks them |
//! | `growth` | makes zygotes, and room for them |
//! | `zygote_start` | starts a zygote from an interpreter or from another zygote |
//! | `first_start` | starts a first zygote, which may have to wait |
//! | `admission` | shares the slots of first zygotes among tenants |
//! | `running_zygote` | a zygote that runs, and the count of its children |
//! | `zygote_process` | the process of a zygote in the tree |
//! | `maintenance` | releases zygotes that failed, ended or are not forked |
//! | `figures` | metrics |
//!
//! Invariant: a zygote serves only a function of the same tenant that declares everything that the
//! zygote could see or has imported.

mod admission;
mod cache;
mod figures;
mod first_start;
mod growth;
mod maintenance;
mod model;
mod running_zygote;
mod state;
mod zygote_process;
mod zygote_start;

pub(crate) use admission::Admitted;
pub(crate) use cache::ImportCache;
pub(crate) use model::want::{Set, Want, ZygoteScope};
pub(crate) use running_zygote::{Child, ImportCoverage, ZygoteMember};
pub(crate) use state::IdleChildren;
pub(crate) use zygote_start::{CodeBinds, Packages, ZygoteSource};
