//! A simulation from its setting to its outcome.

use fastrand::Rng;

use super::failures::BurstFailures;
use super::outcome::SimulationOutcome;
use super::placement::{Placement, add_slots, sources};
use super::report::BurstReport;
use crate::error::Error;
use crate::model::{Engine, ImageBlocks, Local, Network};
use crate::setting::Setting;
use crate::strategy::Strategy;

/// Runs a simulation of one burst.
///
/// # Errors
/// Settings that contradict each other, and invariants that do not hold.
pub fn simulate(setting: &Setting, strategy: Strategy) -> Result<SimulationOutcome, Error> {
    run(setting, strategy, setting.kill == 0)
}

/// Runs a simulation, with equal hosts in groups if `grouped`, else one by one.
pub(crate) fn run(
    setting: &Setting,
    strategy: Strategy,
    grouped: bool,
) -> Result<SimulationOutcome, Error> {
    let parts = strategy.parts(setting);
    setting.check(setting.functions.saturating_mul(parts))?;
    let mut random = Rng::with_seed(setting.seed);
    let placements = Placement::of_all(setting, &mut random);
    let mut sources = sources(setting, strategy, &placements, &mut random);
    // Parts of equal size stand for layers, whose sizes differ.
    let bytes = setting.image.div_ceil(u64::from(parts));
    let blocks = ImageBlocks::new(bytes, setting.block.min(bytes));
    let mut engine = Engine::new(blocks);
    let grouped = grouped && sources.count() == 1;
    let network = Network::build(setting, &sources, grouped, &mut engine);
    let start = setting.start.div_ceil(u64::from(parts));
    let mut local = Local::new(blocks, start);
    add_slots(setting, &placements, parts, &network, &mut local);
    let run =
        BurstFailures::run(setting, &mut random, &mut sources, &network, &mut engine, &mut local);
    let ended = run.and_then(|failures| check(&network, &engine, &local).map(|()| failures));
    let failures = ended.map_err(|what| Error::Invariant {
        what,
        nanoseconds: engine.now(),
        seed: setting.seed,
    })?;
    let report = BurstReport { setting, strategy, sources, network, engine, local, failures };
    Ok(report.outcome())
}

/// Checks that every host that did not fail has every byte once.
fn check(network: &Network, engine: &Engine, local: &Local) -> Result<(), String> {
    let streams = 0..network.receivers.len() as u32;
    streams.filter(|&stream| engine.alive(stream)).try_for_each(|stream| local.check(stream))
}
