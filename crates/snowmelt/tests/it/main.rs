//! Tests of the real binary: help, mistakes, configuration, and (in `platform`) queries, functions
//! and servers with real sandboxes.

mod configuration;
mod help;
mod platform;
mod run;
mod simulate;
mod usage;
