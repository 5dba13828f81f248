//! Outputs of a step: those that it declares, values of its streams, variables for the steps behind it.

use std::time::Duration;

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_manifest::{
    common::JsonObject,
    dag::{
        DagDeclaredType, DagOutput, DagOutputOrigin, DagOutputSource, DagOutputValue, DagStep,
        DagStream, DagStreamOutputs,
    },
};
use hivekeep_plan::{
    resolve::{TextField, decode, output_file, resolve_value, value_text},
    schema::fits,
};
use hivekeep_ports::{TaskCapture, TaskText};
use hivekeep_runtime::{OnBehalfOf, json_text};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    NodeLeft, RunFold, RunSaga, RunWorkspace,
    command::RanTask,
    failure::failed,
    scope::{RunScopes, too_long},
    script::output_file as output_path,
    state::RunWork,
};
use crate::codes;

/// Most bytes of an output where the DAG names no bound.
const OUTPUT_BYTES: usize = 1024 * 1024;
/// Largest file of outputs.
pub(super) const READ_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of a text that are kept as a log, as many as of a command's stream.
const LOG_BYTES: usize = 16 * 1024;
/// Time limit of reading a file.
const READING: Duration = Duration::from_secs(60);

/// Origin of what a step wrote.
pub(super) enum StepOutput<'s> {
    /// Command, with the folder of its try.
    Task { ran: &'s RanTask, folder: &'s str },
    /// Program of an agent, by its last text, with the folder of its try.
    Program { text: &'s str, workspace: &'s RunWorkspace, folder: &'s str },
    /// Text of something else, as it would be written to the standard output.
    Text(&'s str),
}

/// Step that has done its work.
pub(super) struct Succeeded<'s> {
    pub(super) state: &'s RunFold,
    pub(super) work: &'s RunWork,
    pub(super) scopes: &'s RunScopes,
    pub(super) step: &'s DagStep,
    pub(super) from: StepOutput<'s>,
}

impl RunSaga {
    /// Collects what a step declares.
    ///
    /// # Errors
    /// `step_failed` where something is not as it is declared.
    pub(super) async fn collect(&self, of: &Succeeded<'_>) -> Result<NodeLeft, ToolError> {
        let mut left = NodeLeft::default();
        if let StepOutput::Task { ran, .. } = &of.from {
            left.stdout_file.clone_from(&ran.result.capture.stdout.path);
            left.stderr_file.clone_from(&ran.result.capture.stderr.path);
            left.logs = Some(Box::new(ran.result.capture.clone()));
        }
        if let StepOutput::Text(text) = of.from {
            left.logs = Some(Box::new(log_of(text)));
        }
        let most = most_bytes(of.state);
        if let Some(declared) = &of.step.outputs
            && let StepOutput::Task { folder, .. } | StepOutput::Program { folder, .. } = &of.from
        {
            let is_json = |kind: Option<DagDeclaredType>| kind == Some(DagDeclaredType::Json);
            let declared: Vec<_> =
                declared.iter().map(|it| (it.name.as_str(), is_json(it.output_type))).collect();
            let text = self.file(of, &output_path(folder)).await?;
            let outputs = output_file(text.as_bytes(), &declared, most);
            left.outputs = outputs.map_err(|error| failed(format!("its outputs: {error}")))?;
        }
        if let Some(schema) = &of.step.output_schema {
            let value = by_schema(schema, &self.stream(of, true, most).await?)?;
            let members = value.as_object().into_iter().flatten();
            let members = members.map(|(name, it)| (name.clone(), value_text(it).into_owned()));
            left.outputs.extend(members);
            left.output = Some(value);
        }
        match &of.step.output {
            None => {}
            Some(DagOutput::Variable(name)) => {
                let text = self.stream(of, true, most).await?;
                let name = name.trim_matches(['$', '{', '}']).to_owned();
                left.variables.insert(name, text.trim().to_owned());
            }
            Some(DagOutput::Values(values)) => {
                let mut object = Map::new();
                for (name, value) in values {
                    object.insert(name.clone(), self.value(of, value, most).await?);
                }
                left.output = Some(Value::Object(object));
            }
        }
        if let Some(DagStream::Detail(detail)) = &of.step.stdout
            && let Some(outputs) = &detail.outputs
        {
            left.published = Some(self.published(of, outputs, most).await?);
        }
        Ok(left)
    }

    async fn published(
        &self,
        of: &Succeeded<'_>,
        outputs: &DagStreamOutputs,
        most: usize,
    ) -> Result<Value, ToolError> {
        let detail = match outputs {
            DagStreamOutputs::Field(name) => {
                let text = self.stream(of, true, most).await?;
                return Ok(json!({ name.as_str(): text.trim() }));
            }
            DagStreamOutputs::Detail(detail) => detail,
        };
        let mut object = Map::new();
        if let Some(fields) = &detail.fields {
            for (name, value) in fields {
                object.insert(name.clone(), self.value(of, value, most).await?);
            }
            return Ok(Value::Object(object));
        }
        let source = DagOutputSource {
            from: None,
            path: None,
            decode: detail.decode,
            select: detail.select.clone(),
        };
        let value = self.taken(of, &source, most).await?;
        Ok(match &detail.field {
            Some(name) => json!({ name.as_str(): value }),
            None => value,
        })
    }

