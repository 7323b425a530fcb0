//! Job networks over real hosts, each a network namespace with an address on a common bridge.
//! They need root; without it they say that they were skipped.

mod egress;
mod flood;
mod function;
mod harness;
mod hold;
mod kill;
mod life;
mod make;
mod overlay;
