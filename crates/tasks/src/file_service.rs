//! Listing and opening of files by a process with the rights of a user, for a server that has given up
//! root (`snowmelt_broker`).
//!
//! Invariant: neither side believes the other. The process has the rights of its user, so that no
//! request takes more than that user could; the server bounds what it reads of an answer.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use snowmelt_broker::Broker;
use snowmelt_kernel::file_user::UserConnection;
use snowmelt_kernel::packet;
use snowmelt_node::files::regular_file;
use snowmelt_types::{ErrorReport, Report};
use snowmelt_wire::LocalFile;

/// The most bytes of a request or an answer without a list.
const MAX_PACKET: usize = 64 << 10;
/// How long the process may take: a file system of the network may not answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The most bytes of a list of files: about a million of them.
const MAX_LIST: u64 = 256 << 20;

/// A request to the process.
#[derive(Debug, Serialize, Deserialize)]
enum FileRequest {
    /// Lists the files of a location, which is relative to a folder.
    Find(String, PathBuf),
    /// Opens a regular file.
    Open(PathBuf),
}

/// The answer of the process: a file comes with it, or this error.
type FileAnswer = Result<(), FileFailure>;

#[derive(Debug, Serialize, Deserialize)]
struct FileFailure {
    number: Option<i32>,
    message: String,
}

impl From<&io::Error> for FileFailure {
    fn from(error: &io::Error) -> Self {
        Self { number: error.raw_os_error(), message: error.to_string() }
    }
}

impl From<FileFailure> for io::Error {
    fn from(failure: FileFailure) -> Self {
        failure.number.map_or_else(|| Self::other(failure.message), Self::from_raw_os_error)
    }
}

/// Answers the requests of a server until it closes its end, in a process that has the rights of a
/// user already.
pub fn serve_files(socket: OwnedFd) {
    let mut buffer = vec![0; MAX_PACKET];
    while let Ok(packet) = packet::receive(&socket, &mut buffer) {
        if packet.length == 0 {
            return;
        }
        let done = serde_json::from_slice(&buffer[..packet.length])
            .map_err(io::Error::other)
            .and_then(handle);
        let answer: FileAnswer = done.as_ref().map(drop).map_err(FileFailure::from);
        let Ok(answer) = serde_json::to_vec(&answer) else { return };
        let fds: Vec<_> = done.iter().map(AsFd::as_fd).collect();
        if packet::send(&socket, &answer, &fds).is_err() {
            return;
        }
    }
}

fn handle(request: FileRequest) -> io::Result<File> {
    match request {
        FileRequest::Open(path) => regular_file::open(&path),
        FileRequest::Find(location, folder) => {
            let found = snowmelt_files::find(&location, &folder).map_err(|error| error.report());
            let mut list: File = memfd_create("files", MemfdFlags::CLOEXEC)?.into();
            list.write_all(&serde_json::to_vec(&found)?)?;
            list.rewind()?;
            Ok(list)
        }
    }
}

/// A process with the rights of the user of a connection.
#[derive(Debug)]
pub(crate) struct FileProcess {
    socket: OwnedFd,
}

impl FileProcess {
    /// Starts the process. Blocks.
    ///
    /// # Errors
    /// `Unsupported` if this server has no broker, the errors of [`Broker::open_files`].
    pub fn start(connection: &UserConnection) -> io::Result<Self> {
        let broker = Broker::installed().ok_or(io::ErrorKind::Unsupported)?;
        Ok(Self { socket: broker.open_files(connection.as_fd())? })
    }

    /// Lists the files of a location. Blocks.
    pub fn find(
        &self,
        location: &str,
        folder: &Path,
    ) -> io::Result<Result<Vec<LocalFile>, ErrorReport>> {
        let list = self.ask(&FileRequest::Find(location.to_owned(), folder.to_owned()))?;
        let mut bytes = Vec::new();
        list.take(MAX_LIST).read_to_end(&mut bytes)?;
        serde_json::from_slice(&bytes).map_err(io::Error::other)
    }

    /// Opens a regular file. Blocks.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        let file = self.ask(&FileRequest::Open(path.to_owned()))?;
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
        }
    }

    fn ask(&self, request: &FileRequest) -> io::Result<File> {
        packet::send(&self.socket, &serde_json::to_vec(request)?, &[])?;
        if !packet::wait(&self.socket, ANSWER_TIMEOUT)? {
            // A late answer would be taken for that of the next request.
            rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both)?;
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut buffer = vec![0; MAX_PACKET];
        let mut packet = packet::receive(&self.socket, &mut buffer)?;
        if packet.length == 0 {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the process has ended"));
        }
        let answer: FileAnswer =
            serde_json::from_slice(&buffer[..packet.length]).map_err(io::Error::other)?;
        answer?;
        packet.fds.pop().map(File::from).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (FileProcess, std::thread::JoinHandle<()>) {
        let (ours, theirs) = packet::pair().unwrap();
        (FileProcess { socket: ours }, std::thread::spawn(|| serve_files(theirs)))
    }

    #[test]
    fn files_are_listed_and_opened_and_errors_keep_their_number() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.csv"), "x\n1\n").unwrap();
        let (process, served) = pair();
        let found = process.find("*.csv", folder.path()).unwrap().unwrap();
        assert_eq!(found.len(), 1);
        let mut text = String::new();
        process.open(Path::new(&found[0].path)).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "x\n1\n");
        let missing = process.open(Path::new("/none/such")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(process.open(folder.path()).is_err());
        assert!(process.find("none*", folder.path()).unwrap().is_err());
        drop(process);
        served.join().unwrap();
    }

    #[test]
    fn an_answer_that_is_none_is_an_error() {
        let (ours, theirs) = packet::pair().unwrap();
        let process = FileProcess { socket: ours };
        let liar = std::thread::spawn(move || {
            for answer in [&b"{"[..], b"{\"Ok\":null}"] {
                packet::receive(&theirs, &mut [0; 1024]).unwrap();
                packet::send(&theirs, answer, &[]).unwrap();
            }
        });
        assert!(process.open(Path::new("/etc/hosts")).is_err());
        assert!(process.open(Path::new("/etc/hosts")).is_err());
        liar.join().unwrap();
        assert!(process.open(Path::new("/etc/hosts")).is_err());
    }
}
