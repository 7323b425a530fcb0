//! The images of a state folder that no server serves, inside a command.
//!
//! The command uses the same requests as with a server. It needs neither sandboxes nor root: images
//! only need the state folder.

use std::path::Path;

use axum::middleware::from_fn;
use snowmelt_node::ImageSettings;
use snowmelt_rpc::client::InProcess;
use snowmelt_rpc::server::{Ending, LOCAL, serve};
use snowmelt_types::ErrorReport;
use tokio::sync::Mutex;

use crate::access::permissions;
use crate::client::ApiClient;
use crate::gateway;
use crate::gateway::entry::identify;
use crate::images::{END_TIMEOUT, Images};

/// A server of images in this process.
pub struct ImageServer {
    pub(crate) images: Images,
    client: ApiClient,
    ending: Ending,
}

impl ImageServer {
    /// Serves the images of a state folder. Must be called in a runtime.
    ///
    /// # Errors
    /// `SM-0505` and `SM-0506` for a state folder that cannot be made.
    pub fn start(state_dir: &Path, settings: ImageSettings) -> Result<Self, ErrorReport> {
        permissions::state_folder(state_dir, None)?;
        let ending = Ending::default();
        let images = Images::new(state_dir, settings, ending.over.clone());
        let (ours, theirs) = InProcess::pair();
        let router = gateway::images::router(images.clone()).layer(from_fn(identify));
        tokio::spawn(serve(Mutex::new(theirs), router, LOCAL, ending.clone()));
        Ok(Self { images, client: ApiClient::in_process(ours), ending })
    }

    /// Returns a client of the server.
    pub fn client(&self) -> &ApiClient {
        &self.client
    }

    /// Ends work that still runs, and waits until its partial files are removed.
    pub async fn end(self) {
        self.ending.asked.cancel();
        self.ending.over.cancel();
        self.images.idle(END_TIMEOUT).await;
    }
}
