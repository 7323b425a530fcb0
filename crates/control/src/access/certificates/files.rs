//! The files of the server's certificate and its key, which whoever renews the certificate replaces
//! while the server runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use snowmelt_rpc::tls::Certificate;
use snowmelt_types::{Code, ErrorReport};
use tokio_util::sync::CancellationToken;

use crate::access::file_version::FileVersion;

/// The interval at which the files are looked at.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The PEM files of a certificate and its key.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The certificate, and those that lead to its authority.
    pub chain: PathBuf,
    /// The key.
    pub key: PathBuf,
}

/// The versions of both files; `None` for one that cannot be read.
type Versions = [Option<FileVersion>; 2];

impl CertificateFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// `SM-0110` for a file that cannot be read, and for two that do not fit each other.
    pub fn read(&self) -> Result<Certificate, ErrorReport> {
        Certificate::new(&text(&self.chain)?, &text(&self.key)?).map_err(wrong)
    }

    /// Shows clients the certificate of the files whenever these change. Files that are wrong, such
    /// as a new certificate whose key is not written yet, change nothing and are read again.
    pub(super) async fn follow(self, certificate: Certificate, over: CancellationToken) {
        let mut shown = self.versions();
        let mut warned = None;
        loop {
            tokio::select! {
                () = over.cancelled() => return,
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
            }
            let now = self.versions();
            if now == shown {
                continue;
            }
            let path = self.chain.display();
            match self.replace(&certificate) {
                Ok(()) => {
                    shown = now;
                    tracing::info!(%path, "clients of other hosts get a new certificate");
                }
                Err(problem) if warned != Some(now) => {
                    warned = Some(now);
                    let problem = problem.message;
                    tracing::warn!(%path, problem, "the certificate stays as it was");
                }
                Err(_) => {}
            }
        }
    }

    fn replace(&self, certificate: &Certificate) -> Result<(), ErrorReport> {
        certificate.replace(&text(&self.chain)?, &text(&self.key)?).map_err(wrong)
    }

    fn versions(&self) -> Versions {
        let version = |path: &PathBuf| Some(FileVersion::new(&std::fs::metadata(path).ok()?));
        [version(&self.chain), version(&self.key)]
    }
}

fn text(path: &Path) -> Result<Vec<u8>, ErrorReport> {
    std::fs::read(path).map_err(|error| wrong(format!("{}: {error}", path.display())))
}

fn wrong(problem: String) -> ErrorReport {
    ErrorReport::new(Code::OPTION, problem)
}
