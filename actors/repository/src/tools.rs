//! The tools `aegis.git.clone` to `aegis.git.delete`: remotes bound to volumes. A removal takes the volume along.

mod tree;

pub(crate) use tree::looked;

use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::future::{BoxFuture, FutureExt};
use hivekeep_kernel::{
    CallCx, Layer, RepositoryId, Service, ServiceActor, ToolError, ToolGroup, VolumeId,
    WorkspaceId, fault_point, tools,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    binding::{Binding, GitRef, OperationError, RepositoryOperation},
    codes,
    operation::{Finished, RepositoryJob},
    remote::RemoteCredential,
    repositories::{Repositories, RepositoryResult, find, not_found, owned},
};

/// Groups of tools, in listing order.
pub(crate) const FAMILIES: &[&ToolGroup<ServiceActor<Repositories>>] = &[&FAMILY, &tree::FAMILY];

/// Repositories of a page where the call names no number.
const PAGE: u64 = 20;
/// Folders of one sparse checkout.
const MAX_SPARSE_PATHS: usize = 64;
/// Repositories of one page.
const MAX_PAGE: u64 = 100;

/// Bind a remote repository to a new volume of yours, `git-LABEL`, and clone it there. The answer comes at
/// once; aegis.git.status says when it is `ready`. Workspaces that mount the volume have it in the folder LABEL.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RepositoryClone {
    /// The remote: https://HOST/PATH, http:// or git://; or volume://LABEL/PATH for a bare repository on a volume of yours. Without a user or a password: the address is kept.
    #[schemars(length(min = 1, max = 2048))]
    pub(crate) repo_url: String,
    /// Name that no other repository of yours has; the folder of its tree.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"))]
    pub(crate) label: String,
    /// Credential of the operator that the remote must get: `host` of its entry in git.credentials. Default: the one that fits, if any.
    pub(crate) credential_binding_id: Option<String>,
    /// Branch, tag or commit to check out. Default: the branch main.
    #[serde(default)]
    pub(crate) git_ref: GitRef,
    /// Only these folders, and the files beside them on the way. Default: all.
    #[schemars(length(max = MAX_SPARSE_PATHS))]
    #[serde(default)]
    pub(crate) sparse_paths: Vec<String>,
    /// Refused where true: nothing refreshes a repository by itself.
    #[serde(default)]
    pub(crate) auto_refresh: bool,
    /// Clone the newest commit alone, without its history.
    #[serde(default = "yes")]
    pub(crate) shallow: bool,
    /// Size of the volume in bytes; a refresh needs room for the new files beside the old. Default: repository.volume_mb.
    #[schemars(range(min = 1))]
    pub(crate) size_limit_bytes: Option<u64>,
    /// Credential for the remote's server, for this clone alone.
    pub(crate) credential: Option<RemoteCredential>,
}

fn yes() -> bool {
    true
}

/// List your repositories, oldest first.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RepositoryList {
    /// Page, from 1.
    #[schemars(range(min = 1))]
    page: Option<u64>,
    /// Repositories of a page. Default: 20.
    #[schemars(range(min = 1, max = MAX_PAGE))]
    limit: Option<u64>,
}

/// Show how the clone or refresh of a repository goes, and what it has. Looks at no tree: aegis.git.diff does.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RepositoryStatus {
    /// Id or label of the repository.
    binding_id: String,
}

/// Bring a repository to what its remote has. Uncommitted changes are kept; where they are in the way, or
/// commits were not pushed, it is refused. The tree is exchanged in one step: what fails leaves the old one
/// whole, and a process in the old folder has to enter it anew. One that failed to be cloned is cloned again.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RepositoryRefresh {
    /// Id or label of the repository.
    pub(crate) binding_id: String,
    /// Give local changes and commits up that are in the way.
    #[serde(default)]
    pub(crate) discard: bool,
    /// Credential for the remote's server, for this refresh alone.
    pub(crate) credential: Option<RemoteCredential>,
}

/// Delete a repository with its volume; what was not pushed is lost. Refused while a workspace has the volume.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RepositoryDelete {
    /// Id or label of the repository.
    binding_id: String,
}

