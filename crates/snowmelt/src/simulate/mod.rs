//! `snowmelt simulate`: bursts and traces on thousands of hosts in simulated time.

mod trace_file;
mod traces;

use serde::Serialize;
use snowmelt_simulate::{
    ASSUMPTIONS, Repair, Setting, SimulationOutcome as Simulated, Strategy, simulate,
};
use snowmelt_types::{Code, ErrorReport, Report};

use crate::args::{KillSpec, RepairWay, SimulateArgs, Way};
use crate::config::Config;
use crate::output::list;
use crate::terminal::{CommandOutcome, Printer};

/// The output of `-o json`.
#[derive(Serialize)]
struct SimulationOutput {
    simulated: bool,
    assumptions: [&'static str; ASSUMPTIONS.len()],
    outcomes: Vec<Simulated>,
}

const HEADINGS: [&str; 10] = [
    "strategy",
    ">hosts",
    ">containers",
    ">profile here",
    ">first start",
    ">half",
    ">last start",
    ">image here",
    ">registry sent",
    ">levels",
];
const FAILURE_HEADINGS: [&str; 2] = [">lost hosts", ">moves"];

/// Runs the simulation of each strategy.
///
/// # Errors
/// `SM-0110` for settings that contradict each other, `SM-0106` for a trace that is not as
/// expected, `SM-0901` for a broken invariant, with the seed that replays it.
pub fn run(args: &SimulateArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let replayed = &args.calls.replayed;
    match replayed.trace.is_some() || replayed.synthetic.is_some() {
        true => traces::run(args, config, printer),
        false => burst(args, printer),
    }
}

fn burst(args: &SimulateArgs, printer: Printer) -> CommandOutcome {
    let setting = Setting { kill: killed(args)?, ..setting(args) };
    let all = [Way::Tree, Way::Registry, Way::Layers, Way::Stripes, Way::Pull];
    let ways = if args.strategy.is_empty() { &all[..] } else { &args.strategy };
    let simulated = |&way: &Way| simulate(&setting, strategy(way));
    let outcomes: Result<Vec<_>, _> = ways.iter().map(simulated).collect();
    let outcomes = outcomes.map_err(|error| error.report())?;
    let mut headings = HEADINGS.to_vec();
    if setting.kill > 0 {
        headings.extend(FAILURE_HEADINGS);
    }
    let cells = |outcome| row(outcome).into_iter().take(headings.len()).collect();
    let rows: Vec<Vec<_>> = outcomes.iter().map(cells).collect();
    let answer = SimulationOutput { simulated: true, assumptions: ASSUMPTIONS, outcomes };
    list::print(args.output, &headings, &rows, &answer)?;
    printer.note(&format!(
        "simulated, not measured: seconds until the last host or container unless they say otherwise, seed {}",
        args.seed
    ));
    Ok(0)
}

/// The number of hosts that fail in a burst, at moments of their own.
fn killed(args: &SimulateArgs) -> Result<u32, ErrorReport> {
    match args.kill.as_slice() {
        [] => Ok(0),
        [KillSpec { hosts, at: None }] => Ok(*hosts),
        _ => {
            let message = "a burst has one number of hosts that fail, at random moments";
            let hint = "write --kill 20, or replay a trace (--trace, --synthetic)";
            Err(ErrorReport::new(Code::OPTION, message).hint(hint))
        }
    }
}

fn row(outcome: &Simulated) -> Vec<String> {
    let seconds = |seconds: f64| format!("{seconds:.3}");
    vec![
        name(outcome.strategy).to_owned(),
        outcome.hosts.to_string(),
        outcome.containers.to_string(),
        seconds(outcome.arrived.last),
        seconds(outcome.started.first),
        seconds(outcome.started.half),
        seconds(outcome.started.last),
        seconds(outcome.whole.last),
        size(outcome.registry_bytes as f64 / 1e6),
        outcome.levels.to_string(),
        outcome.killed.to_string(),
        outcome.moves.to_string(),
    ]
}

fn name(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Tree => "tree",
        Strategy::Registry => "registry",
        Strategy::Layers => "layers",
        Strategy::Stripes => "stripes",
        Strategy::Pull => "pull",
    }
}

fn size(megabytes: f64) -> String {
    match megabytes {
        0.0..10_000.0 => format!("{megabytes:.1} MB"),
        _ => format!("{:.1} GB", megabytes / 1000.0),
    }
}

fn setting(args: &SimulateArgs) -> Setting {
    let links = &args.links;
    let images = &args.images;
    let local = &args.local;
    Setting {
        hosts: args.hosts,
        containers: args.containers.unwrap_or(args.hosts.saturating_mul(args.functions)),
        functions: args.functions,
        per_host: args.per_host,
        link: links.link.bytes(),
        registry_link: links.registry_link.bytes(),
        delay: links.delay,
        image: images.image_size.bytes(),
        start: images.start_bytes.bytes(),
        on_demand: args.on_demand.bytes(),
        block: images.block_size.bytes(),
        layers: images.layers,
        fanout: links.fanout,
        repair: match links.repair {
            RepairWay::Refill => Repair::Refill,
            RepairWay::Rotate => Repair::Rotate,
        },
        read_rate: local.read_rate.bytes(),
        tail: local.tail,
        fork: local.fork,
        cores: local.cores,
        unpack_rate: local.unpack_rate.bytes(),
        kill: 0,
        detect: args.detect,
        seed: args.seed,
    }
}

fn strategy(way: Way) -> Strategy {
    match way {
        Way::Tree => Strategy::Tree,
        Way::Registry => Strategy::Registry,
        Way::Layers => Strategy::Layers,
        Way::Stripes => Strategy::Stripes,
        Way::Pull => Strategy::Pull,
    }
}
