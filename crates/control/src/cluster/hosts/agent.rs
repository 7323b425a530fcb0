//! The requests of control to a host: one trait, in process for this host, over HTTP for another
//! one.

use std::time::Duration;

use async_trait::async_trait;
use snowmelt_api::{HostFacts, PartNetwork};
use snowmelt_node::{Node, TreePlace};
use snowmelt_rpc::HostStream;
use snowmelt_tasks::agent::Agent;
use snowmelt_tasks::agent::api::{
    CodePresence, FunctionCall, FunctionEnd, HeldImage, JobPart, PartCalls, PartEnds, PartOpen,
    PartReady, PrepareFunction, RouteFound, RouteTo, UploadCode,
};
use snowmelt_types::{Code, Digest, ErrorReport, JobId, Tenant};

/// The reason why a call of a function has no end.
#[derive(Debug)]
pub(crate) enum NotCalled {
    /// The host has not prepared the function.
    Absent,
    /// The host has no room for the call at once, or cannot be reached: the call has not run.
    NotRun(ErrorReport),
    /// The connection was lost: the call may have run.
    Unknown(ErrorReport),
    /// The host could not run the call.
    Failed(ErrorReport),
}

/// The memory that answers of a tenant take on control's host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerRoom<'a> {
    pub node: &'a Node,
    pub tenant: &'a Tenant,
}

/// The requests to the agent of a host.
#[async_trait]
pub(crate) trait HostApi: std::fmt::Debug + Send + Sync {
    /// Returns whether the host is the one of this process.
    fn is_local(&self) -> bool {
        false
    }

    /// Returns the facts of this host, without a request; `None` for another host.
    fn local_facts(&self) -> Option<HostFacts> {
        None
    }

    /// Returns the facts of a host, if it answers within this time.
    async fn facts(&self, within: Duration) -> Result<HostFacts, ErrorReport>;

    /// Returns whether a host has the files of a program. Uploads them if they are given.
    async fn upload(&self, code: &UploadCode) -> Result<CodePresence, ErrorReport>;

    /// Reads an image from elsewhere from now on, if the host has it mounted.
    async fn place(&self, place: &TreePlace) -> Result<(), ErrorReport>;

    /// Returns the bytes that the host has read and sent of each image that it has a place for.
    async fn image_bytes(&self) -> Result<Vec<HeldImage>, ErrorReport>;

    /// Returns the digests of the functions that are prepared on the host.
    async fn prepared_functions(&self) -> Result<Vec<Digest>, ErrorReport>;

    /// Prepares a function, so that it can be called by its digest.
    async fn prepare_function(
        &self,
        function: &Digest,
        order: &PrepareFunction,
    ) -> Result<(), ErrorReport>;

    /// Runs a call of a function that was prepared, if there is room for it at once.
    async fn call_function(
        &self,
        function: &Digest,
        call: &FunctionCall,
        room: AnswerRoom<'_>,
    ) -> Result<FunctionEnd, NotCalled>;

    /// Ends the idle instances of a function.
    async fn forget_function(&self, function: &Digest) -> Result<(), ErrorReport>;

    /// Starts a part of a job.
    async fn open(&self, part: JobPart) -> Result<PartOpen, ErrorReport>;

    /// Waits until all hosts of a job answer each other, and has a part load its code.
    async fn ready(&self, job: &JobId, within: Duration) -> Result<PartReady, ErrorReport>;

    /// Calls the ranks of a part. A part that is called already stays as it is, so a request whose
    /// answer was lost can be repeated.
    async fn call(&self, job: &JobId, calls: &PartCalls) -> Result<(), ErrorReport>;

    /// Waits for ends of a part from a number on, and returns them as soon as there is one; renews
    /// the lease of the part.
    async fn ends(
        &self,
        job: &JobId,
        from: usize,
        within: Duration,
    ) -> Result<PartEnds, ErrorReport>;

