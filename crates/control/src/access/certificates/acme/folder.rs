//! The files of orders, in a folder that only the server's user may enter and that all controls of a
//! store share.
//!
//! Invariants: a file is replaced as a whole. Key and certificate are one file, so that they always
//! fit each other.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use snowmelt_rpc::tls::ProofOfName;
use snowmelt_types::ErrorReport;

use super::Ordered;
use crate::access::file_version::FileVersion;
use crate::access::permissions;

/// The certificate with its key.
const CERTIFICATE: &str = "certificate.pem";
/// Proofs of names that an authority may ask for now.
const PROOFS: &str = "proofs.json";
/// The next order.
const PLAN: &str = "plan.json";

/// The versions of the files that a listener shows; `None` for one that is missing.
pub(super) type ShownVersions = [Option<FileVersion>; 2];

/// The folder of orders.
#[derive(Clone, Debug)]
pub(super) struct AcmeFolder(PathBuf);

/// An account at an authority.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptAccount {
    /// The contact that the authority knows.
    pub contact: Vec<String>,
    /// The account and its key.
    pub credentials: serde_json::Value,
}

/// The next order of a certificate, and what the last ones have come to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    pub ordered: Ordered,
    /// The number of orders that failed since the last that did not.
    pub failures: u32,
    /// When the next order is made, in milliseconds since 1970.
    pub next_ms: u64,
}

impl AcmeFolder {
    /// The folder below that of the state, which several controls share.
    pub fn below(shared: &Path) -> Self {
        Self(shared.join("acme"))
    }

    /// Makes the folder.
    pub fn make(&self) -> Result<(), ErrorReport> {
        permissions::private_folder(&self.0)
    }

    /// Reads the certificate with its key.
    pub fn certificate(&self) -> Option<Vec<u8>> {
        std::fs::read(self.0.join(CERTIFICATE)).ok()
    }

    pub fn keep_certificate(&self, chain: &str, key: &str) -> io::Result<()> {
        self.replace(CERTIFICATE, format!("{key}{chain}").as_bytes())
    }

    /// Reads the proofs that authorities may ask for.
    pub fn proofs(&self) -> Vec<ProofOfName> {
        let read = self.read::<BTreeMap<String, [u8; 32]>>(PROOFS).unwrap_or_default();
        read.into_iter().map(|(name, digest)| ProofOfName { name, digest }).collect()
    }

    /// Lets all controls show these proofs, and no others.
    pub fn keep_proofs(&self, proofs: &[ProofOfName]) -> io::Result<()> {
        if proofs.is_empty() {
            return self.remove(PROOFS);
        }
        let text: BTreeMap<_, _> = proofs.iter().map(|of| (&of.name, of.digest)).collect();
        self.write(PROOFS, &text)
    }

    pub fn plan(&self) -> Option<Plan> {
        self.read(PLAN)
    }

    pub fn keep_plan(&self, plan: &Plan) -> io::Result<()> {
        self.write(PLAN, plan)
    }

    /// Reads the account at an authority.
    pub fn account(&self, directory: &str) -> Option<KeptAccount> {
        self.read(&account(directory))
    }

    pub fn keep_account(&self, directory: &str, kept: &KeptAccount) -> io::Result<()> {
        self.write(&account(directory), kept)
    }

    /// Sets an account aside that its authority does not know any more.
    pub fn forget_account(&self, directory: &str) -> io::Result<()> {
        let name = account(directory);
        std::fs::rename(self.0.join(&name), self.0.join(format!("{name}.unknown")))
    }

    /// Returns the versions of certificate and proofs.
    pub fn versions(&self) -> ShownVersions {
        let version = |name| Some(FileVersion::new(&std::fs::metadata(self.0.join(name)).ok()?));
        [version(CERTIFICATE), version(PROOFS)]
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let text = std::fs::read(self.0.join(name)).ok()?;
        let read = serde_json::from_slice(&text);
        read.inspect_err(|error| tracing::warn!(name, %error, "a file of orders is not read")).ok()
    }

    fn write(&self, name: &str, value: &impl Serialize) -> io::Result<()> {
        self.replace(name, &serde_json::to_vec_pretty(value)?)
    }

    fn replace(&self, name: &str, text: &[u8]) -> io::Result<()> {
        // Its mode is 0600.
        let mut file = tempfile::NamedTempFile::new_in(&self.0)?;
        file.write_all(text)?;
        file.as_file().sync_all()?;
        file.persist(self.0.join(name))?;
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match std::fs::remove_file(self.0.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The file of the account at an authority.
fn account(directory: &str) -> String {
    let named = digest(&SHA256, directory.as_bytes());
    let name: String = named.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("account-{name}.json")
}
