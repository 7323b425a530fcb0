//! When the next order is due, and orders when they are.
//!
//! Invariants: a certificate is renewed when two thirds of its time have passed. An order that failed
//! is repeated after times that grow, also after a restart: authorities limit how often one may ask.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use snowmelt_api::CertificateStatus;
use snowmelt_rpc::tls::{Certificate, Validity};
use snowmelt_types::{Code, ErrorReport};
use tokio_util::sync::CancellationToken;

use super::AcmeSettings;
use super::folder::{AcmeFolder, Plan, ShownVersions};
use super::http::AcmeHttp;
use super::order::{OrderFailure, OrderWork, local};
use crate::access::certificates::in_ms;

/// The interval at which a control looks for what another one has got.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// How long an order may take.
const ORDER_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest sleep before the clock is looked at: it may be set.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);
/// The first wait for an authority that was not reached, and the longest one.
const UNREACHED: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(600)];
/// The first wait after a refusal, and the longest one: five refusals for a name within an hour are
/// what Let's Encrypt takes.
const REFUSED: [Duration; 2] = [Duration::from_secs(120), Duration::from_secs(12 * 3600)];
/// The longest wait that an authority may ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(7 * 24 * 3600);
/// The longest wait after a start of the server: its administrator may have mended what failed.
const AFTER_START: Duration = Duration::from_secs(900);

/// Orders of a certificate. Clones share what is shown, and what is known of the last order.
#[derive(Clone, Debug)]
pub struct Renewals {
    settings: AcmeSettings,
    http: AcmeHttp,
    shown: Certificate,
    last: Arc<Mutex<LastOrder>>,
}

#[derive(Debug, Default)]
struct LastOrder {
    next: Option<SystemTime>,
    failure: Option<ErrorReport>,
}

impl Renewals {
    pub(in crate::access::certificates) fn new(
        settings: AcmeSettings,
        shown: Certificate,
    ) -> Result<Self, ErrorReport> {
        let wrong = |problem| {
            let message = format!("the authorities of {} {problem}", settings.ordered.directory);
            ErrorReport::new(Code::OPTION, message)
        };
        let http = AcmeHttp::new(settings.trusted.as_deref()).map_err(wrong)?;
        Ok(Self { settings, http, shown, last: Arc::default() })
    }

    pub(in crate::access::certificates) fn status(&self) -> CertificateStatus {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        CertificateStatus {
            expires_ms: None,
            directory: Some(self.settings.ordered.directory.clone()),
            order_ms: last.next.map(in_ms),
            failure: last.failure.clone(),
        }
    }

    /// Shows what the control that leads has got.
    pub(in crate::access::certificates) async fn follow(
        self,
        shared: &Path,
        over: CancellationToken,
    ) {
        let folder = AcmeFolder::below(shared);
        let mut shown = ShownVersions::default();
        loop {
            let now = folder.versions();
            if now != shown {
                shown = now;
                self.show(&folder);
            }
            if over.run_until_cancelled(tokio::time::sleep(CHECK_INTERVAL)).await.is_none() {
                return;
            }
        }
    }

    fn show(&self, folder: &AcmeFolder) {
        if let Some(text) = folder.certificate() {
            match self.shown.replace(&text, &text) {
                Ok(()) => tracing::info!("clients of other hosts get the kept certificate"),
                Err(problem) => tracing::warn!(problem, "the certificate stays as it was"),
            }
        }
        if let Err(problem) = self.shown.prove(&folder.proofs()) {
            tracing::warn!(problem, "names cannot be proved");
        }
    }

    /// Orders a certificate whenever one is due.
    pub(in crate::access::certificates) async fn keep(
        self,
        shared: &Path,
        has_standbys: bool,
        over: CancellationToken,
    ) {
        let folder = AcmeFolder::below(shared);
        if let Err(report) = folder.make() {
            tracing::error!(problem = report.message, "no certificate can be ordered");
            self.tell(None, Some(report));
            return;
        }
        self.show(&folder);
        let mut plan = self.first_plan(folder.plan(), SystemTime::now());
        loop {
            self.tell(Some(at(plan.next_ms)), None);
            let done = async {
                until(at(plan.next_ms)).await;
                self.order(&folder, has_standbys).await
            };
            let Some(done) = over.run_until_cancelled(done).await else { return };
            plan = self.after(done, plan.failures);
            if let Err(error) = folder.keep_plan(&plan) {
                tracing::warn!(%error, "the time of the next order is not kept");
            }
        }
    }

