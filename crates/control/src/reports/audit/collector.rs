//! Posts the lines of the files to a collector over HTTP, as NDJSON.
//!
//! Invariants: a line is posted until the collector has accepted it, also after a restart: it may
//! get a line twice, and leaves no one out without a line that says how many. No request waits for
//! the collector.

use std::io;
use std::path::Path;
use std::time::Duration;

use snowmelt_rpc::version;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::event::AuditEvent;
use super::follower::{FollowedLines, FollowerPlace, read};

/// The file with the place of the next line.
const PLACE: &str = "collector.json";

const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The pause after a request that failed, at first and at most.
const AGAIN_AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// How long the collector gets at the end of the server.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Why lines are not posted.
const REMOVED: &str = "their file was removed before the collector had them";

/// Posts lines until the server ends.
pub(super) async fn post(folder: &Path, url: &str, written: &Notify, over: &CancellationToken) {
    let client = reqwest::Client::builder()
        .timeout(REQUEST_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(format!("snowmelt/{}", version()));
    let client = match client.build() {
        Ok(client) => client,
        Err(error) => return tracing::error!(%error, "the collector of the audit is not reached"),
    };
    let mut posting = Posting { folder, client, url, at: place(folder), pause: AGAIN_AFTER[0] };
    while !over.is_cancelled() {
        if let Some(pause) = posting.step().await {
            tokio::select! {
                () = over.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        } else {
            tokio::select! {
                () = over.cancelled() => {}
                () = written.notified() => {}
            }
        }
    }
    let rest = async { while posting.step().await == Some(Duration::ZERO) {} };
    let _ = tokio::time::timeout(END_TIMEOUT, rest).await;
}

struct Posting<'a> {
    folder: &'a Path,
    client: reqwest::Client,
    url: &'a str,
    at: FollowerPlace,
    pause: Duration,
}

impl Posting<'_> {
    /// Posts some lines. Returns how long to wait before the next ones: none where there are no
    /// further ones yet.
    async fn step(&mut self) -> Option<Duration> {
        let [shortest, longest] = AGAIN_AFTER;
        match self.some().await {
            Ok(has_more) => {
                if self.pause > shortest {
                    tracing::info!("the collector of the audit accepts lines again");
                }
                self.pause = shortest;
                has_more.then_some(Duration::ZERO)
            }
            Err(error) => {
                let pause = self.pause;
                tracing::warn!(%error, ?pause, "lines of the audit are posted again");
                self.pause = (pause * 2).min(longest);
                Some(pause)
            }
        }
    }

    async fn some(&mut self) -> io::Result<bool> {
        let folder = self.folder.to_owned();
        let at = self.at;
        let reading = tokio::task::spawn_blocking(move || read(&folder, at)).await;
        let FollowedLines { mut text, lost, after } = reading.map_err(io::Error::other)??;
        if lost > 0 {
            tracing::warn!(lost, "lines of the audit were removed before the collector had them");
            let gap = serde_json::to_string(&AuditEvent::gap(lost, REMOVED))?;
            text.splice(0..0, format!("{gap}\n").into_bytes());
        }
        if text.is_empty() {
            self.at = after;
            return Ok(false);
        }
        let request = self.client.post(self.url).header("content-type", "application/x-ndjson");
        let answered = request.body(text).send().await;
        // The address may have a password, which is not logged.
        let answered = answered.map_err(|error| io::Error::other(error.without_url()))?;
        if !answered.status().is_success() {
            return Err(io::Error::other(format!("the collector answers {}", answered.status())));
        }
        self.at = after;
        keep(self.folder, after)?;
        Ok(true)
    }
}

fn place(folder: &Path) -> FollowerPlace {
    let text = std::fs::read(folder.join(PLACE)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

fn keep(folder: &Path, place: FollowerPlace) -> io::Result<()> {
    let new = folder.join("collector.new");
    std::fs::write(&new, serde_json::to_vec(&place)?)?;
    std::fs::rename(new, folder.join(PLACE))
}
