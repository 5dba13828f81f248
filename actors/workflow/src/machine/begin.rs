//! Beginning of a workflow's run: its first record, and the volumes that its states share.

use std::sync::Arc;

use chrono::Utc;
use hivekeep_kernel::{Layer, RunId, SessionId, ToolError, User, WorkflowId};
use hivekeep_manifest::{common::JsonObject, workflow::WorkflowManifest};
use hivekeep_plan::resolve::RunBeginning;
use hivekeep_runtime::json_schema;
use serde_json::{Value, json};

use super::{
    obeyed::not_obeyed,
    text::{RunWorkflow, WORKSPACE},
};
use crate::{
    codes::WORKFLOW_INVALID,
    run::{RunBegun, RunFold, RunPlace, RunRecord, RunResolved, RunSaga, RunText, RunTrigger},
};

/// Request for a run of a workflow.
#[derive(Debug, Clone)]
pub struct MachineRequest {
    /// Id of the run.
    pub id: RunId,
    /// Owner of the run.
    pub user: User,
    /// Session that asks for it.
    pub session: SessionId,
    /// Workflow whose manifest it is.
    pub workflow_id: WorkflowId,
    /// Checked manifest. The run keeps it, whatever becomes of the workflow.
    pub manifest: Box<WorkflowManifest>,
    /// Intent in words.
    pub intent: Option<String>,
    /// Input, null if there is none.
    pub input: Value,
    /// Keys of the blackboard in place of the context's, and beside them.
    pub blackboard: JsonObject,
    /// Reason of the run.
    pub trigger: RunTrigger,
}

impl MachineRequest {
    /// First record of the run.
    ///
    /// # Errors
    /// `workflow_invalid` for an input that does not fit, for keys that nobody may set, and for what no run obeys.
    pub(crate) fn begun(self, depth: u32) -> Result<RunRecord, ToolError> {
        let Self { id, user, session, workflow_id, manifest, intent, mut input, .. } = self;
        if let Some(field) = not_obeyed(&manifest) {
            return Err(invalid(format!("no run obeys {field}")));
        }
        if let Some(schema) = &manifest.metadata.input_schema {
            fit(schema, &mut input).map_err(invalid)?;
        }
        let (name, blackboard) = (manifest.metadata.name.clone(), self.blackboard);
        let text = RunWorkflow { workflow_id, manifest: *manifest, intent, input, blackboard };
        text.blackboard(id).map_err(invalid)?;
        Ok(RunRecord::Begun(Box::new(RunBegun {
            id,
            user,
            session,
            name,
            trigger: self.trigger,
            queue: None,
            place: match text.volume(id, WORKSPACE) {
                Some(volume) => RunPlace::Folder(format!("volume:{volume}")),
                None => RunPlace::Own,
            },
            folder: String::new(),
            text: RunText::Workflow(Box::new(text)),
            depth,
            at: Utc::now(),
        })))
    }
}

/// Puts the defaults of a schema into an input, and checks it.
fn fit(schema: &JsonObject, input: &mut Value) -> Result<(), String> {
    if input.is_null() {
        *input = json!({});
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (key, property) in properties.into_iter().flatten() {
        if let (Some(default), Some(input)) = (property.get("default"), input.as_object_mut()) {
            input.entry(key.clone()).or_insert_with(|| default.clone());
        }
    }
    let validator = json_schema::validator(&Value::Object(schema.clone()))?;
    let fault = validator.iter_errors(input).next().map(|error| {
        let place = error.instance_path().as_str().to_owned();
        format!("the input at `{place:.80}`: {}", error.masked_with("the value"))
    });
    fault.map_or(Ok(()), Err)
}

impl RunSaga {
    /// Makes the volumes of a workflow's run, and its plan. A volume that was made before a crash has its label.
    ///
    /// # Errors
    /// Those of making a volume.
    pub(crate) async fn prepare_machine(
        &self,
        run: &RunFold,
        text: &RunWorkflow,
    ) -> Result<RunResolved, ToolError> {
        for volume in text.storage() {
            let label = format!("{}-{}", run.begun.id, volume.name);
            let ttl_hours = (!volume.persists).then_some(volume.ttl_hours);
            self.make_volume(run, &label, volume.size_bytes, ttl_hours).await?;
        }
        Ok(RunResolved { plan: Arc::new(text.plan()), beginning: RunBeginning::default() })
    }
}

pub(super) fn invalid(message: String) -> ToolError {
    ToolError::new(Layer::Actor, WORKFLOW_INVALID, message)
        .next("mend the input or the manifest; nothing was run")
}
