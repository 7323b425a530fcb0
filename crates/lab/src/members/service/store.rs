//! The S3 server of a lab: SeaweedFS, all of its parts in one process, with one bucket.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;

use super::{Service, request, write};
use crate::Result;

pub(super) const PORT: u16 = 8333;
const MASTER: u16 = 9333;
const VOLUME: u16 = 8080;
const FILER: u16 = 8888;
/// The bucket that each lab has.
const BUCKET: &str = "lab";
const KEY: &str = "snowmelt-lab";
/// The status of a bucket that was made before.
const EXISTS: u16 = 409;
/// No secret: the server is reachable in the lab alone.
const SECRET: &str = "snowmelt-lab-secret";

/// The address, keys and bucket of the store, for clients.
#[derive(Debug)]
pub(crate) enum LabStore {}

impl LabStore {
    pub(super) fn variables(address: SocketAddr) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", format!("http://{address}")),
            ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("SNOWMELT_LAB_STORE", format!("s3://{BUCKET}")),
        ]
    }
}

pub(super) fn command(service: &Service) -> Result<Command> {
    let config = serde_json::json!({ "identities": [{
        "name": "lab",
        "credentials": [{ "accessKey": KEY, "secretKey": SECRET }],
        "actions": ["Admin", "Read", "Write", "List"],
    }] });
    let path = service.machine.folder.join("s3.json");
    write(&path, &config.to_string())?;
    let data = service.data.display();
    let ip = service.machine.ip();
    let mut command = Command::new(&service.program);
    command
        .arg("server")
        .args([format!("-dir={data}"), format!("-ip={ip}"), format!("-ip.bind={ip}")])
        .args([format!("-master.port={MASTER}"), format!("-volume.port={VOLUME}")])
        .args([format!("-filer.port={FILER}"), format!("-s3.port={PORT}")])
        .arg(format!("-s3.config={}", path.display()))
        // It ends at once, and nothing but S3 is served.
        .args(["-volume.max=0", "-volume.preStopSeconds=0", "-master.volumeSizeLimitMB=256"])
        .args(["-master.telemetry=false", "-filer", "-s3", "-s3.port.iceberg=0"]);
    Ok(command)
}

/// Whether objects can be written. Creates the bucket if necessary.
pub(super) fn is_ready(service: &Service) -> io::Result<bool> {
    let at = |port| SocketAddr::new(IpAddr::V4(service.machine.ip()), port);
    // The master assigns a place for an object once the volume server has registered.
    let (assigned, place) = request(at(MASTER), "GET", "/dir/assign")?;
    let (made, _) = request(at(FILER), "POST", &format!("/buckets/{BUCKET}/"))?;
    let (serves, _) = request(at(PORT), "GET", "/status")?;
    let is_there = made < 300 || made == EXISTS;
    Ok(assigned == 200 && place.contains("\"fid\"") && is_there && serves == 200)
}
