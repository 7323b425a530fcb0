//! Tests with real archives, made by the system's `tar`, and real mounts by the kernel.

mod blocks;
mod build;
mod cache;
mod compare;
mod convert;
mod crashes;
mod faults;
mod full_disk;
mod image_contents;
mod lazy_mounts;
mod malicious_images;
mod mounts;
mod peer_hosts;
mod peers;
mod prefetch;
mod profiles;
mod raw_files;
mod registry;
mod replay;
mod server;
mod sources;
mod stripes;
mod takeover;
mod tree;