    async fn value(
        &self,
        of: &Succeeded<'_>,
        value: &DagOutputValue,
        most: usize,
    ) -> Result<Value, ToolError> {
        let literal = |value: &Value| {
            let texts = of.scopes.texts(of.work);
            let resolved = resolve_value(value, TextField::StepText, &texts);
            resolved.map_err(|_| too_long("output"))
        };
        match value {
            DagOutputValue::Taken(source) => self.taken(of, source, most).await,
            DagOutputValue::Given(given) => literal(&given.value),
            DagOutputValue::Literal(value) => literal(value),
        }
    }

    async fn taken(
        &self,
        of: &Succeeded<'_>,
        source: &DagOutputSource,
        most: usize,
    ) -> Result<Value, ToolError> {
        let text = match source.from.unwrap_or(DagOutputOrigin::Stdout) {
            DagOutputOrigin::Stdout => self.stream(of, true, most).await?,
            DagOutputOrigin::Stderr => self.stream(of, false, most).await?,
            DagOutputOrigin::File => {
                let path = source.path.as_deref().unwrap_or_default();
                let path = of.scopes.resolve(of.work, path, TextField::StepText)?;
                let workdir = match &of.from {
                    StepOutput::Task { ran, .. } => ran.result.capture.workdir.as_deref(),
                    StepOutput::Program { workspace, .. } => Some(workspace.root.as_str()),
                    StepOutput::Text(_) => None,
                };
                let workdir = workdir.unwrap_or_default();
                match path.starts_with('/') {
                    true => self.file(of, &path).await?,
                    false => self.file(of, &format!("{workdir}/{path}")).await?,
                }
            }
        };
        let form = source.decode.unwrap_or(hivekeep_manifest::dag::DagOutputForm::Text);
        let value = decode(&text, form, source.select.as_deref());
        value.map_err(|error| failed(format!("its output {error}")))
    }

    async fn stream(
        &self,
        of: &Succeeded<'_>,
        of_stdout: bool,
        most: usize,
    ) -> Result<String, ToolError> {
        let text = match of.from {
            StepOutput::Task { ran, .. } => self.output_of(ran, of_stdout, most).await?,
            StepOutput::Text(text) | StepOutput::Program { text, .. } if of_stdout => {
                text.to_owned()
            }
            StepOutput::Text(_) | StepOutput::Program { .. } => String::new(),
        };
        match text.len() > most {
            true => Err(failed(format!("its output is longer than {most} bytes"))),
            false => Ok(text),
        }
    }

    /// Text of a file of the workspace.
    async fn file(&self, of: &Succeeded<'_>, path: &str) -> Result<String, ToolError> {
        #[derive(Deserialize)]
        struct Content {
            content: String,
            next_offset: u64,
            size_bytes: u64,
        }
        let caller = OnBehalfOf::own(Self::place_session(of.state)?, READING);
        let workspace = match &of.from {
            StepOutput::Task { ran, .. } => ran.workspace.workspace,
            StepOutput::Program { workspace, .. } => workspace.workspace,
            StepOutput::Text(_) => {
                return Err(failed(format!("`{path:.80}`: a step without a command has no files")));
            }
        };
        let args = json!({ "workspace_id": workspace, "path": path, "limit": READ_BYTES });
        let read = self.shared.tools.call_idempotent(of.state.begun.id, &caller, "file_read", args);
        let Content { content, next_offset, size_bytes } = read.await?;
        match next_offset < size_bytes {
            true => Err(failed(format!("`{path:.80}` is larger than {READ_BYTES} bytes"))),
            false => Ok(content),
        }
    }
}

/// Value of an output that has a schema.
///
/// # Errors
/// `output_invalid`.
fn by_schema(schema: &JsonObject, text: &str) -> Result<Value, ToolError> {
    let parsed = json_text::from_str::<Value>(text.trim());
    let fitting = match parsed {
        Ok(value) => fits(schema, &value).map(|()| value),
        Err(error) => Err(vec![format!("it is not JSON: {error}")]),
    };
    fitting.map_err(|faults| {
        let first = faults.first().cloned().unwrap_or_default();
        let message = format!("its output does not fit `output_schema`: {first}");
        ToolError::new(Layer::Actor, codes::OUTPUT_INVALID, message).detail("problems", faults)
    })
}

/// Log of a step that is no command: the beginning of its text.
fn log_of(text: &str) -> TaskCapture {
    let end = text.floor_char_boundary(LOG_BYTES);
    let stdout = TaskText {
        text: text[..end].to_owned(),
        truncated: end < text.len(),
        total_bytes: text.len() as u64,
        path: None,
    };
    TaskCapture { stdout, ..TaskCapture::default() }
}

/// Most bytes of an output.
pub(super) fn most_bytes(state: &RunFold) -> usize {
    let most = state.begun.dag.max_output_size;
    most.and_then(|most| usize::try_from(most).ok()).unwrap_or(OUTPUT_BYTES)
}
