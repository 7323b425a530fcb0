//! The keys of registered UDFs: a record for each version, and the time when it was used last.

use snowmelt_store::{Expect, Transaction};
use snowmelt_types::Tenant;

/// The prefix of the keys of UDFs.
pub(super) const PREFIX: &str = "udfs/";

/// The prefix of the keys with the times of last use.
pub(super) const USES: &str = "udf-uses/";

/// Returns the prefix of the versions of a name. SQL does not distinguish the case of names.
pub(super) fn prefix(tenant: &Tenant, name: &str) -> String {
    format!("{PREFIX}{tenant}/{}/", name.to_ascii_lowercase())
}

/// Returns the key of a version.
pub(super) fn key(tenant: &Tenant, name: &str, version: u32) -> String {
    format!("{}{version:010}", prefix(tenant, name))
}

/// Returns the prefix of all UDFs of a tenant.
pub(super) fn all_of(tenant: &Tenant) -> String {
    format!("{PREFIX}{tenant}/")
}

/// Returns the tenant in a key.
pub(super) fn tenant(key: &str) -> Option<Tenant> {
    key.strip_prefix(PREFIX)?.split('/').next()?.parse().ok()
}

/// Returns the key with the time when a version was used last.
pub(super) fn use_key(key: &str) -> String {
    format!("{USES}{key}")
}

/// Adds the removal of a version, and of the time of its last use, to a transaction.
pub(super) fn without(transaction: Transaction, key: &str) -> Transaction {
    transaction.delete(key, Expect::Any).delete(use_key(key), Expect::Any)
}
