//! Templates of sandboxes: images, or snapshots of others, which are named `SANDBOX:SNAPSHOT`.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, Query, State},
    http::StatusCode,
    response::Response,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    BodyOf,
    create::new_name,
    gone_is_not_found,
    lifetime::EndAsked,
    list::{page, paged},
    sandbox::{Sandbox, Snapshot},
};
use crate::{
    error::{E2bError, Kind},
    state::{E2b, Owner},
};

/// Beginning of the names of snapshots that forks begin with: nobody asked for them.
pub(super) const OF_FORKS: &str = "fork-";

/// Snapshots that clients have asked for.
pub(super) fn kept(snapshots: &[Snapshot]) -> Vec<&str> {
    let names = snapshots.iter().map(|snapshot| &*snapshot.name);
    names.filter(|name| !name.starts_with(OF_FORKS)).collect()
}

#[derive(Debug, Deserialize)]
pub(in super::super) struct SnapshotBody {
    name: Option<String>,
    memory: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct SnapshotQuery {
    #[serde(rename = "sandboxID")]
    sandbox: Option<String>,
    name: Option<String>,
    limit: Option<usize>,
    #[serde(rename = "nextToken")]
    next_token: Option<String>,
}

fn told(id: &str) -> Value {
    json!({ "snapshotID": id, "names": [id] })
}

impl E2b {
    /// Like [`Self::sandbox`], but also finds one that was killed and is kept for its snapshots.
    async fn kept_sandbox(&self, owner: &Owner, id: &str) -> Result<Sandbox, E2bError> {
        let asked = json!({ "workspace_id": id });
        let found: Sandbox =
            self.ask(owner, "workspace_info", asked).await.map_err(gone_is_not_found(id))?;
        match found.owned {
            true => Ok(found),
            false => Err(super::not_found(id)),
        }
    }

    /// Makes a snapshot; of a sandbox that has no memory to keep, of its disk.
    pub(super) async fn snap(
        &self,
        owner: &Owner,
        sandbox: &Sandbox,
        name: &str,
        memory: bool,
    ) -> Result<(), E2bError> {
        let asked = json!({
            "workspace_id": sandbox.name, "action": "create", "name": name,
            "include_memory": memory && sandbox.is_vm() && sandbox.is_running(),
        });
        let made = self.call(owner, "snapshot", asked).await.map_err(E2bError::from);
        made.map(drop).map_err(gone_is_not_found(&sandbox.name))
    }

