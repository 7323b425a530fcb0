//! The commands with which an operator looks after a platform.
//!
//! | member | command |
//! |---|---|
//! | `audit` | `snowmelt audit`: the check of the files of the audit |
//! | `backup` | `snowmelt backup`: copies of the state, and their restore |
//! | `disk_use` | `snowmelt du`: the disk use of the folders of the state |
//! | `pruning` | `snowmelt prune`: removal of what nothing uses |
//! | `doctor` | `snowmelt doctor`: the requirements of the machine |
//! | `store` | the row of `snowmelt doctor` about the store of records |
//! | `store_copy` | `snowmelt store copy`: records to or from etcd |
//! | `top` | `snowmelt top`: instances, caches and zygotes, as they change |

pub mod audit;
pub mod backup;
pub mod disk_use;
pub mod doctor;
pub mod pruning;
mod store;
pub mod store_copy;
pub mod top;
