//! Copies of outputs of other hosts that several tasks read whole, such as the build side of a
//! join: a host fetches each once for all of its tasks, and passes it on while it arrives.
//!
//! Invariant: the bytes that a copy says to have are in its file. A copy that cannot be made is not
//! used: a task that needs the output reads it from the host that made it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use snowmelt_rpc::{FromHost, HostStream};
use snowmelt_types::ErrorReport;
use snowmelt_wire::ReadRange;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::messages::ReadOutputs;
use super::remote_outputs::{self, ReadError};

/// The bytes of one request.
const PIECE: u64 = 512 << 10;

/// The bytes that are requested before the first of them have arrived.
const AHEAD: u64 = 4 * PIECE;

/// How long a host may take to open the output: it may have to wait until its own copy begins, and
/// its parent's copy.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a host may take for the next piece: it may be about to read from another host instead
/// of one that was lost.
const PIECE_TIMEOUT: Duration = Duration::from_secs(15);

/// A host from which an output is copied.
pub(crate) struct CopySource {
    /// A function that opens a connection for outputs to the host.
    pub connect: Connect,
    /// The highest number that the host's own copy may have, if the host copies the output too;
    /// `None` if it made the output.
    pub copy: Option<u64>,
}

type Connect = Box<dyn FnOnce() -> BoxFuture<'static, Result<HostStream, ErrorReport>> + Send>;

/// An output of another host, as far as it has arrived.
#[derive(Debug)]
pub(crate) struct Copy {
    file: Arc<File>,
    // The sender is dropped when the copy is whole, or cannot be made.
    state: watch::Receiver<State>,
    _making: AbortOnDropHandle<()>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    size: Option<u64>,
    copied: u64,
}

impl Copy {
    /// Begins to fill a file with the output of an attempt, from the first of these hosts that has
    /// it. If one host fails in the middle, the next one continues there.
    pub fn begin(file: File, query: String, attempt: u64, sources: Vec<CopySource>) -> Self {
        let (file, (sender, state)) = (Arc::new(file), watch::channel(State::default()));
        let asked = ReadOutputs { query, attempts: vec![attempt], copy: None };
        let making = make(Arc::clone(&file), asked, sources, sender);
        Self { file, state, _making: AbortOnDropHandle::new(tokio::spawn(making)) }
    }

    /// Waits until the size of the output is known, and returns it; `None` if the copy cannot be
    /// made.
    pub async fn size(&self) -> Option<u64> {
        let mut state = self.state.clone();
        state.wait_for(|state| state.size.is_some()).await.ok()?.size
    }

    /// Waits until the first `bytes` bytes have arrived. False if they will not arrive.
    pub async fn reaches(&self, bytes: u64) -> bool {
        self.state.clone().wait_for(|state| state.copied >= bytes).await.is_ok()
    }

    /// Returns true if the copy will never be whole.
    pub fn has_failed(&self) -> bool {
        let state = *self.state.borrow();
        self.state.has_changed().is_err() && state.size != Some(state.copied)
    }

    /// Returns the file with the bytes that have arrived so far.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }
}

async fn make(
    file: Arc<File>,
    mut asked: ReadOutputs,
    sources: Vec<CopySource>,
    state: watch::Sender<State>,
) {
    for CopySource { connect, copy: number } in sources {
        asked.copy = number;
        match copy(connect, &asked, &file, &state).await {
            Ok(()) => return,
            Err(error) => {
                let ReadOutputs { query, attempts, copy } = &asked;
                tracing::info!(query, ?attempts, ?copy, %error, "a host did not send an output");
            }
        }
    }
}

