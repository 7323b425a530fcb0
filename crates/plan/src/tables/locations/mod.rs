//! Locations to files: local, in a bucket, or on a server of HTTP.
//!
//! | member | owns |
//! |---|---|
//! | `location` | all kinds of locations, and the files of several |
//! | `bucket`, `web` | objects of a bucket, a file of a server |

mod bucket;
mod location;
mod web;

pub(crate) use location::{Located, TableStorage, locate_all, looks_like_location};
pub(crate) use web::without_query;
