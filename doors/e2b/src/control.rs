//! Control plane: sandboxes made, listed, prolonged, paused, forked and removed, by the tools of workspaces.

mod create;
mod fork;
mod lifetime;
mod list;
mod logs;
mod metrics;
mod network;
mod sandbox;
mod snapshots;

use std::sync::Arc;

use axum::{
    Json,
    body::Bytes,
    extract::{FromRequest, Path, Request, State},
    http::StatusCode,
};
use hivekeep_door_server::codes;
use hivekeep_kernel::ToolError;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    error::E2bError,
    state::{E2b, Owner},
};
use sandbox::Sandbox;

pub(super) use sandbox::PUBLIC_PORTS;

pub(super) use create::create;
pub(super) use fork::fork;
pub(super) use lifetime::{connect, pause, resume};
pub(super) use lifetime::{refresh, set_timeout};
pub(super) use list::{list, list_v2};
pub(super) use logs::{logs, logs_v2};
pub(super) use metrics::{metrics, metrics_of_many, metrics_of_this};
pub(super) use network::update_network;
pub(super) use snapshots::{create_snapshot, delete_template, list_snapshots};

/// Body of a request; one that is empty is as an empty object.
pub(super) struct BodyOf<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for BodyOf<T> {
    type Rejection = E2bError;
    async fn from_request(request: Request, state: &S) -> Result<Self, E2bError> {
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|error| E2bError::invalid(error.body_text()))?;
        let body = if body.trim_ascii().is_empty() { &b"{}"[..] } else { &body };
        let parsed = hivekeep_runtime::json_text::body(body);
        parsed
            .map(Self)
            .map_err(|error| E2bError::invalid(format!("the body is not valid: {error}")))
    }
}

impl E2b {
    /// An owner's sandbox by its id.
    ///
    /// # Errors
    /// For a sandbox that is not the owner's.
    pub(super) async fn sandbox(&self, owner: &Owner, id: &str) -> Result<Sandbox, E2bError> {
        let asked = json!({ "workspace_id": id });
        let told = read_past_its_end(|| self.call(owner, "workspace_info", asked.clone())).await;
        let told = told.map_err(|error| gone_is_not_found(id)(error.into()))?;
        let found: Sandbox = serde_json::from_value(told).map_err(|error| {
            ToolError::internal(format!("the result of workspace_info: {error}"))
        })?;
        match found.is_there() && found.owned {
            true => Ok(found),
            false => Err(not_found(id)),
        }
    }

    /// Names of an owner's sandboxes, and of those that were killed and are kept for their snapshots.
    async fn all_names(&self, owner: &Owner) -> Result<Vec<String>, E2bError> {
        let all = self.workspaces(owner).await?;
        Ok(all.into_iter().map(|sandbox| sandbox.name).collect())
    }

    /// An owner's sandboxes, the oldest first.
    async fn sandboxes(&self, owner: &Owner) -> Result<Vec<Sandbox>, E2bError> {
        let all = self.workspaces(owner).await?;
        Ok(all.into_iter().filter(Sandbox::is_there).collect())
    }

    async fn workspaces(&self, owner: &Owner) -> Result<Vec<Sandbox>, E2bError> {
        #[derive(Deserialize)]
        struct Listed {
            workspaces: Vec<Sandbox>,
        }
        let Listed { workspaces } = self.ask(owner, "workspace_list", json!({})).await?;
        Ok(workspaces.into_iter().filter(|it| it.owned).collect())
    }
}

/// Reads again where the workspace ended during the read, as at the end of its lifetime: the answer then is
/// that it is gone.
async fn read_past_its_end<F: Future<Output = Result<Value, ToolError>>>(
    read: impl Fn() -> F,
) -> Result<Value, ToolError> {
    match read().await {
        Err(error) if error.is(codes::ACTOR_UNAVAILABLE) => read().await,
        told => told,
    }
}

fn not_found(id: &str) -> E2bError {
    E2bError::no_sandbox(id).of_control()
}

/// On this plane a sandbox that is gone is not found.
fn gone_is_not_found(id: &str) -> impl Fn(E2bError) -> E2bError {
    let none = not_found(id);
    move |error| match error.kind {
        super::error::Kind::Gone => none.clone(),
        _ => error,
    }
}

/// `GET /sandboxes/{id}`.
pub(super) async fn info(
    State(e2b): State<Arc<E2b>>,
    owner: Owner,
    Path(id): Path<String>,
) -> Result<Json<Value>, E2bError> {
    let sandbox = e2b.sandbox(&owner, &id).await?;
    Ok(Json(e2b.detail(&owner, &sandbox)?))
}

/// `DELETE /sandboxes/{id}`. A sandbox that has snapshots is kept for them, stopped and out of sight.
pub(super) async fn kill(
    State(e2b): State<Arc<E2b>>,
    owner: Owner,
    Path(id): Path<String>,
) -> Result<StatusCode, E2bError> {
    let sandbox = e2b.sandbox(&owner, &id).await?;
    match snapshots::kept(&sandbox.snapshots).is_empty() {
        true => {
            let asked = json!({ "workspace_id": sandbox.name });
            e2b.call(&owner, "workspace_destroy", asked)
                .await
                .map_err(E2bError::from)
                .map_err(gone_is_not_found(&id))?;
        }
        false => e2b.put_away(&owner, &sandbox).await?,
    }
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use hivekeep_kernel::{ErrorCode, Layer};

    use super::*;

    /// Error of a read that fails with these codes in turn, and the number of codes left.
    async fn told(answers: &[&'static ErrorCode]) -> (String, usize) {
        let answers = RefCell::new(answers.to_vec());
        let read = || async {
            let code = answers.borrow_mut().remove(0);
            Err(ToolError::new(Layer::Actor, code, "by script"))
        };
        let told = read_past_its_end(read).await.expect_err("by script").code.into_owned();
        (told, answers.borrow().len())
    }

    #[tokio::test]
    async fn one_that_ends_under_the_question_is_asked_for_once_more() {
        let (gone, busy) = (codes::WORKSPACE_NOT_FOUND, codes::BUSY);
        let under_it = codes::ACTOR_UNAVAILABLE;
        assert_eq!(told(&[under_it, gone]).await, ("workspace_not_found".to_owned(), 0));
        assert_eq!(told(&[under_it, under_it, gone]).await, ("actor_unavailable".to_owned(), 1));
        assert_eq!(told(&[busy, gone]).await, ("busy".to_owned(), 1));
    }
}
