//! Sandboxes as they are: real namespaces, mounts and control groups. Needs root; says so and
//! passes elsewhere.

mod crash;
mod ends;
mod harness;
mod image;
mod isolation;
mod lanes;
mod limits;
mod native;
mod network;
mod old_kernel;
mod pause;
mod start;
mod tree;
mod zygote;
