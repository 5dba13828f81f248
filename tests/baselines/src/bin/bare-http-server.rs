//! The least an HTTP server of one route can be: axum, a JSON body that is read, a fixed JSON answer.
//! What a call over the HTTP API is measured against.
//!
//! The answer is given in the first argument: the daemon's own, so that both sides carry the same
//! bytes. It prints its address. `cargo xtask bench` runs it.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use axum::{
    Json, Router,
    extract::{Path, State},
    response::{IntoResponse, Response},
    routing::post,
};
use serde_json::Value;

async fn invoke(
    State(answer): State<Arc<Value>>,
    Path(tool): Path<String>,
    Json(body): Json<Value>,
) -> Response {
    match answer["tool_id"] == *tool && body["input"].is_object() {
        true => Json(&*answer).into_response(),
        false => axum::http::StatusCode::BAD_REQUEST.into_response(),
    }
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "its address is what it has to say")]
async fn main() -> Result<()> {
    let answer = std::env::args().nth(1).context("the answer is missing")?;
    let answer: Value = serde_json::from_str(&answer)?;
    ensure!(answer["tool_id"].is_string(), "the answer is of no tool");
    let routes =
        Router::new().route("/api/tools/{id}/invoke", post(invoke)).with_state(Arc::new(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    Ok(axum::serve(listener, routes).await?)
}
