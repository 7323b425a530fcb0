//! Queries over HTTP: each is an answer in frames, as long as its client reads.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use snowmelt_api::QueryRequest;
use snowmelt_kernel::file_user::FileUser;
use snowmelt_rpc::body;
use snowmelt_types::{Digest, QueryId};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::answers::HandlerResult;
use crate::access::identity::Identity;
use crate::access::key::KeyLife;
use crate::platform::GatewayPlatform;
use crate::reports::audit::AuditNote;
use crate::reports::{DROPPED, SUCCEEDED};

/// Frames of an answer that wait for a slow client before the query waits too.
const BUFFERED_FRAMES: usize = 8;

/// Runs a query and streams its frames. A client that disconnects drops the receiver, which ends
/// the query.
pub(super) async fn run(
    State(platform): State<Arc<GatewayPlatform>>,
    identity: Identity,
    user: Option<Extension<FileUser>>,
    life: Option<Extension<KeyLife>>,
    note: Option<Extension<AuditNote>>,
    body::RequestBody(body): body::RequestBody,
) -> HandlerResult {
    let request: QueryRequest = body::parse(&body)?;
    identity.check(request.tenant.as_ref())?;
    let rights = identity.file_rights(user.map(|Extension(user)| user));
    let id = QueryId::new();
    let note = note.map(|Extension(note)| note);
    if let Some(note) = &note {
        note.object(id.as_str());
        // The text may have values that only its author is to see.
        note.detail("sql_blake3", Digest::of(&request.sql).as_str());
    }
    let begun = platform.queries.quotas().query(&identity.tenant, id.as_str())?;
    let (sender, receiver) = mpsc::channel(BUFFERED_FRAMES);
    // The body of the answer ends with the key too, but nobody asks for more of it while the client
    // does not read.
    let over = async move {
        match life {
            Some(Extension(mut life)) => life.over().await,
            None => std::future::pending().await,
        }
    };
    snowmelt_rpc::trace::spawn(async move {
        let _begun = begun;
        let outcome = tokio::select! {
            outcome = platform.queries.run(&identity, rights, id, request, sender) => outcome,
            () = over => DROPPED,
        };
        if let Some(note) = note {
            note.ended(if outcome == SUCCEEDED { "" } else { outcome });
        }
    });
    let bytes = ReceiverStream::new(receiver).map(Ok::<_, std::convert::Infallible>);
    let headers = [(header::CONTENT_TYPE, "application/vnd.snowmelt.frames")];
    Ok((headers, Body::from_stream(bytes)).into_response())
}
