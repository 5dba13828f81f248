//! Removal of a repository with its volume.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use hivekeep_kernel::{CallCx, Layer, ToolError, fault_point};
use serde_json::{Value, json};

use crate::{
    binding::Operation,
    bindings::Answer,
    codes,
    job::{Finished, Job},
    repositories::Repositories,
    tools::{RepositoryDelete, RepositoryDeleted},
};

impl Repositories {
    pub(crate) async fn delete(
        self: Arc<Self>,
        cx: CallCx,
        input: RepositoryDelete,
    ) -> Answer<RepositoryDeleted> {
        self.operate(&cx, &input.binding_id, Operation::Delete, None, deleted).await
    }
}

/// Removes the volume, then the records. A volume that workspaces have stays, and so does the rest.
pub(crate) fn deleted(job: Arc<Job>) -> BoxFuture<'static, Answer<Finished<RepositoryDeleted>>> {
    async move {
        fault_point!("repository.after_delete_began");
        job.step("removing the volume");
        if let Some(volume) = job.binding.volume {
            let users = job.users().await?;
            let args = json!({ "volume_id": volume });
            let removed: Answer<Value> = match users.is_empty() {
                true => job.call("aegis.volume.delete", args).await,
                false => Err(in_use(&job, users.iter().map(ToString::to_string).collect())),
            };
            match removed {
                // Its user removed it before.
                Err(error) if error.code == "volume_not_found" => {}
                Err(error) if error.code == "volume_in_use" => {
                    return Err(in_use(&job, Vec::new()));
                }
                removed => drop(removed?),
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

fn in_use(job: &Job, workspaces: Vec<String>) -> ToolError {
    let label = &job.binding.terms.label;
    let message = match workspaces.is_empty() {
        true => format!("the volume of the repository `{label}` is mounted into a workspace"),
        false => {
            format!(
                "the volume of the repository `{label}` is mounted into {}",
                workspaces.join(", ")
            )
        }
    };
    ToolError::new(Layer::Actor, codes::REPOSITORY_IN_USE, message)
        .next("destroy these workspaces, or start them with other `volumes`")
        .detail("workspaces", workspaces)
}
