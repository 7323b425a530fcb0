//! The registry of a lab: the `registry` of the Distribution project, as Debian's
//! `docker-registry`.
//!
//! Invariant: the registry has a certificate of its own, which hosts and clients of the lab trust,
//! because images are read over TLS from every registry that is not on loopback.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Service, write};
use crate::folder::Folder;
use crate::{Error, Result};

pub(super) const PORT: u16 = 5000;
const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "key.pem";

/// The certificate and configuration of the registry, for hosts and clients.
#[derive(Debug)]
pub(crate) enum LabRegistry {}

impl LabRegistry {
    /// The file with the registry's certificate.
    pub fn certificate(folder: &Folder) -> PathBuf {
        folder.run.join("registry").join(CERTIFICATE)
    }

    pub(super) fn variables(folder: &Folder, address: SocketAddr) -> Vec<(&'static str, String)> {
        vec![
            ("SNOWMELT_IMAGES_CA_FILE", Self::certificate(folder).display().to_string()),
            ("SNOWMELT_LAB_REGISTRY", address.to_string()),
        ]
    }
}

pub(super) fn command(service: &Service) -> Result<Command> {
    let folder = &service.machine.folder;
    let certificate = folder.join(CERTIFICATE);
    let key = folder.join(KEY);
    if !certificate.exists() {
        certify(service, &certificate, &key)?;
    }
    // JSON is YAML. Each request is logged with the bytes that it was sent.
    let config = serde_json::json!({
        "version": 0.1,
        "log": { "level": "info", "accesslog": { "disabled": true } },
        "storage": { "filesystem": { "rootdirectory": service.data } },
        "http": {
            "addr": service.address.to_string(),
            "secret": "of a lab",
            "tls": { "certificate": certificate, "key": key },
        },
    });
    let path = folder.join("config.yml");
    write(&path, &config.to_string())?;
    let mut command = Command::new(&service.program);
    command.arg("serve").arg(path);
    Ok(command)
}

fn certify(service: &Service, certificate: &Path, key: &Path) -> Result<()> {
    let step = "make the certificate of the registry by `openssl`";
    let mut openssl = Command::new("openssl");
    openssl
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-days", "3650", "-subj", "/CN=registry of a Snowmelt lab"])
        .args(["-addext", &format!("subjectAltName=IP:{}", service.machine.ip())])
        .arg("-keyout")
        .arg(key)
        .arg("-out")
        .arg(certificate);
    let done = openssl.output().map_err(Error::step(step))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        return Err(Error::step(step)(std::io::Error::other(said)));
    }
    Ok(())
}