/// Copies the bytes that are not there yet from one host.
async fn copy(
    connect: Connect,
    asked: &ReadOutputs,
    file: &Arc<File>,
    state: &watch::Sender<State>,
) -> io::Result<()> {
    let mut stream =
        in_time(OPEN_TIMEOUT, connect()).await?.map_err(|in_time| other(in_time.message))?;
    let opened = in_time(OPEN_TIMEOUT, remote_outputs::opened(&mut stream, asked)).await?;
    let sizes = opened.map_err(|error| match error {
        ReadError::Missing(_) => other("it does not have it"),
        ReadError::Unreachable(report) => other(report.message),
    })?;
    let State { size: known, mut copied } = *state.borrow();
    let size = *sizes.first().ok_or_else(|| other("it does not say its size"))?;
    if known.is_some_and(|known| known != size) {
        return Err(other("it has another size there"));
    }
    state.send_modify(|state| state.size = Some(size));
    let (mut answers, mut requests) = stream.split();
    let mut asked = copied;
    while copied < size {
        while asked < size.min(copied + AHEAD) {
            let length = PIECE.min(size - asked);
            let range = ReadRange { output: 0, offset: asked, length };
            requests.write_all(&range.encode()).await?;
            asked += length;
        }
        let piece = in_time(PIECE_TIMEOUT, piece(&mut answers, PIECE.min(size - copied))).await??;
        let to = Arc::clone(file);
        let at = copied;
        let bytes = piece.len() as u64;
        let written = tokio::task::spawn_blocking(move || to.write_all_at(&piece, at)).await;
        written.map_err(other)??;
        copied += bytes;
        state.send_modify(|state| state.copied = copied);
    }
    Ok(())
}

async fn piece(answers: &mut FromHost<'_>, length: u64) -> io::Result<Vec<u8>> {
    if answers.read_u64_le().await? != length {
        return Err(other("it sends another range"));
    }
    let mut piece = vec![0; usize::try_from(length).map_err(other)?];
    answers.read_exact(&mut piece).await?;
    Ok(piece)
}

async fn in_time<T>(within: Duration, waited: impl Future<Output = T>) -> io::Result<T> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    tokio::time::timeout(within, waited).await.map_err(late)
}

