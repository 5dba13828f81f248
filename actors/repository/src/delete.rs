//! Removal of a repository with its volume.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use hivekeep_kernel::{CallCx, Layer, ToolError, WorkspaceId, fault_point};
use serde_json::{Value, json};

use crate::{
    binding::RepositoryOperation,
    bindings::RepositoryResult,
    codes,
    job::{Finished, RepositoryJob},
    repositories::Repositories,
    tools::{RepositoryDelete, RepositoryDeleted},
};

impl Repositories {
    pub(crate) async fn delete(
        self: Arc<Self>,
        cx: CallCx,
        input: RepositoryDelete,
    ) -> RepositoryResult<RepositoryDeleted> {
        self.operate(&cx, &input.binding_id, RepositoryOperation::Delete, None, deleted).await
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
