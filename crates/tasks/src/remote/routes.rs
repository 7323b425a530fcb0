//! The HTTP requests that open the connections of this folder. Control alone opens those that begin
//! work; each host of the cluster reads from the others.

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware;
use axum::response::Response;
use axum::routing::get;
use snowmelt_node::{FILE_BLOCKS, IMAGE_BLOCKS};
use snowmelt_rpc::upgrade::Incoming;
use snowmelt_rpc::{Credential, HostStream, Problem, admit, of_control};
use tokio::runtime::Handle;

use super::hosted_queries::Hosted;
use super::{reading, streams};
use crate::host::TaskHost;
use crate::peers::messages::{OUTPUTS, SESSION, STREAMS, TASKS};

#[derive(Clone)]
struct Routes {
    hosted: Hosted,
    // The thread that serves HTTP may be one that must be on time: connections move to this.
    runtime: Handle,
}

/// Returns all routes, for a host whose tasks are of a control on another host. Call it in the
/// runtime that is to serve the connections.
pub(crate) fn all(host: TaskHost, credential: Credential) -> Router {
    let hosted = Hosted::new(host, credential.clone());
    let routes = Routes { hosted, runtime: Handle::current() };
    Router::new()
        .route(SESSION, get(session))
        .route(TASKS, get(task))
        .layer(middleware::from_fn_with_state(credential, of_control))
        .route(OUTPUTS, get(outputs))
        .route(STREAMS, get(stream))
        .route(IMAGE_BLOCKS, get(blocks))
        .route(FILE_BLOCKS, get(file_blocks))
        .with_state(routes)
}

/// Returns the routes of outputs, streams, images and files only, for control's own host, with the
/// check of who asks. Call it in the runtime that is to serve the connections.
pub fn exchange_only(host: TaskHost, credential: Credential) -> Router {
    let hosted = Hosted::new(host, credential.clone());
    Router::new()
        .route(OUTPUTS, get(outputs))
        .route(STREAMS, get(stream))
        .route(IMAGE_BLOCKS, get(blocks))
        .route(FILE_BLOCKS, get(file_blocks))
        .layer(middleware::from_fn_with_state(credential, admit))
        .with_state(Routes { hosted, runtime: Handle::current() })
}

async fn session(State(routes): State<Routes>, request: Request) -> Result<Response, Problem> {
    routes.take(request, async |hosted, stream| hosted.serve_session(stream).await)
}

async fn task(State(routes): State<Routes>, request: Request) -> Result<Response, Problem> {
    routes.take(request, async |hosted, stream| hosted.serve_task(stream).await)
}

async fn outputs(State(routes): State<Routes>, request: Request) -> Result<Response, Problem> {
    let serve = async |hosted: Hosted, stream| {
        reading::serve(stream, &hosted.host().outputs).await;
    };
    routes.take(request, serve)
}

async fn stream(State(routes): State<Routes>, request: Request) -> Result<Response, Problem> {
    let serve = async |hosted: Hosted, stream| {
        streams::serve(stream, &hosted.host().streams).await;
    };
    routes.take(request, serve)
}

async fn blocks(State(routes): State<Routes>, request: Request) -> Result<Response, Problem> {
    let serve = async |hosted: Hosted, stream| hosted.host().node.serve_image_blocks(stream).await;
    routes.take(request, serve)
}

async fn file_blocks(State(routes): State<Routes>, request: Request) -> Result<Response, Problem> {
    let serve = async |hosted: Hosted, stream| hosted.host().node.serve_file_blocks(stream).await;
    routes.take(request, serve)
}

impl Routes {
    fn take<F: Future<Output = ()> + Send + 'static>(
        self,
        request: Request,
        serve: impl FnOnce(Hosted, HostStream) -> F + Send + 'static,
    ) -> Result<Response, Problem> {
        let Self { hosted, runtime } = self;
        take(request, runtime, |stream| serve(hosted, stream))
    }
}

/// Serves the connection of a request in a runtime, once it has left HTTP.
pub(crate) fn take<F: Future<Output = ()> + Send + 'static>(
    request: Request,
    runtime: Handle,
    serve: impl FnOnce(HostStream) -> F + Send + 'static,
) -> Result<Response, Problem> {
    let (answer, incoming) = Incoming::of(request)?;
    // On this thread as long as it is HTTP.
    tokio::spawn(async move {
        let taken = incoming.connection().await.map_err(|error| error.to_string());
        let taken = taken.and_then(|stream| stream.detach().map_err(|e| e.to_string()));
        match taken {
            Ok(stream) => drop(runtime.spawn(async move {
                match stream.attach() {
                    Ok(stream) => serve(stream).await,
                    Err(error) => tracing::warn!(%error, "a connection cannot be served"),
                }
            })),
            Err(error) => tracing::debug!(error, "a connection was not opened"),
        }
    });
    Ok(answer)
}
