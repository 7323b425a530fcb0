//! Exchanges by objects on S3.
//!
//! | file | owns |
//! |---|---|
//! | `names` | the names of the objects |
//! | `stores` | their buckets: reads and writes, counted |
//! | `target`, `source` | the output of a task, written and read |
//! | `missing_objects` | objects that are not found when they are read |
//! | `cleaner` | the removal of objects |
//! | `model` | the requests of an exchange before it runs |

pub(super) mod cleaner;
mod missing_objects;
pub(super) mod model;
pub(super) mod names;
pub(super) mod source;
pub(super) mod stores;
pub(super) mod target;
