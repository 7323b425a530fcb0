//! The grammar of `snowmelt quota`.

use clap::{Args, Subcommand};
use snowmelt_api::NamedLimit;
use snowmelt_types::Tenant;

use super::{ListArgs, PlatformArgs};

pub(super) const EXAMPLES: &str = "\
Examples:
  snowmelt quota ls
  snowmelt quota set acme instances=8 memory=16GiB calls_per_second=100
  snowmelt quota reset acme";

const LS_EXAMPLES: &str = "\
Examples:
  snowmelt quota ls
  snowmelt quota ls --tenant acme
  snowmelt quota ls -o json | jq '.[].quotas[] | select(.used == .limit)'

Root sees the quotas of all tenants, or of the one that --tenant names; others see their own.";

const SET_EXAMPLES: &str = "\
Examples:
  snowmelt quota set acme instances=8 memory=16GiB cores=4
  snowmelt quota set acme calls=none                without a limit, whatever the default is
  snowmelt quota set acme calls=default             the default of the platform again

Kinds: instances, memory, cores, functions, calls, calls_per_second, queries, queries_per_second,
request_memory, gib_seconds_per_day, disk. What is not named stays as it is. A lower limit ends
nothing that runs.";

const RESET_EXAMPLES: &str = "\
Examples:
  snowmelt quota reset acme";

/// `snowmelt quota`.
#[derive(Debug, Subcommand)]
pub enum QuotaCommand {
    /// List what tenants use, and their limits
    #[command(after_help = LS_EXAMPLES)]
    Ls(ListArgs),
    /// Set limits of a tenant
    #[command(after_help = SET_EXAMPLES)]
    Set(SetQuotaArgs),
    /// Give a tenant the default limits again
    #[command(after_help = RESET_EXAMPLES)]
    Reset(ResetQuotaArgs),
}

/// `snowmelt quota set`.
#[derive(Debug, Args)]
pub struct SetQuotaArgs {
    /// The tenant
    #[arg(value_parser = str::parse::<Tenant>, value_name = "TENANT")]
    pub holder: Tenant,
    /// Limits, as instances=8
    #[arg(required = true, value_name = "KIND=LIMIT", value_parser = str::parse::<NamedLimit>)]
    pub limits: Vec<NamedLimit>,
    /// The platform of the tenant.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}

/// `snowmelt quota reset`.
#[derive(Debug, Args)]
pub struct ResetQuotaArgs {
    /// The tenant
    #[arg(value_parser = str::parse::<Tenant>, value_name = "TENANT")]
    pub holder: Tenant,
    /// The platform of the tenant.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}
