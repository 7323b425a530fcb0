//! The platform's API as data: what the command line and the Python package send and get over
//! HTTP on a unix socket. Pure shapes, a file for each resource; no behaviour.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET /v1/status` | | [`Status`] |
//! | `POST /v1/queries` | [`QueryRequest`] | frames: `Event`*, (`Schema` `Batch`* `Profile` `End` or `Failure`) |
//! | `POST /v1/functions` | [`FunctionSpec`] | [`FunctionSummary`] |
//! | `GET /v1/udfs` | | list of [`UdfSummary`] |
//! | `POST /v1/udfs` | [`RegisterRequest`] | list of [`UdfSummary`]: what the code defines |
//! | `GET /v1/udfs/{name}` | | [`UdfSummary`] |
//! | `DELETE /v1/udfs/{name}` | | 204 |
//! | `POST /v1/files` | [`FilesRequest`] | [`MissingFiles`]: the contents that have to be sent |
//! | `POST /v1/files/{digest}` | the bytes of a file of UDFs | 204 |
//! | `GET /v1/leases`, `upgrade: snowmelt` | | 101, then the frames of a lease: [`LeaseRequest`], [`Leased`], [`Returned`] |
//! | `POST /v1/packages` | [`PackRequest`] | [`Packed`]: a code package of the platform's machine |
//! | `POST /v1/wheels/{file name}` | the wheel itself | [`Wheel`] |
//! | `GET /v1/functions` | | list of [`FunctionSummary`] |
//! | `GET /v1/functions/{name}` | | [`FunctionSummary`] |
//! | `DELETE /v1/functions/{name}` | | 204 |
//! | `POST /v1/functions/{name}/invocations` | [`InvokeRequest`] | [`Invocation`] (202 if asynchronous), or [`FailedCall`] |
//! | `POST /v1/functions/{name}/batches` | [`BatchRequest`] | list of [`Invocation`], in order |
//! | `GET /v1/invocations/{id}` | | [`Invocation`] |
//! | `GET /v1/functions/{name}/logs?invocation=&tail=` | | list of [`LogEntry`] |
//! | `POST /v1/bursts` | [`BurstRequest`] | [`BurstAnswer`] ([`BurstStatus`], 202, if asynchronous) |
//! | `POST /v1/functions/{name}/bursts` | [`BurstCalls`] | the same |
//! | `GET /v1/bursts` | | list of [`BurstStatus`] |
//! | `GET /v1/bursts/{job}` | | [`BurstStatus`] |
//! | `GET /v1/bursts/{job}/answer` | | [`BurstAnswer`], once the burst has ended |
//! | `DELETE /v1/bursts/{job}` | | 204: the burst is ended, or its outcome forgotten |
//! | `GET /v1/images` | | list of [`ImageSummary`] |
//! | `GET /v1/images/key` | | [`PlatformKey`] |
//! | `POST /v1/images/details` | [`ImageRequest`] | [`ImageDetail`] |
//! | `POST /v1/images/conversions` | [`ConversionRequest`], and layers that are requested | lines: [`ImageEvent`] |
//! | `POST /v1/images/pulls` | [`PullRequest`] | the same |
//! | `POST /v1/images/pushes` | [`PushRequest`] | the same |
//! | `POST /v1/images/prefetches` | [`WarmRequest`] | the same |
//! | `POST /v1/images/verifications` | [`ImageRequest`] | the same |
//! | `POST /v1/images/comparisons` | [`DifferenceRequest`] | the same |
//! | `POST /v1/images/prunings` | [`PruneRequest`] | [`Pruned`]; for operators |
//! | `DELETE /v1/images/{image}` | | 204: the name is removed; for operators |
//! | `GET /v1/hosts` | | list of [`HostSummary`] |
//! | `POST /v1/hosts/{host}/drain` | | 204: the host gets no new work |
//! | `DELETE /v1/hosts/{host}/drain` | | 204: the host gets new work again |
//! | `DELETE /v1/hosts/{host}` | | 204: the host is refused from now on |
//! | `POST /v1/join-tokens` | [`JoinTokenRequest`] | 201 with [`JoinTokenMade`]: one host may join |
//! | `GET /v1/trees?of=` | | list of [`ImageTree`] |
//! | `GET /v1/networks` | | list of [`NetworkSummary`]: jobs with a network now |
//! | `GET /v1/networks/{job}` | | [`NetworkDetail`] |
//! | `POST /v1/networks/{job}/trace` | [`TraceRequest`] | [`Trace`] |
//! | `POST /v1/keys` | [`KeyRequest`] | [`MadeKey`] (201), with the text of the key |
//! | `GET /v1/keys` | | list of [`KeySummary`]: of the tenant, for operators of all |
//! | `DELETE /v1/keys/{id}` | | 204: the key and what it runs end |
//! | `POST /v1/keys/{id}/rotations` | [`KeyRotation`], or nothing | [`MadeKey`] (201); the old key ends later |
//! | `GET /v1/quotas` | | list of [`QuotaSummary`]: of the tenant, for operators of all |
//! | `POST /v1/quotas` | [`QuotaRequest`] | [`QuotaSummary`]; for operators |
//! | `DELETE /v1/quotas` | | 204: the tenant has the defaults again; for operators |
//! | `GET /v1/login` | | [`LoginOffer`]: where people log in; needs no key |
//! | `GET /v1/figures` | | [`Figures`] |
//! | `GET /healthz` | | `ok`, as text |
//! | `GET /readyz` | | `ready`, or 503 with why not |
//! | `GET /metrics` | | the figures in the text format of Prometheus |
//! | `GET /openapi.json` | | this table as an OpenAPI document |
//! | `POST /v1/backups` | | [`Backup`]: a copy of the state; for operators |
//! | `POST /v1/prunings` | [`PlatformPruneRequest`] | list of [`PrunedPart`]: what nothing uses is removed |
//! | `POST /v1/shutdown` | [`ShutdownRequest`], or nothing | 202 |
//!
//! The header [`TENANT_HEADER`] names the tenant; functions, calls and logs of other
//! tenants are not visible.
//! Errors are `ErrorReport` objects with a 4xx or 5xx status, as problem+json (RFC 9457).
//! A client that closes the connection cancels its query, and its work on images. A burst is an object of its own: it goes on
//! for `claim_within_ms` after the last client that waited for it, and another one may wait for it.
//!
//! At the address for hosts, with the token of the cluster:
//!
//! | request | body | answer |
//! |---|---|---|
//! | `POST /v1/join` | join token, name, public key | certificate of a new host |
//! | `POST /v1/hosts/{name}/certificate` | public key | another certificate of the host |
//! | `GET /v1/clock` | | the clock of control, for another one |
//! | `GET /v1/clients` | the connection of a client, from a control that stands by | HTTP of the client |
//! | `POST /v1/hosts` | [`HostJoin`] | removed hosts; a host repeats the request each second |
//! | `DELETE /v1/hosts/{name}` | | 204 |
//!
//! Rooms use those above them in this table only:
//!
//! | room | owns |
//! |---|---|
//! | `files` | files of UDFs |
//! | `functions` | deployed functions, their calls and bursts |
//! | `queries` | queries, their profiles and costs |
//! | `udfs` | registered UDFs |
//! | `platform` | the server, hosts, trees, networks of jobs, figures |
//! | `leases` | leases of instances |
//! | `images` | block images |
//! | `openapi` | the API as an OpenAPI document |
//!
//! Boundary: this crate does not know how anything is run. It depends on no crate that does.

