//! Artifacts of all users, for the operator.

use std::sync::Arc;

use hivekeep_artifact::{ArtifactAccess::Operator, Artifacts, OpenArtifact};
use hivekeep_kernel::{ArtifactId, ToolError};
use serde_json::{Value, json};

use super::{Outlet, requests::value};
use crate::doors::DaemonServices;

/// Bytes in one item.
const PART_BYTES: usize = OpenArtifact::MOST_BYTES / 4;

fn store(core: &DaemonServices) -> Result<Arc<Artifacts>, ToolError> {
    core.ports.need::<Artifacts>()
}

pub(super) fn list(core: &DaemonServices) -> Result<Value, ToolError> {
    value(store(core)?.list(Operator))
}

/// Sends an artifact's info and then its text in parts, as long as the client reads.
pub(super) async fn send(
    core: &DaemonServices,
    artifact: ArtifactId,
    outlet: &Outlet,
) -> Result<Value, ToolError> {
    let open = store(core)?.open(artifact, Operator).await?;
    if !outlet.item(json!(*open.info)).await {
        return Ok(Value::Null);
    }
    let mut at = Some(0);
    while let Some(offset) = at {
        let part = open.text(offset, PART_BYTES).await?;
        if !outlet.item(Value::String(part.text)).await {
            break;
        }
        at = part.next;
    }
    Ok(Value::Null)
}

pub(super) async fn remove(
    core: &DaemonServices,
    artifact: ArtifactId,
) -> Result<Value, ToolError> {
    value(store(core)?.remove(artifact, Operator).await?)
}
