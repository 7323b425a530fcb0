//! The start of the program of drivers and workers, which each cold task pays for (decision 073).

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_snowmelt-query");

/// The type of an ELF file that is loaded at a fixed address.
const ET_EXEC: u16 = 2;

#[test]
fn the_program_is_linked_at_a_fixed_address() {
    let header = fs::read(PROGRAM).unwrap();
    assert_eq!(&header[..4], b"\x7fELF");
    assert_eq!(u16::from_le_bytes([header[16], header[17]]), ET_EXEC);
}

/// A process that is ended with the test.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_worker_without_a_task_has_no_huge_pages() {
    let folder = tempfile::tempdir().unwrap();
    let listener = OwnedFd::from(UnixListener::bind(folder.path().join("worker")).unwrap());
    let mut command = Command::new(PROGRAM);
    command.env("SNOWMELT_CHANNEL_FD", "0").stdin(listener);
    let mut worker = Worker(command.spawn().unwrap());
    let status = format!("/proc/{}/status", worker.0.id());
    let end = Instant::now() + Duration::from_secs(60);
    while !fs::read_to_string(&status).unwrap().contains("THP_enabled:\t0") {
        assert_eq!(worker.0.try_wait().unwrap(), None, "it waits for a task");
        assert!(Instant::now() < end, "{}", fs::read_to_string(&status).unwrap());
        std::thread::sleep(Duration::from_millis(5));
    }
}
