//! Queries with real plans, real worker loops over socket pairs, and real connections to UDFs. The
//! answers must equal those of plain DataFusion in one process, for any number of workers.

mod answers;
mod checksums;
mod data;
mod exchange;
mod faults;
mod formats;
mod functions;
mod joins;
mod losses;
mod naming;
mod overflow;
mod plans;
mod refusals;
mod runner;
mod s3;
mod skew;
mod small_s3;
mod storage;
mod udfs;
mod windows;
mod wrong_files;
