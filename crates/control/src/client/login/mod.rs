//! Logins of people at issuers of tokens, as the client has them.
//!
//! | part | file |
//! |---|---|
//! | platforms by name, and how each is used | `contexts` |
//! | the flow in which a person approves a login on any device | `device` |
//! | requests to the issuer of a login | `issuer_client` |
//! | tokens that are kept, and renewed before they end | `store` |
//! | answers of an issuer's token endpoint | `token_answer` |
//! | files that only their user may read | `private_file` |
//!
//! Boundary: the server never sees a refresh token. Invariant: tokens are in files with the mode 0600
//! and in no message.

pub mod contexts;
mod device;
mod issuer_client;
mod private_file;
mod store;
mod token_answer;

pub use device::{DeviceCode, DeviceLogin};
pub use store::{LoginStore, SavedLogin};
