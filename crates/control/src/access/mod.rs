//! Access to a platform: who asks, what that user may do and open, and what a client is not shown.
//!
//! | part | file |
//! |---|---|
//! | the user, the tenant, the role and the names of a request | `identity` |
//! | the note of what a request does, for the audit | `audited` |
//! | the tenant that a request names | `tenant_header` |
//! | the only user of the server of an ordinary user | `only_user` |
//! | the right that each route needs, and from where it is reached | `routes` |
//! | what code may name that comes over the network | `remote_code` |
//! | the text of keys, and how long a key lasts | `key` |
//! | tokens of clients on other hosts, in a file | `tokens` |
//! | tokens of issuers, and what their claims give | `oidc` |
//! | the certificate that clients on other hosts are shown, by files or by orders | `certificates` |
//! | the version of a file that is read again when it changes | `file_version` |
//! | how much each tenant may use | `quotas` |
//! | modes of the state folder, its files and the socket | `permissions` |
//! | secrets of functions, read where references lead | `secrets` |
//! | removal of paths from errors | `redaction` |
//!
//! Invariant: the rights of a request come from its connection and from files of the platform. What
//! a request says of its tenant is checked against them, and never adds a right.

mod audited;
pub mod certificates;
pub(crate) mod file_version;
pub(crate) mod identity;
pub(crate) mod key;
pub mod oidc;
mod only_user;
pub mod permissions;
pub mod quotas;
pub(crate) mod redaction;
pub(crate) mod remote_code;
pub(crate) mod routes;
pub(crate) mod secrets;
pub(crate) mod tenant_header;
pub mod tokens;
