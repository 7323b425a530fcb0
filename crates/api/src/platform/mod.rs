//! The platform itself, and its hosts.
//!
//! | member | shapes of |
//! |---|---|
//! | `status` | the status, the figures and the end of a server |
//! | `figures` | figures of a host |
//! | `hosts` | hosts of a cluster |
//! | `keys` | keys of clients on other hosts |
//! | `quotas` | quotas of tenants |
//! | `login` | how people log in |
//! | `trees` | trees of hosts through which images spread |
//! | `networks` | networks of jobs |

mod figures;
mod hosts;
mod keys;
mod login;
mod networks;
mod quotas;
mod status;
mod trees;

pub use figures::{
    ImportFigures, InstallFigures, LedgerFigures, NodeFigures, PoolFigures, START_BOUNDS_US, Start,
    StartFigures, UseFigures, ZygoteFigures,
};
pub use hosts::{
    HostFacts, HostJoin, HostState, HostSummary, JoinTokenMade, JoinTokenRequest, PoolStatus,
};
pub use keys::{KeyRequest, KeyRotation, KeySummary, MadeKey};
pub use login::{LoginIssuer, LoginOffer, TokenKind};
pub use networks::{
    NetworkDetail, NetworkPart, NetworkSummary, PartNetwork, Trace, TracePoint, TraceRequest,
    TraceStep, TraceTo,
};
pub use quotas::{
    NamedLimit, QuotaHolder, QuotaKind, QuotaLimit, QuotaRequest, QuotaSummary, QuotaUse,
};
pub use status::{
    Backup, CallFigures, CertificateStatus, Figures, PlatformPruneRequest, PrunedPart,
    ShutdownRequest, SpawnerHealth, Status,
};
pub use trees::{ImageBytes, ImageTree, StripePlace, TreeHost};