fn other(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::other(why)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use futures::FutureExt;
    use snowmelt_wire::READ_BYTES;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::peers::messages::OutputsOpened;
    use crate::peers::outputs::{KeptOutputs, OutputStore};
    use crate::remote::fake::{heard, say};
    use crate::remote::reading;

    fn content() -> Vec<u8> {
        (0..3 * PIECE + 17).map(|at| (at % 251) as u8).collect()
    }

    /// Starts a host whose connections are answered in the given way. Returns also a function that
    /// makes a source: of the host's copy with at most a number, or of an output that the host has
    /// made.
    async fn host<F: Future<Output = ()> + Send + 'static>(
        serve: impl Fn(HostStream) -> F + Send + 'static,
    ) -> impl Fn(Option<u64>) -> CopySource {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(HostStream::accepted(stream)));
            }
        });
        move |copy| {
            let connect = move || {
                let connecting = TcpStream::connect(address);
                async { Ok(HostStream::opened(connecting.await.unwrap())) }.boxed()
            };
            CopySource { connect: Box::new(connect), copy }
        }
    }

    /// Starts a host that serves the outputs that it keeps of the query.
    async fn keeper() -> (Arc<OutputStore>, KeptOutputs, impl Fn(Option<u64>) -> CopySource) {
        let store = Arc::new(OutputStore::default());
        let kept = store.keep("q").unwrap();
        let served = Arc::clone(&store);
        let serve = move |stream| {
            let store = Arc::clone(&served);
            async move { reading::serve(stream, &store).await }
        };
        let source = host(serve).await;
        (store, kept, source)
    }

    async fn origin() -> (Arc<OutputStore>, KeptOutputs, impl Fn(Option<u64>) -> CopySource) {
        let (store, kept, source) = keeper().await;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&content()).unwrap();
        kept.add(5, file);
        (store, kept, source)
    }

    /// Opens the output, sends its first pieces, and nothing more.
    async fn first_pieces(mut stream: HostStream, pieces: usize) -> HostStream {
        heard::<ReadOutputs>(&mut stream).await;
        let content = content();
        let sizes = vec![content.len() as u64];
        say(&mut stream, &OutputsOpened { missing: Vec::new(), sizes }).await;
        for piece in content.chunks(PIECE as usize).take(pieces) {
            let mut range = [0; READ_BYTES];
            stream.read_exact(&mut range).await.unwrap();
            stream.write_u64_le(piece.len() as u64).await.unwrap();
            stream.write_all(piece).await.unwrap();
        }
        stream
    }

    fn begin(kept: &KeptOutputs, number: u64, sources: Vec<CopySource>) {
        let begin = || Ok(Copy::begin(tempfile::tempfile()?, "q".to_owned(), 5, sources));
        kept.all().copy(5, number, begin);
    }

    async fn copied(kept: &KeptOutputs) -> Vec<u8> {
        let mut file = kept.all().copied(5).await.unwrap();
        assert!(file.write_all(b"changed").is_err(), "it is for reading only");
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[tokio::test]
    async fn a_copy_goes_on_elsewhere_where_a_host_failed() {
        let (_store, _made, whole) = origin().await;
        let broken = host(|stream| async { drop(first_pieces(stream, 2).await) }).await;
        let (_store, kept, _source) = keeper().await;
        begin(&kept, 1, vec![broken(None), whole(None)]);
        assert!(copied(&kept).await == content());
        // One that is asked for again is there already.
        begin(&kept, 1, Vec::new());
        assert!(copied(&kept).await == content());
        kept.release(&[5]);
        assert!(kept.all().copied(5).await.is_none());
    }

    #[tokio::test]
    async fn a_copy_is_passed_on_while_it_arrives() {
        let stuck = host(|stream| async {
            let _open = first_pieces(stream, 2).await;
            std::future::pending().await
        })
        .await;
        let (_parents, parent, from_parent) = keeper().await;
        let file = tempfile::tempfile().unwrap();
        let child = Copy::begin(file, "q".to_owned(), 5, vec![from_parent(Some(1))]);
        // The child may be first.
        begin(&parent, 1, vec![stuck(None)]);
        assert_eq!(child.size().await, Some(content().len() as u64));
        assert!(child.reaches(2 * PIECE).await);
        // What it waits for ends with the copy of its parent.
        parent.release(&[5]);
        drop(parent);
        assert!(!child.reaches(2 * PIECE + 1).await && child.has_failed());
    }

    #[tokio::test]
    async fn a_copy_that_cannot_be_made_can_be_begun_again() {
        let (_store, _empty, lacking) = keeper().await;
        let (_store, kept, _source) = keeper().await;
        begin(&kept, 1, vec![lacking(None)]);
        assert!(kept.all().copied(5).await.is_none());
        let (_store, _made, whole) = origin().await;
        begin(&kept, 1, vec![lacking(None), whole(None)]);
        assert!(copied(&kept).await == content());
    }

    #[tokio::test]
    async fn hosts_that_were_told_of_each_other_do_not_wait_for_each_other() {
        let (_store, _made, whole) = origin().await;
        let ((_a, a, from_a), (_b, b, from_b)) = (keeper().await, keeper().await);
        // The first is asked for a task and refuses; the second was told of it. Then the first is
        // asked again, and told of the second.
        begin(&b, 2, vec![from_a(Some(1)), whole(None)]);
        begin(&a, 3, vec![from_b(Some(2))]);
        assert!(copied(&a).await == content() && copied(&b).await == content());
    }

    #[tokio::test]
    async fn a_copy_goes_on_at_once_where_a_host_has_declined() {
        let (_store, declined, from_parent) = keeper().await;
        declined.all().decline(5, 1);
        let (_store, _made, whole) = origin().await;
        let (_store, kept, _source) = keeper().await;
        begin(&kept, 2, vec![from_parent(Some(1)), whole(None)]);
        assert!(copied(&kept).await == content());
    }
}
