//! Routes of both planes, by the published paths.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, State},
    http::StatusCode,
    middleware,
    routing::{delete, get, post, put},
};
use serde_json::{Value, json};

use super::{
    admit, control, error::E2bError, files, filesystem, ports, process, state::E2b, target::Target,
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
        .fallback(admit::nothing_here)
        .method_not_allowed_fallback(admit::nothing_here)
        .layer(middleware::from_fn_with_state(e2b.clone(), admit::by_key))
        .merge(data_plane(&e2b))
        .layer(middleware::from_fn_with_state(e2b.clone(), ports::route))
        .layer(middleware::from_fn_with_state(e2b.clone(), admit::admit))
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
        .route(admit::FILES, get(files::download).post(files::upload))
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
        .method_not_allowed_fallback(admit::nothing_here)
        .route_layer(middleware::from_fn_with_state(e2b.clone(), admit::by_token))
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