    /// Ends the calls of a part that still run, each with this error. Does not wait for what they
    /// sent.
    async fn end(&self, job: &JobId, error: &ErrorReport) -> Result<(), ErrorReport>;

    /// Returns the network of a job on the host.
    async fn network(&self, job: &JobId) -> Result<PartNetwork, ErrorReport>;

    /// Returns the route of a packet from the host.
    async fn route(&self, job: &JobId, asked: RouteTo) -> Result<RouteFound, ErrorReport>;

    /// Opens a connection that leaves HTTP, to a host that is not the one of this process.
    async fn connect(&self, path: &str) -> Result<HostStream, ErrorReport> {
        let message = format!("{path} is asked of other hosts only");
        Err(ErrorReport::new(Code::INTERNAL, message))
    }

    /// Ends a part with all that runs, and forgets its ends.
    async fn close(&self, job: &JobId) -> Result<(), ErrorReport>;
}

impl NotCalled {
    /// Makes the reason from the error with which a host answered.
    pub fn answered(error: ErrorReport) -> Self {
        match error.known_code() {
            Code::FUNCTION_ABSENT => Self::Absent,
            Code::NO_ROOM => Self::NotRun(error),
            _ => Self::Failed(error),
        }
    }
}

#[async_trait]
impl HostApi for Agent {
    fn is_local(&self) -> bool {
        true
    }

    fn local_facts(&self) -> Option<HostFacts> {
        Some(Self::facts(self))
    }

    async fn facts(&self, _: Duration) -> Result<HostFacts, ErrorReport> {
        Ok(Self::facts(self))
    }

    async fn upload(&self, code: &UploadCode) -> Result<CodePresence, ErrorReport> {
        Self::upload(self, code.clone()).await
    }

    async fn place(&self, place: &TreePlace) -> Result<(), ErrorReport> {
        Self::place(self, place.clone()).await
    }

    async fn image_bytes(&self) -> Result<Vec<HeldImage>, ErrorReport> {
        Self::image_bytes(self).await
    }

    async fn prepared_functions(&self) -> Result<Vec<Digest>, ErrorReport> {
        Ok(Self::prepared_functions(self))
    }

    async fn prepare_function(
        &self,
        function: &Digest,
        order: &PrepareFunction,
    ) -> Result<(), ErrorReport> {
        Self::prepare_function(self, function.clone(), order.clone()).await
    }

    async fn call_function(
        &self,
        function: &Digest,
        call: &FunctionCall,
        _: AnswerRoom<'_>,
    ) -> Result<FunctionEnd, NotCalled> {
        Self::call_function(self, function, call.clone()).await.map_err(NotCalled::answered)
    }

    async fn forget_function(&self, function: &Digest) -> Result<(), ErrorReport> {
        Self::forget_function(self, function);
        Ok(())
    }

    async fn open(&self, part: JobPart) -> Result<PartOpen, ErrorReport> {
        Self::open(self, part).await
    }

    async fn ready(&self, job: &JobId, within: Duration) -> Result<PartReady, ErrorReport> {
        Self::ready(self, job, within).await
    }

    async fn call(&self, job: &JobId, calls: &PartCalls) -> Result<(), ErrorReport> {
        Self::call(self, job, calls.clone())
    }

    async fn ends(
        &self,
        job: &JobId,
        from: usize,
        within: Duration,
    ) -> Result<PartEnds, ErrorReport> {
        Self::ends(self, job, from, within).await
    }

    async fn end(&self, job: &JobId, error: &ErrorReport) -> Result<(), ErrorReport> {
        Self::end(self, job, error.clone());
        Ok(())
    }

    async fn network(&self, job: &JobId) -> Result<PartNetwork, ErrorReport> {
        Self::network(self, job).await
    }

    async fn route(&self, job: &JobId, asked: RouteTo) -> Result<RouteFound, ErrorReport> {
        Self::route(self, job, asked).await
    }

    async fn close(&self, job: &JobId) -> Result<(), ErrorReport> {
        Self::close(self, job);
        Ok(())
    }
}
