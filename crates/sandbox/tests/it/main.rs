//! Sandboxes with real namespaces, mounts and control groups. Needs root; elsewhere the tests print
//! that they skip, and pass.

mod crash;
mod ends;
mod harness;
mod image;
mod isolation;
mod lanes;
mod limits;
mod network;
mod old_kernel;
mod pause;
mod preforked;
mod start;
mod tree;
mod zygote;
mod zygote_faults;
