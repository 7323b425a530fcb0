//! The real binary, run as a user runs it: help, mistakes, configuration, and (in `platform`)
//! queries, functions and servers with real sandboxes.

mod configuration;
mod help;
mod platform;
mod run;
mod usage;