    async fn order(&self, folder: &AcmeFolder, has_standbys: bool) -> Result<(), OrderFailure> {
        let work = OrderWork {
            settings: &self.settings,
            folder,
            http: &self.http,
            shown: &self.shown,
            has_standbys,
        };
        let done = tokio::time::timeout(ORDER_TIMEOUT, work.done()).await;
        let late = || format!("the order is not done within {} s", ORDER_TIMEOUT.as_secs());
        let done = done.unwrap_or_else(|_| Err(local(late())));
        work.prove(&[]).map_err(local)?;
        let signed = done?;
        self.shown.replace(signed.chain.as_bytes(), signed.key.as_bytes()).map_err(local)?;
        folder.keep_certificate(&signed.chain, &signed.key).map_err(local)
    }

    /// The plan after an order.
    fn after(&self, done: Result<(), OrderFailure>, failures: u32) -> Plan {
        let now = SystemTime::now();
        let Err(failure) = done else {
            let next = self.shown.validity().map_or(now, |validity| due(validity, now));
            let names = self.settings.ordered.names.join(", ");
            tracing::info!(names, "clients of other hosts get a new certificate");
            self.last.lock().unwrap_or_else(PoisonError::into_inner).failure = None;
            return self.plan(0, next);
        };
        let wait = pause(&failure, failures);
        let report = self.report(&failure);
        let wait_s = wait.as_secs();
        tracing::warn!(code = report.code, problem = report.message, wait_s, "ordered again later");
        self.last.lock().unwrap_or_else(PoisonError::into_inner).failure = Some(report);
        self.plan(failures.saturating_add(1), now + wait)
    }

    /// The plan of a server that starts.
    pub(super) fn first_plan(&self, kept: Option<Plan>, now: SystemTime) -> Plan {
        let kept = kept.filter(|kept| kept.ordered == self.settings.ordered);
        let validity = self.shown.validity();
        match (kept, validity) {
            (Some(kept), _) if kept.failures > 0 => {
                self.plan(kept.failures, at(kept.next_ms).min(now + AFTER_START))
            }
            (Some(kept), Some(validity)) => self.plan(0, at(kept.next_ms).min(due(validity, now))),
            _ => self.plan(0, now),
        }
    }

    fn plan(&self, failures: u32, next: SystemTime) -> Plan {
        Plan { ordered: self.settings.ordered.clone(), failures, next_ms: in_ms(next) }
    }

    fn report(&self, failure: &OrderFailure) -> ErrorReport {
        let names = self.settings.ordered.names.join(", ");
        let directory = &self.settings.ordered.directory;
        let message = format!("no certificate for {names} from {directory}: {}", failure.message);
        let report = ErrorReport::new(Code::CERTIFICATE_ORDER, message);
        match failure.is_refusal {
            true => report.hint("the names must lead to this listener at port 443"),
            false => report,
        }
    }

    fn tell(&self, next: Option<SystemTime>, failure: Option<ErrorReport>) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.next = next;
        if failure.is_some() {
            last.failure = failure;
        }
    }
}

#[cfg(test)]
impl Renewals {
    pub(super) fn shown(&self) -> &Certificate {
        &self.shown
    }
}

/// When a certificate is renewed: after two thirds of its time or a little earlier, so that servers
/// that began together do not ask together. One that seems to end soon was signed by another clock.
pub(super) fn due(validity: Validity, now: SystemTime) -> SystemTime {
    let life = validity.until.duration_since(validity.from).unwrap_or_default();
    let earlier = life.mul_f64(fastrand::f64() / 60.0);
    (validity.from + life.mul_f64(2.0 / 3.0) - earlier).max(now + life / 6)
}

/// The wait after an order that failed, and so many before it.
pub(super) fn pause(failure: &OrderFailure, failures: u32) -> Duration {
    let [first, longest] = if failure.is_refusal { REFUSED } else { UNREACHED };
    let wait = first.saturating_mul(1 << failures.min(20)).min(longest);
    let wait = wait.mul_f64(1.0 + fastrand::f64() / 4.0);
    wait.max(failure.wait.unwrap_or_default().min(LONGEST_ASKED))
}

/// Waits for a time of the clock.
async fn until(time: SystemTime) {
    while let Ok(left) = time.duration_since(SystemTime::now()) {
        tokio::time::sleep(left.min(LONGEST_SLEEP)).await;
    }
}

fn at(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}
