//! Job networks over emulated hosts, each a network namespace with an address on a common bridge.
//! They need root; without it they report that they are skipped.

mod egress;
mod enforcement;
mod enforcement_errors;
mod exhaustion;
mod flood;
mod function;
mod harness;
mod kill;
mod life;
mod make;
mod overlay;
