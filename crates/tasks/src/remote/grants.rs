//! Opens the files and outputs for a task whose control is on another host: this host's copies of
//! files, outputs that it keeps, and connections to outputs that others keep.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;

use futures::FutureExt;
use snowmelt_rpc::{Credential, HostTarget, upgrade};
use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::{FileGrant, Grants, HostOutputs, RequestFailure};

use crate::file_rights::FileOpener;
use crate::host::TaskHost;
use crate::peers::copies::{Copy, CopySource};
use crate::peers::messages::{Copied, InputAt, OUTPUTS, ReadOutputs, RelativeHost};
use crate::peers::outputs::Outputs;
use crate::peers::remote_outputs::{self, ReadError};

/// Returns the error for outputs that their host does not have any more.
pub(crate) fn gone(tasks: Vec<u32>) -> RequestFailure {
    let names: BTreeSet<u32> = tasks.iter().copied().collect();
    let message = format!("the outputs of the tasks {names:?} are gone");
    RequestFailure::lost_outputs(tasks, ErrorReport::new(Code::OUTPUT_LOST, message))
}

/// The path of a file that this host does not have.
#[derive(Debug)]
pub(super) struct Missing(pub String);

/// Opens this host's copy of a file, which must have the same size and time. The returned grant has
/// the version of the copy.
pub(super) fn open_copy(
    opener: &FileOpener,
    grant: &FileGrant,
) -> Result<(FileGrant, OwnedFd), Missing> {
    let opened = || {
        let file = opener.open(Path::new(&grant.path)).ok()?;
        let version = snowmelt_files::version(&file.metadata().ok()?);
        snowmelt_files::is_copy(&version, &grant.version).then_some((version, file))
    };
    let (version, file) = opened().ok_or_else(|| Missing(grant.path.clone()))?;
    Ok((FileGrant { version, ..grant.clone() }, OwnedFd::from(file)))
}

/// Declines the copies of these inputs, because the task that reads them does not begin here. Hosts
/// that wait for the copies read elsewhere, unless another task has begun them.
pub(super) fn decline_copies(outputs: &Outputs, inputs: &[InputAt]) {
    for InputAt { attempt, copied, .. } in inputs {
        if let Some(Copied { number, .. }) = copied {
            outputs.decline(*attempt, *number);
        }
    }
}

/// The context in which the outputs are opened that tasks of a query read.
pub(super) struct Granting<'q> {
    pub host: &'q TaskHost,
    pub query: &'q str,
    /// The outputs of the query on this host.
    pub outputs: &'q Outputs,
    /// The address at which outputs on control's host are read; `None` if it is not known.
    pub control: Option<SocketAddr>,
    pub credential: &'q Credential,
}

impl Granting<'_> {
    /// Begins to copy the inputs that several tasks read whole. From now on this host passes them
    /// on.
    pub fn begin_copies(&self, inputs: &[InputAt]) {
        for InputAt { attempt, at, copied, .. } in inputs {
            let Some(Copied { number, parent }) = copied else { continue };
            let parent = parent.as_ref().map(|parent| (&parent.at, Some(parent.copy)));
            let sources = parent.into_iter().chain([(at, None)]);
            let sources = sources.filter_map(|(at, copy)| self.source(at, copy)).collect();
            let query = self.query.to_owned();
            let begin = || Ok(Copy::begin(self.host.output_file()?, query, *attempt, sources));
            self.outputs.copy(*attempt, *number, begin);
        }
    }

    fn source(&self, at: &RelativeHost, copy: Option<u64>) -> Option<CopySource> {
        let target = at.target(self.control, self.credential)?;
        let connect = async move { upgrade::connect(&target, OUTPUTS).await };
        Some(CopySource { connect: Box::new(move || connect.boxed()), copy })
    }

    /// Opens the outputs that a task reads: files of this host, and connections to others.
    pub async fn inputs(&self, inputs: Vec<InputAt>) -> Result<Grants, RequestFailure> {
        let mut grants = Grants::default();
        let mut elsewhere: BTreeMap<RelativeHost, Vec<(u32, u64)>> = BTreeMap::new();
        for InputAt { task, attempt, at, copied } in inputs {
            if copied.is_some()
                && let Some(copy) = self.outputs.copied(attempt).await
            {
                grants.inputs.push((task, OwnedFd::from(copy)));
                continue;
            }
            if at != RelativeHost::Here {
                elsewhere.entry(at).or_default().push((task, attempt));
                continue;
            }
            let opened = self.outputs.open(attempt);
            let file = opened.ok_or_else(|| gone(vec![task]))?;
            let file = file.map_err(|error| {
                let message = format!("the output of task {task} cannot be opened: {error}");
                RequestFailure::of(ErrorReport::new(Code::STORAGE, message))
            })?;
            grants.inputs.push((task, OwnedFd::from(file)));
        }
        let opening = elsewhere.into_iter().map(|(at, outputs)| self.open(at, outputs));
        grants.hosts = futures::future::try_join_all(opening).await?;
        Ok(grants)
    }

    async fn open(
        &self,
        at: RelativeHost,
        outputs: Vec<(u32, u64)>,
    ) -> Result<(HostOutputs, OwnedFd), RequestFailure> {
        let host = match &at {
            RelativeHost::Host { name, .. } => name.as_str().to_owned(),
            RelativeHost::Here | RelativeHost::Control => "control".to_owned(),
        };
        let (tasks, attempts): (Vec<u32>, Vec<u64>) = outputs.into_iter().unzip();
        let unreadable = |why: &str| {
            let message = format!("outputs on the host {host} cannot be read: {why}");
            RequestFailure::of(ErrorReport::new(Code::OUTPUT_LOST, message).input(host.as_str()))
        };
        let target = at.target(self.control, self.credential);
        let target: HostTarget = target.ok_or_else(|| unreadable("its address is not known"))?;
        let stream = upgrade::connect(&target, OUTPUTS).await;
        let stream = stream.map_err(|error| unreadable(&error.message))?;
        let asked = ReadOutputs { query: self.query.to_owned(), attempts, copy: None };
        match remote_outputs::open(stream, &asked).await {
            Ok(socket) => Ok((HostOutputs { host, tasks }, socket)),
            Err(ReadError::Missing(places)) => {
                Err(gone(places.into_iter().filter_map(|at| tasks.get(at).copied()).collect()))
            }
            Err(ReadError::Unreachable(report)) => Err(unreadable(&report.message)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_file_is_granted_with_its_own_version_and_others_are_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "one").unwrap();
        let metadata = path.metadata().unwrap();
        let path = path.to_str().unwrap().to_owned();
        let own = snowmelt_files::version(&metadata);
        let (_, content) = own.split_once('-').unwrap();
        let grant = |version: String| FileGrant { path: path.clone(), bytes: 3, version };
        let opener = FileOpener::default();
        let (granted, _) = open_copy(&opener, &grant(format!("0-{content}"))).unwrap();
        assert_eq!(granted.version, own);
        assert!(open_copy(&opener, &grant(format!("0-{content}0"))).is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(open_copy(&opener, &grant(own)).is_err());
    }

    #[test]
    fn a_pipe_in_the_place_of_a_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
        let version = snowmelt_files::version(&path.metadata().unwrap());
        let path = path.to_str().unwrap().to_owned();
        assert!(open_copy(&FileOpener::default(), &FileGrant { path, bytes: 0, version }).is_err());
    }
}
