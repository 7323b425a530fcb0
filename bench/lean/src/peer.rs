//! No-op containers of another runtime, one process of its command line each.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use snowmelt_bench_lean::samples::{Bounds, Sample, Series, Turns};

#[derive(Args)]
pub struct Options {
    /// How many at once; one row each.
    #[arg(long, value_delimiter = ',', default_value = "1,2,10")]
    concurrency: Vec<usize>,
    #[command(flatten)]
    bounds: Bounds,
    /// What runs a container in the foreground. `{id}` becomes a name that is used once, `{lane}`
    /// a number below the concurrency that only one container at a time has.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Prints a line of JSON for each concurrency.
pub fn run(options: &Options) -> Result<()> {
    // The first ones bring the program into the page cache.
    for number in 0..2 {
        sample(&options.command, &format!("sm-{}-first-{number}", std::process::id()), 0)?;
    }
    for &concurrency in &options.concurrency {
        let series = Series::begin()?;
        let samples = burst(options, concurrency)?;
        println!("{}", serde_json::to_string(&series.end(concurrency, &samples)?)?);
    }
    Ok(())
}

/// As many threads as `concurrency`, each with one container after the other.
fn burst(options: &Options, concurrency: usize) -> Result<Vec<Sample>> {
    let turns = Turns::new(options.bounds);
    let lane = |lane: usize| -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        while turns.take() {
            let id = format!("sm-{}-{concurrency}-{lane}-{}", std::process::id(), samples.len());
            samples.push(sample(&options.command, &id, lane)?);
        }
        Ok(samples)
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..concurrency).map(|n| scope.spawn(move || lane(n))).collect();
        let mut all = Vec::new();
        for lane in lanes {
            all.extend(lane.join().map_err(|_| anyhow::anyhow!("a lane panicked"))??);
        }
        Ok(all)
    })
}

fn sample(command: &[String], id: &str, lane: usize) -> Result<Sample> {
    let lane = lane.to_string();
    let mut words = command.iter().map(|word| word.replace("{id}", id).replace("{lane}", &lane));
    let program = words.next().context("a command has a program")?;
    let begun = Instant::now();
    let mut child = Command::new(&program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    let mut output = child.stdout.take().context("its output is a pipe")?;
    let read = output.read(&mut [0; 1])?;
    let first_byte = begun.elapsed();
    let status = child.wait()?;
    ensure!(read == 1 && status.success(), "{program} {id}: read {read} bytes, {status}");
    Ok(Sample { first_byte, whole: begun.elapsed() })
}
