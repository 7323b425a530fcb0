//! Labs of real namespaces whose hosts run a program that only waits. They need root; without it
//! they say that they were skipped.

mod faults;
mod harness;
mod life;
mod links;
