//! udf
