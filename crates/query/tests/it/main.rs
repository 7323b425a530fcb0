//! Queries through the cut: real plans, real worker loops over socket pairs, real UDF dialogues.
//! The answers are those of plain DataFusion in one process, whatever the number of workers.

mod answers;
mod checksums;
mod data;
mod faults;
mod functions;
mod naming;
mod overflow;
mod plans;
mod refusals;
mod runner;
mod s3;
mod storage;
mod udfs;
mod windows;
