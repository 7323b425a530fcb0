//! Requests to the broker, and its answers.
//!
//! A request is a packet of eight bytes, two numbers in the machine's order: the operation and its
//! argument. An answer is a packet of four bytes: 0, or the number of the error. Descriptors go with
//! both.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

/// The first packet to a broker, while the server is still root and serves nobody. Its descriptors are
/// those of processes that the broker may kill too: the spawner's first lane and init.
#[derive(Debug, Serialize, Deserialize)]
pub struct BrokerSetup {
    /// The program that the broker starts as spawner and as daemons of the node.
    pub program: PathBuf,
    /// The run directory of the server.
    pub run_dir: PathBuf,
    /// The set-up message of every spawner.
    pub spawner: String,
    /// The parent of the control groups of all sandboxes.
    pub parent_cgroup: String,
    /// The socket of the server, by whose connections users are known.
    pub socket: PathBuf,
    /// The user of the server.
    pub user: u32,
    /// The group of the server.
    pub group: u32,
}

/// The length of a request, in bytes.
pub(crate) const REQUEST_BYTES: usize = 8;

/// A request of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Starts a program of the platform, with a descriptor as its standard input. Answered with the
    /// pidfd.
    Start(StartedProgram),
    /// Starts a process that opens files as the user at the other end of a connection. The
    /// descriptors are its socket and the connection.
    OpenFiles,
    /// Kills the process of a pidfd. Not answered.
    Kill,
    /// Kills the process of a pidfd. Answered when the signal is sent.
    KillNow,
    /// Removes what a dead lane of the spawner has left.
    CleanLane(u32),
    /// Removes what a dead spawner has left.
    Clean,
}

/// A program that the broker starts with the rights of root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartedProgram {
    /// The spawner of sandboxes.
    Spawner,
    /// A daemon of the node.
    Daemon(StartedDaemon),
}

/// A daemon that works for a node with rights that the node may not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartedDaemon {
    /// The daemon that mounts images.
    Images,
    /// The daemon that makes networks of jobs.
    Networks,
}

impl StartedDaemon {
    /// Returns the command that starts the daemon, by whoever does so.
    pub fn command(self, program: &Path) -> Command {
        let mut command = Command::new(program);
        // One heap for all threads, because the remains of one for each add up; and the memory of a
        // request is returned immediately.
        command.envs([("MALLOC_ARENA_MAX", "1"), ("MALLOC_MMAP_THRESHOLD_", "524289")]);
        command.args(["internal", self.name()]);
        command
    }

    fn name(self) -> &'static str {
        match self {
            Self::Images => "images",
            Self::Networks => "networks",
        }
    }
}

impl Operation {
    pub(crate) fn encode(self) -> [u8; REQUEST_BYTES] {
        let words: [u32; 2] = match self {
            Self::Start(StartedProgram::Spawner) => [1, 0],
            Self::Start(StartedProgram::Daemon(StartedDaemon::Images)) => [1, 1],
            Self::Start(StartedProgram::Daemon(StartedDaemon::Networks)) => [1, 2],
            Self::OpenFiles => [2, 0],
            Self::Kill => [3, 0],
            Self::CleanLane(lane) => [4, lane],
            Self::Clean => [5, 0],
            Self::KillNow => [6, 0],
        };
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..4].copy_from_slice(&words[0].to_ne_bytes());
        bytes[4..].copy_from_slice(&words[1].to_ne_bytes());
        bytes
    }

    /// Reads a request; `None` for one that no server sends.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (operation, argument) = bytes.split_first_chunk::<4>()?;
        let argument = u32::from_ne_bytes(argument.try_into().ok()?);
        match (u32::from_ne_bytes(*operation), argument) {
            (1, 0) => Some(Self::Start(StartedProgram::Spawner)),
            (1, 1) => Some(Self::Start(StartedProgram::Daemon(StartedDaemon::Images))),
            (1, 2) => Some(Self::Start(StartedProgram::Daemon(StartedDaemon::Networks))),
            (2, 0) => Some(Self::OpenFiles),
            (3, 0) => Some(Self::Kill),
            (4, lane) if lane < MAX_LANE => Some(Self::CleanLane(lane)),
            (5, 0) => Some(Self::Clean),
            (6, 0) => Some(Self::KillNow),
            _ => None,
        }
    }
}

/// A bound on the numbers of lanes, far above those of any spawner.
const MAX_LANE: u32 = 1024;

/// The length of an answer, in bytes.
pub(crate) const ANSWER_BYTES: usize = 4;

/// Encodes the outcome of a request.
pub(crate) fn answer(outcome: &io::Result<()>) -> [u8; ANSWER_BYTES] {
    /// `EIO`, for errors without a number.
    const OTHER: i32 = 5;
    let number = outcome.as_ref().err().map_or(0, |error| error.raw_os_error().unwrap_or(OTHER));
    number.to_ne_bytes()
}

/// Decodes the outcome of a request.
pub(crate) fn outcome(bytes: &[u8]) -> io::Result<()> {
    let number = bytes.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
    match i32::from_ne_bytes(number) {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_were_sent_and_others_refused() {
        let all = [
            Operation::Start(StartedProgram::Spawner),
            Operation::Start(StartedProgram::Daemon(StartedDaemon::Images)),
            Operation::Start(StartedProgram::Daemon(StartedDaemon::Networks)),
            Operation::OpenFiles,
            Operation::Kill,
            Operation::CleanLane(3),
            Operation::Clean,
            Operation::KillNow,
        ];
        for operation in all {
            assert_eq!(Operation::decode(&operation.encode()), Some(operation));
        }
        for length in (0..64).filter(|length| *length != REQUEST_BYTES) {
            assert_eq!(Operation::decode(&vec![1; length]), None, "{length} bytes");
        }
        for words in
            [[0u32, 0], [1, 3], [2, 1], [3, 7], [4, MAX_LANE], [5, 1], [7, 0], [u32::MAX; 2]]
        {
            let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
            assert_eq!(Operation::decode(&bytes), None, "{words:?}");
        }
    }

    #[test]
    fn outcomes_keep_the_number_of_their_error() {
        assert!(outcome(&answer(&Ok(()))).is_ok());
        let refused = Err(io::Error::from_raw_os_error(1));
        assert_eq!(outcome(&answer(&refused)).unwrap_err().raw_os_error(), Some(1));
        assert!(outcome(&answer(&Err(io::Error::other("?")))).is_err());
        assert!(outcome(&[]).is_err() && outcome(&[0; 5]).is_err());
    }
}
