//! Queries with real plans, real worker loops over socket pairs, and real connections to UDFs. The
//! answers must equal those of plain DataFusion in one process, for any number of workers.

mod aggregates;
mod answers;
mod calls_together;
mod checksums;
mod data;
mod early_ends;
mod exact_arguments;
mod exchange;
mod faults;
mod formats;
mod functions;
mod gangs;
mod join_memory;
mod joins;
mod losses;
mod many_files;
mod meaning;
mod naming;
mod overflow;
mod plans;
mod refusals;
mod runner;
mod s3;
mod saved_calls;
mod scans;
mod shared;
mod skew;
mod small_s3;
mod sorts;
mod storage;
mod streams;
mod table_functions;
mod udfs;
mod windows;
mod wrong_files;
