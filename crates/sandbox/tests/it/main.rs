//! Sandboxes as they are: real namespaces, mounts and control groups. Needs root; says so and
//! passes elsewhere.

mod crash;
mod ends;
mod harness;
mod isolation;
mod start;
mod zygote;
