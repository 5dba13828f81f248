//! Routes of both planes, by the published paths, and the admission of requests to them: whom the door serves, how many
//! of whose at a time, and how large.
//!
//! ```text
//! host ─▶ key, token or signature ─▶ place of its credential ─▶ body ─▶ route
//! ```

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Body,
    extract::{DefaultBodyLimit, Request, State},
    http::{HeaderValue, StatusCode, Uri, header, request::Parts},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{delete, get, post, put},
};
use hivekeep_door_server::http::{
    body::{self, BodyRefusal},
    server,
};
use hivekeep_kernel::{PoolPlace, ToolError, User};
use serde_json::{Value, json};

use super::{
    control,
    error::{E2bError, Kind},
    files, filesystem, ports, process,
    state::E2b,
    target::Target,
};

pub(super) fn router(e2b: Arc<E2b>) -> Router {
    let both = |path: &'static str| [path.to_owned(), format!("/v2{path}")];
    let mut routes = Router::new()
        .route("/sandboxes", get(control::list).post(control::create))
        .route("/v2/sandboxes", get(control::list_v2).post(control::create))
        .route("/sandboxes/{id}/resume", post(control::resume))
        .route("/sandboxes/{id}", get(control::info).delete(control::kill))
        .route("/sandboxes/metrics", get(control::metrics_of_many))
        .route("/sandboxes/{id}/metrics", get(control::metrics))
        .route("/sandboxes/{id}/logs", get(control::logs))
        .route("/v2/sandboxes/{id}/logs", get(control::logs_v2))
        .route("/sandboxes/{id}/timeout", post(control::set_timeout))
        .route("/sandboxes/{id}/refreshes", post(control::refresh))
        .route("/sandboxes/{id}/pause", post(control::pause))
        .route("/sandboxes/{id}/fork", post(control::fork))
        .route("/sandboxes/{id}/snapshots", post(control::create_snapshot))
        .route("/sandboxes/{id}/network", put(control::update_network))
        .route("/snapshots", get(control::list_snapshots))
        .route("/templates/{id}", delete(control::delete_template));
    for path in both("/sandboxes/{id}/connect") {
        routes = routes.route(&path, post(control::connect));
    }
    routes
        .fallback(nothing_here)
        .method_not_allowed_fallback(nothing_here)
        .layer(middleware::from_fn_with_state(e2b.clone(), by_key))
        .merge(data_plane(&e2b))
        .layer(middleware::from_fn_with_state(e2b.clone(), ports::route))
        .layer(middleware::from_fn_with_state(e2b.clone(), admit))
        // The gate of bodies bounds them.
        .layer(DefaultBodyLimit::disable())
        .with_state(e2b)
}

fn data_plane(e2b: &Arc<E2b>) -> Router<Arc<E2b>> {
    let process = |name: &str| format!("/process.Process/{name}");
    let files = |name: &str| format!("/filesystem.Filesystem/{name}");
    Router::new()
        .route("/health", get(health))
        .route("/envs", get(envs))
        .route("/metrics", get(control::metrics_of_this))
        .route(FILES, get(files::download).post(files::upload))
        .route("/files/compose", post(files::compose))
        .route(&process("List"), post(process::list))
        .route(&process("Start"), post(process::start))
        .route(&process("Connect"), post(process::connect))
        .route(&process("Update"), post(process::update))
        .route(&process("SendInput"), post(process::send_input))
        .route(&process("StreamInput"), post(process::stream_input))
        .route(&process("SendSignal"), post(process::send_signal))
        .route(&process("CloseStdin"), post(process::close_stdin))
        .route(&files("Stat"), post(filesystem::stat))
        .route(&files("ListDir"), post(filesystem::list_dir))
        .route(&files("MakeDir"), post(filesystem::make_dir))
        .route(&files("Move"), post(filesystem::move_entry))
        .route(&files("Remove"), post(filesystem::remove))
        .route(&files("WatchDir"), post(filesystem::watch_dir))
        .route(&files("CreateWatcher"), post(filesystem::create_watcher))
        .route(&files("GetWatcherEvents"), post(filesystem::get_watcher_events))
        .route(&files("RemoveWatcher"), post(filesystem::remove_watcher))
        .method_not_allowed_fallback(nothing_here)
        .route_layer(middleware::from_fn_with_state(e2b.clone(), by_token))
}

