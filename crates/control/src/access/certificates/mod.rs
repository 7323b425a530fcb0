//! The certificate that clients on other hosts are shown: where it comes from, and how it is renewed.
//!
//! | part | file |
//! |---|---|
//! | where the certificate comes from, and what is said of it | here |
//! | files that somebody else renews | `files` |
//! | settings, and orders when they are due | `acme` |
//!
//! Invariant: a certificate is read, ordered and renewed beside requests, and never for one of them.
//! Whatever fails, the certificate that is shown stays.

pub mod acme;
mod files;

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use snowmelt_api::CertificateStatus;
use snowmelt_rpc::tls::Certificate;
use snowmelt_types::{Code, ErrorReport};
use tokio_util::sync::CancellationToken;

use acme::{AcmeSettings, Renewals};
pub use files::CertificateFiles;

/// The certificate of a server, and where it comes from.
#[derive(Clone, Debug)]
pub struct ServerCertificate {
    shown: Certificate,
    source: CertificateSource,
}

/// The origin of a certificate.
#[derive(Clone, Debug)]
enum CertificateSource {
    Files(CertificateFiles),
    Orders(Renewals),
}

impl ServerCertificate {
    /// Reads the certificate of files.
    ///
    /// # Errors
    /// `SM-0110` for a file that cannot be read, and for two that do not fit each other.
    pub fn of_files(files: CertificateFiles) -> Result<Self, ErrorReport> {
        Ok(Self { shown: files.read()?, source: CertificateSource::Files(files) })
    }

    /// A certificate that an authority is asked for.
    ///
    /// # Errors
    /// `SM-0110` for settings that are wrong.
    pub fn ordered(settings: AcmeSettings) -> Result<Self, ErrorReport> {
        let wrong = |problem| ErrorReport::new(Code::OPTION, problem);
        let shown = Certificate::awaited().map_err(wrong)?;
        let renewals = Renewals::new(settings, shown.clone())?;
        Ok(Self { shown, source: CertificateSource::Orders(renewals) })
    }

    /// Returns the files that somebody else renews.
    pub(crate) fn files(&self) -> Vec<&PathBuf> {
        match &self.source {
            CertificateSource::Files(files) => vec![&files.chain, &files.key],
            CertificateSource::Orders(_) => Vec::new(),
        }
    }

    /// Returns what the listener shows.
    pub(crate) fn shown(&self) -> Certificate {
        self.shown.clone()
    }

    /// Shows the certificate of the files whenever these change, in each control. `shared` is the
    /// folder that all controls have.
    pub(crate) async fn follow(self, shared: PathBuf, over: CancellationToken) {
        match self.source {
            CertificateSource::Files(files) => files.follow(self.shown, over).await,
            CertificateSource::Orders(renewals) => renewals.follow(&shared, over).await,
        }
    }

    /// Orders certificates when they are due, in the control that leads. `has_standbys` says that an
    /// authority may reach another control.
    pub(crate) async fn order(self, shared: PathBuf, has_standbys: bool, over: CancellationToken) {
        if let CertificateSource::Orders(renewals) = self.source {
            renewals.keep(&shared, has_standbys, over).await;
        }
    }

    /// Returns the state of the certificate.
    pub(crate) fn status(&self) -> CertificateStatus {
        let status = match &self.source {
            CertificateSource::Files(_) => CertificateStatus::default(),
            CertificateSource::Orders(renewals) => renewals.status(),
        };
        let expires_ms = self.shown.validity().map(|validity| in_ms(validity.until));
        CertificateStatus { expires_ms, ..status }
    }

    /// Returns the days until the certificate ends, less than 0 once it has; `None` if there is none.
    pub(crate) fn days_left(&self) -> Option<f64> {
        let until = self.shown.validity()?.until;
        let days = |seconds: f64| seconds / (24.0 * 3600.0);
        Some(match until.duration_since(SystemTime::now()) {
            Ok(left) => days(left.as_secs_f64()),
            Err(error) => -days(error.duration().as_secs_f64()),
        })
    }
}

/// Milliseconds since 1970.
fn in_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
