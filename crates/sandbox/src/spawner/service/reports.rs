//! The reports of zygotes, and the resulting events to the server.

use std::os::fd::AsFd;

use super::Service;
use super::record::{StartAnswer, StartPhase};
use crate::message::{EndStatus, SpawnerEvent, StartFailure, StartProperties, ZygoteReady};
use crate::spawner::zygote::ZygoteReport;
use crate::spawner::zygote::protocol::SandboxToken;

/// The number of packets read from one zygote before others have their turn.
const MAX_REPORTS: usize = 32;

impl Service {
    /// Reads the reports of a zygote, up to a limit: the loop comes back for the rest, so a zygote
    /// that never stops does not block the others. An invalid report ends the zygote.
    pub(super) fn on_zygote_message(&mut self, token: SandboxToken) {
        for _ in 0..MAX_REPORTS {
            let Some(received) = self.zygote(token).map(|state| state.receive()) else { return };
            match received {
                // A report may end the zygote, so its state is looked up anew for each.
                Ok(Some(report)) => self.handle_report(token, report),
                Ok(None) => return,
                Err(_) => {
                    // The rest is handled when its process ends.
                    let record = self.records.get(&token);
                    if let Some(state) = record.and_then(|record| record.zygote.as_ref()) {
                        self.unwatch(state.control.as_fd());
                    }
                    return self.kill_sandbox(token);
                }
            }
        }
    }

    fn handle_report(&mut self, zygote: SandboxToken, report: ZygoteReport) {
        match report {
            ZygoteReport::Ready(ready) => self.zygote_is_ready(zygote, ready),
            ZygoteReport::Failed { token, step, errno }
                if self.zygote_of(token) == Some(zygote) =>
            {
                // The root may have caused the failure: all roots are sent again.
                if let Some(state) = self.zygote(zygote) {
                    state.forget_roots();
                }
                self.fail(token, StartFailure::Step { step, errno });
            }
            ZygoteReport::Exited { token, code, cpu_us }
                if self.zygote_of(token) == Some(zygote) =>
            {
                let status =
                    if code < 0 { EndStatus::Signal(-code) } else { EndStatus::Exit(code) };
                self.forked_ended(token, status, cpu_us);
            }
            // About another zygote's child, or one that was given up: ignored.
            ZygoteReport::Failed { .. } | ZygoteReport::Exited { .. } => {}
        }
    }

    fn zygote_is_ready(&mut self, token: SandboxToken, ready: ZygoteReady) {
        let Some(record) = self.records.get_mut(&token) else { return };
        // A zygote may say more than once that it is ready; the server is answered once.
        if !matches!(record.phase, StartPhase::Importing(_)) {
            return;
        }
        if let StartPhase::Importing(answer) =
            std::mem::replace(&mut record.phase, StartPhase::Running)
        {
            self.send_started(token, &answer, Some(ready));
        }
    }

    /// Reports to the server that a sandbox runs.
    pub(super) fn send_started(
        &self,
        token: SandboxToken,
        answer: &StartAnswer,
        zygote: Option<ZygoteReady>,
    ) {
        let Some(record) = self.records.get(&token) else { return };
        let Some(pidfd) = &record.pidfd else { return };
        let backend = self.groups.backend();
        let group = &record.group.path;
        let started = StartProperties {
            memory_peak_file: backend.memory_peak_file(group),
            memory_file: backend.memory_file(group),
            throttled_file: backend.throttled_file(group),
            freezer: backend.freezer_file(group),
            zygote,
        };
        let event = SpawnerEvent::Started { sequence: answer.sequence, started };
        let mut fds = vec![pidfd.as_fd(), answer.channel.as_fd(), answer.log.as_fd()];
        fds.extend(answer.listener.descriptor().map(AsFd::as_fd));
        self.send_event(&event, &fds);
    }
}
