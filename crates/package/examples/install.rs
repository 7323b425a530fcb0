//! Installs packages into a store and prints each step with its time: `install STORE REQUIREMENT…`.
//! With `--alone` before the store, also creates the subset of each single wheel.

use std::collections::BTreeSet;
use std::error::Error;
use std::time::{Duration, Instant};

use snowmelt_package::{Environment, InstallProgress, Installer, Python};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let alone = arguments.first().is_some_and(|first| first == "--alone");
    arguments.drain(..usize::from(alone));
    let (store, requirements) = arguments.split_first().ok_or("name a folder for the store")?;
    let installer = Installer::new(store.into(), Python::discover(None, store.as_ref())?)?;
    let start = Instant::now();
    let show = move |step: &InstallProgress| eprintln!("{} {step}", seconds(start.elapsed()));
    let environment = installer.environment(requirements, &show).await?;
    println!("{} {}", seconds(start.elapsed()), environment.path.display());
    if alone {
        subsets(&installer, &environment).await?;
    }
    println!("{:?}", installer.counts());
    Ok(())
}

async fn subsets(installer: &Installer, whole: &Environment) -> Result<(), Box<dyn Error>> {
    for wheel in &whole.wheels {
        let start = Instant::now();
        let part = installer.subset(whole, &BTreeSet::from([wheel.digest.clone()])).await?;
        println!("{} {} alone in {}", seconds(start.elapsed()), wheel.name, part.path.display());
    }
    Ok(())
}

fn seconds(time: Duration) -> String {
    format!("{:8.3} s", time.as_secs_f64())
}
