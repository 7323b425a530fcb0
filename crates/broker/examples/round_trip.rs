//! Measures what it costs to ask the broker (as root): the median times of requests by round, as
//! JSON.
//!
//! ```sh
//! cargo run --release -p snowmelt-broker --example round_trip
//! ```

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, ExitCode};
use std::time::Instant;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use snowmelt_broker::{Broker, BrokerProcess, BrokerSetup};

const KILLS: usize = 20_000;
const FILE_PROCESSES: usize = 500;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("broker") {
        // It serves until the server closes its end.
        return snowmelt_broker::broker_main(|socket| drop(wait(socket.into())));
    }
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("round_trip: {error}");
            ExitCode::FAILURE
        }
    }
}

fn wait(mut socket: UnixStream) -> io::Result<usize> {
    socket.read(&mut [0])
}

fn measure() -> io::Result<()> {
    let folder = std::env::temp_dir().join(format!("sm-broker-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let measured = measure_in(&folder);
    std::fs::remove_dir_all(&folder)?;
    measured
}

fn measure_in(folder: &std::path::Path) -> io::Result<()> {
    let socket = folder.join("server.sock");
    let listener = UnixListener::bind(&socket)?;
    let program = std::env::current_exe()?;
    let setup = BrokerSetup {
        program: program.clone(),
        run_dir: folder.to_owned(),
        spawner: String::new(),
        parent_cgroup: "snowmelt-bench".to_owned(),
        socket: socket.clone(),
        user: 0,
        group: 0,
    };
    // A process that has ended and was not waited for can be killed any number of times.
    let mut ended = Command::new("true").spawn()?;
    let pid = Pid::from_child(&ended);
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let command = [program.into_os_string(), OsString::from("broker")];
    let _ended = BrokerProcess::start(&command, &setup, &[process.as_fd()])?.install()?;
    let broker = Broker::installed().ok_or(io::ErrorKind::NotFound)?;
    let client = UnixStream::connect(&socket)?;
    let accepted = listener.accept()?.0;

    let asked = each(KILLS, || broker.kill(process.as_fd()))?;
    ended.wait()?;
    let opened = each(FILE_PROCESSES, || broker.open_files(accepted.as_fd()).map(drop))?;
    drop(client);
    println!("{{\"asked_us\": {asked:?}, \"file_process_us\": {opened:?}}}");
    Ok(())
}

/// Returns the median time of each of five rounds, in microseconds.
fn each(count: usize, mut ask: impl FnMut() -> io::Result<()>) -> io::Result<Vec<f64>> {
    let mut rounds = Vec::new();
    for _ in 0..5 {
        let mut times = Vec::with_capacity(count / 5);
        for _ in 0..count / 5 {
            let begun = Instant::now();
            ask()?;
            times.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        rounds.push(times[times.len() / 2]);
    }
    Ok(rounds)
}