/// `GET /health`: whether the sandbox runs. Wakes none.
async fn health(State(e2b): State<Arc<E2b>>, target: Target) -> Result<StatusCode, E2bError> {
    match e2b.sandbox(&target.owner, &target.id).await {
        Ok(sandbox) if sandbox.is_running() => Ok(StatusCode::NO_CONTENT),
        Ok(_) => Err(E2bError::no_sandbox(&target.id)),
        Err(error) if error.kind == super::error::Kind::NotFound => {
            Err(E2bError::no_sandbox(&target.id))
        }
        Err(error) => Err(error),
    }
}

/// `GET /envs`: the sandbox's own variables.
async fn envs(State(e2b): State<Arc<E2b>>, target: Target) -> Result<Json<Value>, E2bError> {
    let sandbox = e2b.sandbox(&target.owner, &target.id).await?;
    Ok(Json(json!(sandbox.env)))
}

/// Path of the contents of files, which URLs are signed for.
const FILES: &str = "/files";
/// Paths whose bodies are read as they come.
const TAKES_STREAMS: [&str; 2] = [FILES, "/process.Process/StreamInput"];

/// Serves allowed hosts; every answer leaves with the same headers.
pub(super) async fn admit(State(e2b): State<Arc<E2b>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let foreign = match e2b.named_by_host(&parts) {
        Some(_) => None,
        None => e2b.hosts.check(&parts.uri, &parts.headers).err(),
    };
    let mut answer = match foreign {
        None => next.run(Request::from_parts(parts, body)).await,
        Some(it) => E2bError::new(Kind::PermissionDenied, it.why()).into_response(),
    };
    let headers = answer.headers_mut();
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    answer
}

/// Serves whoever has a key.
async fn by_key(
    State(e2b): State<Arc<E2b>>,
    request: Request,
    next: Next,
) -> Result<Response, E2bError> {
    let (mut parts, body) = request.into_parts();
    let owner = e2b.keyed(&parts.headers).await?;
    let credential = owner.credential;
    parts.extensions.insert(owner);
    e2b.serve(User::Credential(credential), (parts, body), next).await
}

/// Serves whoever has the token of a sandbox, or an URL of a file that was signed with it.
async fn by_token(
    State(e2b): State<Arc<E2b>>,
    request: Request,
    next: Next,
) -> Result<Response, E2bError> {
    let (mut parts, body) = request.into_parts();
    let target = match parts.uri.path() == FILES {
        true => e2b.file_target(&parts).await?,
        false => e2b.target(&parts).await?,
    };
    let credential = target.owner.credential;
    parts.extensions.insert(target);
    e2b.serve(User::Credential(credential), (parts, body), next).await
}

impl E2b {
    /// A place for a request; it is held for as long as the answer goes on.
    ///
    /// # Errors
    /// With as many as there may be.
    pub(super) fn place(&self, of: User) -> Result<PoolPlace, E2bError> {
        Ok(self.requests.take(of).map_err(ToolError::from)?)
    }

    async fn serve(
        &self,
        user: User,
        (parts, body): (Parts, Body),
        next: Next,
    ) -> Result<Response, E2bError> {
        let place = self.place(user)?;
        let request = match TAKES_STREAMS.contains(&parts.uri.path()) {
            true => Request::from_parts(parts, body::limit_pauses(body, self.bodies.patience)),
            false => self.bodies.weigh(user, Request::from_parts(parts, body)).await?,
        };
        Ok(server::hold_place(place, next.run(request).await))
    }
}

impl From<BodyRefusal> for E2bError {
    fn from(refused: BodyRefusal) -> Self {
        let kind = match refused.status {
            StatusCode::SERVICE_UNAVAILABLE => Kind::Unavailable,
            StatusCode::PAYLOAD_TOO_LARGE => Kind::ResourceExhausted,
            _ => Kind::InvalidArgument,
        };
        Self::new(kind, refused.why)
    }
}

/// The answer of a path without a route.
pub(super) async fn nothing_here(method: axum::http::Method, uri: Uri) -> E2bError {
    let shown: String = uri.path().chars().take(80).collect();
    E2bError::unsupported(&format!("{method} {shown}"))
}