mod files;
mod functions;
mod images;
mod leases;
pub mod openapi;
mod platform;
mod queries;
mod udfs;

pub use files::{
    FileRef, FileRefs, FilesRequest, MAX_FILE_BYTES, MAX_FILES, MissingFiles, check_file_name,
    check_files, is_file_digest,
};
pub use functions::{
    Answer, AnswerGuard, BatchRequest, BurstAnswer, BurstCalls, BurstPart, BurstRequest, BurstRoom,
    BurstState, BurstStatus, CallMode, ColdKind, ColdReason, FailedCall, FunctionOptions,
    FunctionSpec, FunctionSummary, Invocation, InvocationState, InvokeRequest, LogEntry,
    NetworkRequest, PackRequest, Packed, RESULT_KEPT_MS, Runtime, Wheel, no_code,
};
pub use images::{
    ClientImage, ConversionRequest, ConvertedImage, DamagedBlock, DifferenceRequest, FetchedBlocks,
    ImageBlob, ImageDetail, ImageDifference, ImageEvent, ImagePlace, ImageRequest, ImageSource,
    ImageSummary, OriginalManifest, PartAmount, PathChange, PlatformKey, PruneRequest, Pruned,
    PullRequest, PulledImage, PushRequest, PushedImage, RegistryAccess, RegistryLogin, SharedParts,
    VerifiedImage, WarmRequest, WarmedImage,
};
pub use leases::{LeaseOf, LeaseRequest, Leased, Returned};
pub use platform::{
    Backup, CallFigures, CertificateStatus, Figures, HostFacts, HostJoin, HostState, HostSummary,
    ImageBytes, ImageTree, ImportFigures, InstallFigures, JoinTokenMade, JoinTokenRequest,
    KeyRequest, KeyRotation, KeySummary, LedgerFigures, LoginIssuer, LoginOffer, MadeKey,
    NamedLimit, NetworkDetail, NetworkPart, NetworkSummary, NodeFigures, PartNetwork,
    PlatformPruneRequest, PoolFigures, PoolStatus, PrunedPart, QuotaHolder, QuotaKind, QuotaLimit,
    QuotaRequest, QuotaSummary, QuotaUse, START_BOUNDS_US, ShutdownRequest, SpawnerHealth, Start,
    StartFigures, Status, StripePlace, TokenKind, Trace, TracePoint, TraceRequest, TraceStep,
    TraceTo, TreeHost, UseFigures, ZygoteFigures,
};
pub use queries::{
    Bill, Cost, DiscardedAttempt, Event, Finding, Lane, LargestPartition, Phase, PhaseSpan,
    PriceList, Profile, Progress, QueryOptions, QueryRequest, StageProfile, StoreRequests, Totals,
    UdfSource,
};
pub use udfs::{RegisterRequest, UdfLogEntry, UdfSummary};

/// The header with the tenant of a request. Default: the tenant of the user of the connection.
pub const TENANT_HEADER: &str = "snowmelt-tenant";
