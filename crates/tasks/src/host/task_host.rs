//! A host of tasks: its node, and the stores that the tasks of all queries share there.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use snowmelt_node::Node;
use snowmelt_wire::HttpSource;

use super::footers::FooterStore;
use super::read_rules::ReadRules;
use super::unnamed_file::nameless;
use crate::peers::outputs::OutputStore;
use crate::peers::stream_ends::StreamStore;

/// A node on which tasks of queries run. Cheap to clone. There is one host for each node, whose
/// clones share what queries keep on it.
#[derive(Clone, Debug)]
pub struct TaskHost {
    pub(crate) node: Node,
    /// The footers of data files that queries have read.
    pub(crate) footers: Arc<FooterStore>,
    /// The outputs that tasks of this host and of others read.
    pub(crate) outputs: Arc<OutputStore>,
    /// The ends of streams for tasks here that have not started.
    pub(crate) streams: Arc<StreamStore>,
    // The rules about what queries may read.
    reads: Arc<OnceLock<ReadRules>>,
    // The folder on the disk that keeps the outputs of tasks and, in a subfolder, their scratch.
    disk: Arc<PathBuf>,
}

impl TaskHost {
    /// Returns a host whose tasks run on a node; their files are in the node's state folder.
    /// Drivers of queries on it may read every folder until [`TaskHost::limit_reads`] is called.
    pub fn new(node: Node) -> Self {
        let state_dir = node.state_dir();
        Self {
            footers: Arc::new(FooterStore::new(state_dir.join("footers"))),
            outputs: Arc::default(),
            streams: Arc::default(),
            reads: Arc::default(),
            disk: Arc::new(state_dir.join("exchange")),
            node,
        }
    }

    /// Returns the node in whose sandboxes the tasks run.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Keeps queries from reading the folder of secrets of functions, and lets them read files of
    /// these HTTP servers.
    pub fn limit_reads(&self, secrets: &Path, http: Vec<HttpSource>) {
        // There is one server for a node.
        let _ = self.reads.set(ReadRules { secrets: secrets.to_owned(), http });
    }

    /// Returns the folder of secrets, which queries may not read.
    pub(crate) fn secrets_folder(&self) -> Option<&PathBuf> {
        self.reads.get().map(|rules| &rules.secrets)
    }

    /// Returns the HTTP servers whose files queries may read.
    pub fn http_sources(&self) -> Vec<HttpSource> {
        self.reads.get().map(|rules| rules.http.clone()).unwrap_or_default()
    }

    /// Creates a file without a name for the output of a task: nothing remains of it after a crash.
    pub(crate) fn output_file(&self) -> std::io::Result<File> {
        nameless(&self.disk)
    }

    /// Creates a file without a name for data that a task cannot keep in memory.
    pub(crate) fn scratch_file(&self) -> std::io::Result<File> {
        nameless(&self.disk.join("scratch"))
    }
}
