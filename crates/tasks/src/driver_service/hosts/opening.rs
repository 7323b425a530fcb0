//! The session of a query on one other host, opened in the background.
//!
//! A host may first have to install the packages of the query's functions, which may take long:
//! meanwhile its tasks run elsewhere.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use crate::remote::session::{NotOpened, Session};

/// The state of a query's session on a host.
#[derive(Debug)]
pub(in crate::driver_service) enum SessionOpening {
    /// An open session.
    Session(Arc<Session>),
    /// A session that probably opens in a moment.
    Soon,
    /// The session is being opened for longer than the caller waits; it may still open.
    Later,
    /// No session, now and later.
    Never,
}

/// The session on a host, or its opening. Dropping it ends the opening.
#[derive(Debug, Default)]
pub(super) struct Opening {
    state: Arc<Mutex<State>>,
    task: Mutex<Option<AbortOnDropHandle<()>>>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Unasked,
    Asked {
        since: Instant,
    },
    Open(Arc<Session>),
    // `None` after the reason was returned.
    Failed(Option<NotOpened>),
}

impl Opening {
    /// Begins to open the session, if that was not done yet. Notifies `changed` when the session is
    /// open or has failed.
    pub fn begin<F>(&self, open: impl FnOnce() -> F, changed: &Arc<Notify>)
    where
        F: Future<Output = Result<Session, NotOpened>> + Send + 'static,
    {
        let mut state = lock(&self.state);
        if !matches!(*state, State::Unasked) {
            return;
        }
        *state = State::Asked { since: Instant::now() };
        drop(state);
        let opening = open();
        let state = Arc::clone(&self.state);
        let changed = Arc::clone(changed);
        let task = tokio::spawn(async move {
            let opened = match opening.await {
                Ok(session) => State::Open(Arc::new(session)),
                Err(error) => {
                    tracing::warn!(%error, "a query cannot use a host");
                    State::Failed(Some(error))
                }
            };
            *lock(&state) = opened;
            changed.notify_waiters();
        });
        *lock(&self.task) = Some(AbortOnDropHandle::new(task));
    }

    /// Returns the state of the session. A session that has been opening for no longer than
    /// `patience` is expected soon.
    pub fn now(&self, patience: Duration) -> SessionOpening {
        match &*lock(&self.state) {
            State::Unasked => SessionOpening::Soon,
            State::Asked { since } if since.elapsed() <= patience => SessionOpening::Soon,
            State::Asked { .. } => SessionOpening::Later,
            State::Open(session) if session.is_dead() => SessionOpening::Never,
            State::Open(session) => SessionOpening::Session(Arc::clone(session)),
            State::Failed(_) => SessionOpening::Never,
        }
    }

    /// Returns, once, why the session could not be opened, or that it ended because data was
    /// damaged.
    pub fn take_failure(&self) -> Option<NotOpened> {
        match &mut *lock(&self.state) {
            State::Failed(why) => why.take(),
            State::Open(session) if session.take_damage() => {
                Some(NotOpened::Damaged { host: session.name().clone() })
            }
            _ => None,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::peers::messages::SESSION;
    use crate::remote::fake::{FakePeer, connection, open, order};

    const NONE: Duration = Duration::ZERO;

    async fn begun(within: Duration) -> (Opening, Arc<FakePeer>, crate::remote::fake::Connections) {
        let (peer, connections) = FakePeer::new("a").await;
        let opening = Opening::default();
        let changed = Arc::default();
        let asked = Arc::clone(&peer);
        let open = || async move { Session::open(asked, &order(), within).await };
        opening.begin(open, &changed);
        (opening, peer, connections)
    }

    /// Waits until the session is open or has failed.
    async fn settled(opening: &Opening) -> SessionOpening {
        loop {
            match opening.now(Duration::MAX) {
                SessionOpening::Soon => tokio::time::sleep(Duration::from_millis(1)).await,
                opened => return opened,
            }
        }
    }

    #[tokio::test]
    async fn a_host_that_prepares_itself_has_a_session_later() {
        let (opening, _peer, mut connections) = begun(Duration::MAX).await;
        // It is asked, and installs packages.
        let stream = connection(&mut connections, SESSION).await;
        assert!(matches!(opening.now(Duration::MAX), SessionOpening::Soon));
        assert!(matches!(opening.now(NONE), SessionOpening::Later));
        drop(stream);
        assert!(matches!(settled(&opening).await, SessionOpening::Never));
        let why = opening.take_failure().unwrap();
        assert!(matches!(why, NotOpened::Refused { .. }), "{why}");
        assert!(opening.take_failure().is_none(), "it is told once");
    }

    #[tokio::test]
    async fn a_session_is_used_as_long_as_its_host_is_there() {
        let (opening, peer, mut connections) = begun(Duration::MAX).await;
        let _control = open(&mut connections).await;
        let SessionOpening::Session(session) = settled(&opening).await else {
            panic!("it is not open")
        };
        peer.lost.cancel();
        session.dead().await;
        assert!(matches!(opening.now(Duration::MAX), SessionOpening::Never));
    }

    #[tokio::test]
    async fn a_host_whose_data_are_damaged_is_named_and_not_used_any_more() {
        let (opening, _peer, mut connections) = begun(Duration::MAX).await;
        let agent = open(&mut connections).await;
        let SessionOpening::Session(session) = settled(&opening).await else {
            panic!("it is not open")
        };
        // What comes next is not as it was sent.
        agent.into_unverified().unwrap().write_all(&[7; 64]).await.unwrap();
        session.dead().await;
        assert!(matches!(opening.now(Duration::MAX), SessionOpening::Never));
        let why = opening.take_failure().unwrap();
        assert_eq!(why.to_string(), "data of the host a were damaged on their way");
        assert!(opening.take_failure().is_none(), "it is told once");
    }

    #[tokio::test]
    async fn a_host_that_is_late_or_lost_is_named_with_the_reason() {
        let (opening, _peer, _connections) = begun(Duration::from_millis(1)).await;
        assert!(matches!(settled(&opening).await, SessionOpening::Never));
        let why = opening.take_failure().unwrap();
        assert!(matches!(why, NotOpened::Late { .. }), "{why}");
        let (opening, peer, _connections) = begun(Duration::MAX).await;
        peer.lost.cancel();
        assert!(matches!(settled(&opening).await, SessionOpening::Never));
        let why = opening.take_failure().unwrap();
        assert!(matches!(why, NotOpened::Lost { .. }), "{why}");
    }
}
