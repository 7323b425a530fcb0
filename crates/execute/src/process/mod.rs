//! The process of a worker or driver: its processor time, and panics in it.

mod cpu;
pub mod panics;

pub use cpu::process_cpu;
pub use panics::catch_panic;
