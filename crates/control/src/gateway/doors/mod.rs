//! The doors of the gateway: the socket and the network, behind which are the same routes.
//!
//! | part | file |
//! |---|---|
//! | the routes behind each door | here |
//! | who enters: identities, rights, quotas, and what is written down of it | `entry` |
//! | requests while this control is not sure that it leads | `lead` |
//! | connections of clients on other hosts | `remote_clients` |
//! | how people log in | `login` |

pub(crate) mod entry;
mod lead;
mod login;
pub(crate) mod remote_clients;

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};

use super::health;
use crate::access::oidc::Issuers;
use crate::access::redaction::hide_paths;
use crate::access::tokens::Tokens;
use crate::platform::GatewayPlatform;

/// The way by which requests come, and their identities are found out.
#[derive(Clone, Debug)]
pub(crate) enum Door {
    /// The unix socket: the user of the connection.
    Socket,
    /// The network: the key of the request, or its token.
    Network(Arc<Tokens>, Arc<Issuers>),
}

/// The routes of the table in [`snowmelt_api`], for requests that come by a door.
pub(crate) fn router(platform: Arc<GatewayPlatform>, door: Door) -> Router {
    let of_health = health::router(Arc::clone(&platform));
    let folders = platform.leases.folders().clone();
    let keys = platform.keys.clone();
    let audit = platform.audit.clone();
    let gate = entry::Gate { quotas: platform.quotas.quotas().clone(), audit: audit.clone() };
    let watch = platform.lead.as_ref().map(|lead| lead.watch.clone());
    let allowed = super::routes(platform).layer(from_fn_with_state(gate, entry::allow));
    match door {
        Door::Socket => allowed
            .layer(from_fn(entry::identify))
            .layer(from_fn_with_state(watch, lead::led))
            .merge(of_health)
            // The user of the connection is known.
            .merge(login::router(Arc::default())),
        Door::Network(tokens, issuers) => {
            let of_login = login::router(Arc::clone(&issuers));
            let doorkeeper = entry::Doorkeeper { keys, tokens, issuers, audit };
            allowed
                .layer(from_fn_with_state(doorkeeper, entry::admit))
                // Before keys are looked up: another control may have taken them back.
                .layer(from_fn_with_state(watch, lead::led))
                // Load balancers have no key, and who logs in has none yet.
                .merge(of_health)
                .merge(of_login)
                .layer(from_fn_with_state(folders, hide_paths))
        }
    }
}
