//! `snowmelt node`: this machine as a host of a cluster, until it is stopped.

use snowmelt_control::server::member::{ClusterMember, Membership};
use tokio_util::sync::CancellationToken;

use crate::args::NodeArgs;
use crate::config::{Config, cluster};
use crate::platform;
use crate::server::spans;
use crate::terminal::{CommandFailure, CommandOutcome, Printer, Signals};

/// Runs this machine as a host of a cluster until it is stopped.
///
/// # Errors
/// `SM-0704` if control refuses the host, `SM-0716` to `SM-0719` for its join token and its name, `SM-0110` for the address.
pub fn run(args: &NodeArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let membership = Membership {
        name: cluster::name(config)?,
        address: args.address,
        controls: args.control.clone(),
        proof: cluster::of_member(config, args.join.as_deref())?,
    };
    crate::server::set_umask();
    let controls: Vec<_> = membership.controls.iter().map(ToString::to_string).collect();
    let joined = format!("{} joined the cluster of {}", membership.name, controls.join(", "));
    let member = ClusterMember::prepare(platform::node_settings(config)?, membership)?;
    let runtime = platform::server_runtime()?;
    let spans = spans::start();
    let served = runtime.block_on(async {
        let signals = Signals::listen(printer)?;
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        let serving = member.serve(shutdown.clone(), move || printer.note(&joined));
        let watching = async {
            tokio::select! {
                () = signals.token().cancelled() => {}
                () = shutdown.cancelled() => {}
            }
            signals.waiting_for("the sandboxes to end");
            stop.cancel();
        };
        let (served, ()) = tokio::join!(serving, watching);
        served
    });
    runtime.shutdown_background();
    spans::end(spans);
    served.map(|()| 0).map_err(CommandFailure::from)
}