/// A repository.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct BindingRow {
    /// Id.
    pub(crate) id: RepositoryId,
    /// The id again.
    pub(crate) binding_id: RepositoryId,
    /// Label: the folder of its tree in the volume.
    pub(crate) label: String,
    /// `pending`, `cloning`, `ready`, `refreshing`, `failed` or `deleting`. One whose refresh failed is `ready` with an error.
    pub(crate) status: &'static str,
    /// Step of the operation that runs now; absent where none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) step: Option<&'static str>,
    /// Why the last clone or refresh failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<OperationError>,
    /// Address of the remote.
    pub(crate) repo_url: String,
    /// Branch, tag or commit that was asked for.
    pub(crate) git_ref: GitRef,
    /// Folders that are checked out; empty is all.
    pub(crate) sparse_paths: Vec<String>,
    /// `shallow`, or `full` with all history.
    pub(crate) clone_strategy: &'static str,
    /// Always false.
    pub(crate) auto_refresh: bool,
    /// Credential of the operator that the repository was bound with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) credential_binding_id: Option<String>,
    /// Volume; null until it is made.
    pub(crate) volume_id: Option<VolumeId>,
    /// Commit that the last operation left checked out; null before the first.
    pub(crate) last_commit_sha: Option<String>,
    /// Time at which the repository was cloned.
    pub(crate) last_cloned_at: Option<DateTime<Utc>>,
    /// Time of the last refresh that succeeded.
    pub(crate) last_refreshed_at: Option<DateTime<Utc>>,
    /// Time at which the repository was bound.
    pub(crate) created_at: DateTime<Utc>,
    /// Time of the last operation.
    pub(crate) updated_at: DateTime<Utc>,
}

impl BindingRow {
    pub(crate) fn new(id: RepositoryId, binding: &Binding, step: Option<&'static str>) -> Self {
        let terms = binding.terms.clone();
        Self {
            id,
            binding_id: id,
            label: terms.label,
            status: binding.status(),
            step: binding.begun.map(|_| step.unwrap_or("working")),
            error: binding.error.clone(),
            repo_url: terms.repo_url,
            git_ref: terms.git_ref,
            sparse_paths: terms.sparse_paths,
            clone_strategy: if terms.shallow { "shallow" } else { "full" },
            auto_refresh: false,
            credential_binding_id: terms.credential_binding_id,
            volume_id: binding.volume,
            last_commit_sha: binding.commit.clone(),
            last_cloned_at: binding.cloned_at,
            last_refreshed_at: binding.refreshed_at,
            created_at: terms.created_at,
            updated_at: binding.updated_at,
        }
    }
}

/// Your repositories.
#[derive(Debug, Serialize, JsonSchema)]
struct BindingsListed {
    /// The repositories of the page, oldest first.
    bindings: Vec<BindingRow>,
    /// Number of all your repositories.
    total: u64,
    /// Page.
    page: u64,
    /// Repositories of a page.
    limit: u64,
}

/// A refreshed repository.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RepositoryRefreshed {
    /// Always true: a refresh that failed is an error.
    pub(crate) success: bool,
    /// Whether the tree is another one now.
    pub(crate) updated: bool,
    /// Commit that was checked out before.
    pub(crate) previous_commit_sha: Option<String>,
    /// The repository.
    #[serde(flatten)]
    pub(crate) binding: BindingRow,
}

/// A repository that is gone.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RepositoryDeleted {
    /// Always true: a removal that left anything behind is an error.
    pub(crate) success: bool,
    /// Its former id.
    pub(crate) binding_id: RepositoryId,
    /// Its former label, free again.
    pub(crate) label: String,
    /// Its former volume, gone too; null where none was made.
    pub(crate) volume_id: Option<VolumeId>,
    /// `deleted`.
    pub(crate) status: &'static str,
}

