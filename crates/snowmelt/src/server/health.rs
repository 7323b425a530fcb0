//! The health of the running server, for `snowmelt status` and `snowmelt doctor`.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use snowmelt_api::{PoolStatus, SpawnerHealth};
use snowmelt_node::doctor::{Check, CheckStatus};

use super::certificates;
use crate::config::Config;
use crate::platform::{self, CommandPlatform};
use crate::terminal::Printer;

/// A server that does not respond within this time is unhealthy.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The running server, as doctor finds it.
#[derive(Default)]
pub struct FoundServer {
    /// The rows about the server; none if none is running or it belongs to another user.
    pub checks: Vec<Check>,
    /// The number of its user, if it answers.
    pub user: Option<u32>,
}

/// Asks the running server.
pub fn checks(config: &Config, printer: Printer) -> FoundServer {
    if !platform::answers(&config.socket.value).is_ok_and(|answers| answers) {
        return FoundServer::default();
    }
    // That of this machine, also where commands use another one.
    let Ok(server) = CommandPlatform::server(Some(&config.socket.value), config) else {
        return FoundServer::default();
    };
    let asked = platform::with(server, printer, async |client, _| {
        Ok(tokio::time::timeout(RESPONSE_TIMEOUT, client.status()).await)
    });
    let failed =
        |problem| FoundServer { checks: vec![row(CheckStatus::Fail, problem)], user: None };
    match asked {
        Ok(Ok(Ok(status))) => {
            let spawner = row(of(&status.spawner), of_spawner(&status.spawner));
            let certificate = status.certificate.as_ref().map(certificates::check);
            let checks = [spawner].into_iter().chain(certificate).collect();
            FoundServer { checks, user: user_of(status.pid) }
        }
        Ok(Ok(Err(report))) => failed(report.message),
        Ok(Err(_)) => failed("it does not respond".to_owned()),
        Err(failure) => failed(failure.report.message),
    }
}

fn user_of(pid: u32) -> Option<u32> {
    Some(std::fs::metadata(format!("/proc/{pid}")).ok()?.uid())
}

/// The row about the user of a server, for root.
pub fn of_user(user: u32) -> Check {
    let (status, found, mend) = match user {
        0 => (
            CheckStatus::Warn,
            "root: who takes the server over has this machine".to_owned(),
            Some(
                "useradd --system --home-dir /var/lib/snowmelt snowmelt; then start the server with \
                 SNOWMELT_USER=snowmelt (server.user)"
                    .to_owned(),
            ),
        ),
        user => (CheckStatus::Ok, format!("user {user}, without rights of root"), None),
    };
    let needed = "a user of its own".to_owned();
    Check { name: "user of the server".to_owned(), status, found, needed, mend }
}

fn row(status: CheckStatus, found: String) -> Check {
    let mend = match status {
        CheckStatus::Ok => None,
        CheckStatus::Warn => Some("wait a moment and check again".to_owned()),
        CheckStatus::Fail => Some("snowmelt down; snowmelt up".to_owned()),
    };
    let needed = "a running spawner".to_owned();
    Check { name: "running server".to_owned(), status, found, needed, mend }
}

fn of(spawner: &SpawnerHealth) -> CheckStatus {
    match (&spawner.failure, spawner.processes.is_empty()) {
        (Some(_), _) => CheckStatus::Fail,
        (None, true) => CheckStatus::Warn,
        (None, false) => CheckStatus::Ok,
    }
}

/// The state of a pool of hosts.
pub fn of_pool(pool: &PoolStatus) -> String {
    let PoolStatus { provider, least, most, provided, lacking, .. } = pool;
    let mut text = format!("{least} to {most} hosts, {provided} of them from {provider}");
    if *lacking > 0 {
        text += &format!("; waiting calls need {lacking} more");
    }
    if let Some(failure) = &pool.failure {
        let retry = pool.retry_ms.unwrap_or_default().div_ceil(1000);
        text += &format!("; it failed, and is asked again in {retry} s: {}", failure.message);
    }
    text
}

/// The state of the spawner.
pub fn of_spawner(spawner: &SpawnerHealth) -> String {
    let now = match (&spawner.failure, spawner.processes.len()) {
        (Some(reason), _) => return reason.clone(),
        (None, 0) => "it died; another is being started".to_owned(),
        (None, 1) => "1 process".to_owned(),
        (None, more) => format!("{more} processes"),
    };
    match spawner.replaced {
        0 => now,
        1 => format!("{now}; replaced once after it died"),
        more => format!("{now}; replaced {more} times after it died"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_root_is_warned_of() {
        let root = of_user(0);
        assert_eq!(root.status, CheckStatus::Warn);
        assert!(root.mend.unwrap().contains("server.user"));
        let other = of_user(998);
        assert_eq!((other.status, other.mend), (CheckStatus::Ok, None));
    }

    #[test]
    fn a_missing_or_failed_spawner_is_unhealthy() {
        let missing = SpawnerHealth::default();
        assert_eq!(
            (of(&missing), &*of_spawner(&missing)),
            (CheckStatus::Warn, "it died; another is being started")
        );
        let failed = SpawnerHealth { failure: Some("no memory".to_owned()), ..missing.clone() };
        assert_eq!((of(&failed), &*of_spawner(&failed)), (CheckStatus::Fail, "no memory"));
        let healthy = SpawnerHealth { processes: vec![7, 8], replaced: 2, failure: None };
        assert_eq!(of(&healthy), CheckStatus::Ok);
        assert_eq!(of_spawner(&healthy), "2 processes; replaced 2 times after it died");
    }
}