    /// Stops a sandbox that was to be removed, and keeps it out of sight for its snapshots.
    pub(super) async fn put_away(&self, owner: &Owner, sandbox: &Sandbox) -> Result<(), E2bError> {
        // The new end comes first: the old one would remove the snapshots, too.
        self.set_end(owner, sandbox, EndAsked::PutAway).await?;
        if sandbox.state != "stopped" {
            self.call(owner, "workspace_stop", json!({ "workspace_id": sandbox.name })).await?;
        }
        Ok(())
    }
}

/// `POST /sandboxes/{id}/snapshots`.
pub(in super::super) async fn create_snapshot(
    State(e2b): State<Arc<E2b>>,
    owner: Owner,
    Path(id): Path<String>,
    BodyOf(SnapshotBody { name, memory }): BodyOf<SnapshotBody>,
) -> Result<(StatusCode, Json<Value>), E2bError> {
    let sandbox = e2b.sandbox(&owner, &id).await?;
    let name = match name {
        Some(name) => name,
        None => format!("snap-{}", new_name(&owner, None)?),
    };
    if name.starts_with(OF_FORKS) {
        return Err(E2bError::invalid(format!(
            "a snapshot's name does not begin with `{OF_FORKS}`"
        )));
    }
    e2b.snap(&owner, &sandbox, &name, memory.unwrap_or(true)).await?;
    // The sandbox is kept for its snapshots at its end.
    if sandbox.at_end() == "destroy" && sandbox.ends_at.is_some() {
        let asked = json!({ "workspace_id": sandbox.name, "at_end": "stop" });
        e2b.call(&owner, "workspace_lifetime", asked).await?;
    }
    Ok((StatusCode::CREATED, Json(told(&format!("{}:{name}", sandbox.name)))))
}

/// `GET /snapshots`.
pub(in super::super) async fn list_snapshots(
    State(e2b): State<Arc<E2b>>,
    owner: Owner,
    Query(query): Query<SnapshotQuery>,
) -> Result<Response, E2bError> {
    let mut ids = Vec::new();
    for name in e2b.all_names(&owner).await? {
        if query.sandbox.as_ref().is_some_and(|wanted| *wanted != name) {
            continue;
        }
        // The sandbox may be gone by now.
        let Ok(sandbox) = e2b.kept_sandbox(&owner, &name).await else { continue };
        ids.extend(
            kept(&sandbox.snapshots).into_iter().map(|snapshot| format!("{name}:{snapshot}")),
        );
    }
    if let Some(wanted) = &query.name {
        let is = |id: &String| {
            id == wanted || id.split_once(':').is_some_and(|(_, name)| name == wanted)
        };
        ids.retain(is);
    }
    let (ids, next) = page(ids, String::clone, query.next_token.as_deref(), query.limit);
    Ok(paged(ids.iter().map(|id| told(id)).collect(), next))
}

/// `DELETE /templates/{id}`: removes a snapshot. A killed sandbox goes with its last one.
pub(in super::super) async fn delete_template(
    State(e2b): State<Arc<E2b>>,
    owner: Owner,
    Path(id): Path<String>,
) -> Result<StatusCode, E2bError> {
    let none = || E2bError::new(Kind::NotFound, format!("there is no snapshot `{id}`"));
    let (sandbox, name) = id.split_once(':').ok_or_else(none)?;
    let sandbox = e2b.kept_sandbox(&owner, sandbox).await.map_err(|_| none())?;
    let names = kept(&sandbox.snapshots);
    if !names.contains(&name) {
        return Err(none());
    }
    let last = names.len() == 1 && !sandbox.is_there();
    let (tool, asked) = match last {
        true => ("workspace_destroy", json!({ "workspace_id": sandbox.name })),
        false => {
            let asked = json!({ "workspace_id": sandbox.name, "action": "delete", "name": name });
            ("snapshot", asked)
        }
    };
    e2b.call(&owner, tool, asked).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Template that the code interpreter's SDKs ask for, and its image here.
const CODE_TEMPLATE: (&str, &str) = ("code-interpreter-v1", "code-interpreter");
/// Longest name of a template.
const NAME_CHARS: usize = 256;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Template {
    Image(String),
    Snapshot { sandbox: String, snapshot: String },
}

impl E2b {
    /// Resolves a client's template: by the configuration, as a snapshot of its own by id or name, or as an
    /// image of that name.
    ///
    /// # Errors
    /// For an invalid name. A missing image is an error only when a sandbox is made of it.
    pub(super) async fn template(&self, owner: &Owner, name: &str) -> Result<Template, E2bError> {
        if name.is_empty() || name.chars().count() > NAME_CHARS {
            return Err(E2bError::invalid("`templateID` is not a valid name of a template"));
        }
        if let Some(image) = self.options.templates.get(name) {
            return Ok(Template::Image(image.clone()));
        }
        let plain = name.strip_suffix(":default").unwrap_or(name);
        if let Some((sandbox, snapshot)) = plain.split_once(':')
            && !plain.contains('/')
            && self.snapshot_names(owner, sandbox).await?.iter().any(|name| name == snapshot)
        {
            let (sandbox, snapshot) = (sandbox.to_owned(), snapshot.to_owned());
            return Ok(Template::Snapshot { sandbox, snapshot });
        }
        let image = if plain == CODE_TEMPLATE.0 { CODE_TEMPLATE.1 } else { plain };
        Ok(Template::Image(image.to_owned()))
    }

    /// Names of a sandbox's snapshots; none of a sandbox that is not the owner's.
    async fn snapshot_names(&self, owner: &Owner, sandbox: &str) -> Result<Vec<String>, E2bError> {
        let found = self.kept_sandbox(owner, sandbox).await;
        match found {
            Ok(found) => Ok(found.snapshots.into_iter().map(|snapshot| snapshot.name).collect()),
            Err(error)
                if matches!(error.kind, Kind::Gone | Kind::NotFound | Kind::InvalidArgument) =>
            {
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }
}