tools! { FAMILY: "repositories" for service Repositories, singleton repositories;
    repository_clone: RepositoryClone => BindingRow = Repositories::bind {
        name: "aegis.git.clone", title: "Bind and clone a repository", rate: RateClass::Create,
        open_world: true,
    };
    repository_list: RepositoryList => BindingsListed = Repositories::list {
        name: "aegis.git.list", title: "List repositories", effect: Read,
    };
    repository_status: RepositoryStatus => BindingRow = Repositories::status {
        name: "aegis.git.status", title: "Status of a bound repository", effect: Read,
    };
    repository_refresh: RepositoryRefresh => RepositoryRefreshed = Repositories::refresh {
        name: "aegis.git.refresh", title: "Refresh a repository", effect: Destroy,
        rate: RateClass::Exec, open_world: true, timeout_secs: 1800,
        told_by: Some("aegis.git.status"),
    };
    repository_delete: RepositoryDelete => RepositoryDeleted = Repositories::delete {
        name: "aegis.git.delete", title: "Delete a repository", effect: Destroy, timeout_secs: 120,
    };
}

impl Service for Repositories {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = FAMILIES;
}

impl Repositories {
    async fn status(
        self: Arc<Self>,
        cx: CallCx,
        input: RepositoryStatus,
    ) -> RepositoryResult<BindingRow> {
        let owner = self.sessions.caller(cx.session)?;
        let (id, log) = find(&self.logs(), owner, &input.binding_id)?;
        let state = log.state().ok_or_else(|| not_found(&input.binding_id))?;
        Ok(self.row(id, &state))
    }

    async fn list(
        self: Arc<Self>,
        cx: CallCx,
        input: RepositoryList,
    ) -> RepositoryResult<BindingsListed> {
        let owner = self.sessions.caller(cx.session)?;
        let (page, limit) = (input.page.unwrap_or(1), input.limit.unwrap_or(PAGE));
        let all: Vec<_> = owned(&self.logs(), owner).map(|(id, _)| id).collect();
        let total = all.len() as u64;
        let first = usize::try_from((page - 1).saturating_mul(limit)).unwrap_or(usize::MAX);
        let shown = all.into_iter().skip(first).take(usize::try_from(limit).unwrap_or(usize::MAX));
        let durable: Vec<_> = {
            let logs = self.logs();
            shown.filter_map(|id| Some((id, logs.get(&id)?.state()?))).collect()
        };
        let bindings: Vec<_> = durable.iter().map(|(id, state)| self.row(*id, state)).collect();
        Ok(BindingsListed { bindings, total, page, limit })
    }

    async fn delete(
        self: Arc<Self>,
        cx: CallCx,
        input: RepositoryDelete,
    ) -> RepositoryResult<RepositoryDeleted> {
        self.operate(&cx, &input.binding_id, RepositoryOperation::Delete, None, deleted).await
    }

    /// A repository as it is now.
    pub(crate) fn row(&self, id: RepositoryId, binding: &Binding) -> BindingRow {
        BindingRow::new(id, binding, self.steps().get(&id).copied())
    }
}

/// Removes the volume, then the records. A volume that workspaces have stays, and so does the rest.
pub(crate) fn deleted(
    job: Arc<RepositoryJob>,
) -> BoxFuture<'static, RepositoryResult<Finished<RepositoryDeleted>>> {
    async move {
        fault_point!("repository.after_delete_began");
        job.step("removing the volume");
        let volume = job.binding.volume;
        let row = job.volumes().await?.into_iter().find(|row| Some(row.volume_id) == volume);
        match row {
            // None was made, or its user removed it before.
            None => {}
            Some(row) if !row.workspaces.is_empty() => return Err(in_use(&job, &row.workspaces)),
            Some(row) => {
                let args = json!({ "volume_id": row.volume_id });
                job.call::<Value>("aegis.volume.delete", args).await?;
            }
        }
        fault_point!("repository.after_volume_deleted");
        job.log.forget().await?;
        job.service.logs().remove(&job.id);
        let value = RepositoryDeleted {
            success: true,
            binding_id: job.id,
            label: job.binding.terms.label.clone(),
            volume_id: job.binding.volume,
            status: "deleted",
        };
        Ok(Finished { value, commit: None })
    }
    .boxed()
}

fn in_use(job: &RepositoryJob, workspaces: &[WorkspaceId]) -> ToolError {
    let names: Vec<_> = workspaces.iter().map(ToString::to_string).collect();
    let label = &job.binding.terms.label;
    let message =
        format!("the volume of the repository `{label}` is mounted into {}", names.join(", "));
    ToolError::new(Layer::Actor, codes::REPOSITORY_IN_USE, message)
        .next("destroy these workspaces, or start them with other `volumes`")
        .detail("workspaces", names)
}
