//! Labs of real namespaces whose hosts run a program that only sleeps. They need root; without it
//! they report that they are skipped.

mod faults;
mod harness;
mod life;
mod links;
mod services;
