//! Containers of a state: workspaces of their images over the volumes of the run, and a task in each. A task runs once
//! for its name; a workspace that was used and is gone is not made again.

use futures::future::join_all;
use hivekeep_kernel::ToolError;
use hivekeep_manifest::{
    common::{ByteSize, TimeSpan},
    workflow::{ContainerStep, ContainerUser, WorkflowState},
};
use hivekeep_plan::machine::{CommandOutcome, StateOutput};
use hivekeep_runtime::OnBehalfOf;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    system::{STREAM_BYTES, in_folder},
    text::containers,
    visit::{StateVisit, not_run},
};
use crate::run::{
    CommandRequest, ContainerPlace, LONGEST_SECS, MAKING, RunSaga, as_user, is_shell, life_secs,
    quoted, try_name,
};

/// Variable with the input of the run as JSON, unless the manifest has one of the name.
const INPUTS: &str = "INTENT_INPUTS";
/// Bytes of all streams of a state.
const STATE_BYTES: usize = 6 * STREAM_BYTES;

impl RunSaga {
    pub(super) async fn containers(
        &self,
        at: &StateVisit<'_>,
        cancel: &CancellationToken,
    ) -> Result<StateOutput, ToolError> {
        let steps = containers(at.state);
        let most = STREAM_BYTES.min(STATE_BYTES / (2 * steps.len().max(1)));
        let ends = steps
            .iter()
            .enumerate()
            .map(async |(place, step)| self.container(at, (place, step), most, cancel).await);
        let mut ends = join_all(ends).await;
        if let WorkflowState::ParallelContainerRun { completion, .. } = at.state {
            let mut outcomes = std::collections::BTreeMap::new();
            for (step, end) in steps.into_iter().zip(ends) {
                let outcome = match end {
                    Ok((outcome, _)) => outcome,
                    Err(error) if cancel.is_cancelled() => return Err(error),
                    Err(error) => CommandOutcome { stderr: error.message, ..not_run() },
                };
                outcomes.insert(step.name, outcome);
            }
            return Ok(StateOutput::containers(*completion, outcomes));
        }
        let one = ends.pop().unwrap_or_else(|| Err(ToolError::internal("a state without steps")));
        let (outcome, error) = one?;
        let output = StateOutput::command(outcome);
        Ok(error.map_or(output.clone(), |error| output.failed(error)))
    }

    /// Runs one container up to the end of its last attempt.
    async fn container(
        &self,
        at: &StateVisit<'_>,
        (place, step): (usize, &ContainerStep),
        most: usize,
        cancel: &CancellationToken,
    ) -> Result<(CommandOutcome, Option<String>), ToolError> {
        let words = words(at, step)?;
        let workdir = step.workdir.as_ref().map(|folder| at.rendered("workdir", folder));
        let mut env = at.environment(step.env.as_ref())?;
        env.entry(INPUTS.to_owned()).or_insert_with(|| at.text.input.to_string());
        let timeout_secs = timeout_secs(step);
        let name = at.container_name(place);
        let container = ContainerPlace { place: &name, state: at.name, step: &step.name };
        let request = at.workspace_request(&name, step)?;
        let workspace = self.contained(at.run, container, request, cancel).await?;
        let line = command_line(step, &words, workspace.user.as_deref());
        let script = in_folder(workdir.transpose()?.as_deref(), &line);
        for attempt in 1.. {
            let request = CommandRequest {
                name: format!("{}.{place}-{attempt}", try_name(at.key)),
                script: script.clone(),
                env: env.clone(),
                timeout_secs,
            };
            let ran = self.command_in(at.run, (&name, workspace.clone()), request, cancel).await?;
            let (outcome, error) = self.command_outcome(&ran, attempt, most).await?;
            let Some(pause) = outcome.retry_after(step.retry.as_ref()) else {
                return Ok((outcome, error));
            };
            if tokio::time::timeout(pause, cancel.cancelled()).await.is_ok() {
                break;
            }
        }
        Err(ToolError::cancelled())
    }

    /// Removes the workspaces of a state's containers, as far as it can: those that stay end by themselves.
    pub(super) async fn remove_containers(&self, at: &StateVisit<'_>) {
        let Ok(session) = Self::session(at.run) else { return };
        let caller = OnBehalfOf::own(session, MAKING);
        for place in 0..containers(at.state).len() {
            let name = at.container_name(place);
            if let Err(error) = self.shared.tools.remove(at.run.begun.id, &caller, &name).await {
                tracing::warn!(run = %at.run.begun.id, name, %error, "its container is not removed");
            }
        }
    }
}

impl StateVisit<'_> {
    /// Name of the workspace of a container by its place in the state: as long as names may be.
    fn container_name(&self, place: usize) -> String {
        let run = self.run.begun.id.uuid().simple();
        format!("run-{run}-{}-{}-{place}", self.key.node.0, self.key.tries)
    }

    fn workspace_request(&self, name: &str, step: &ContainerStep) -> Result<Value, ToolError> {
        let run = self.run.begun.id;
        let mounts = step.volumes.iter().flatten().filter_map(|it| {
            let volume = self.text.volume(run, &it.name)?;
            let read_only = it.read_only.unwrap_or_default();
            Some(json!({ "volume": volume, "path": it.mount_path, "read_only": read_only }))
        });
        let mut request = json!({
            "name": name,
            "base_image": self.rendered("image", &step.image)?,
            "volumes": mounts.collect::<Vec<_>>(),
            "lifetime_secs": life_secs(timeout_secs(step)),
            "at_end": "destroy",
        });
        if step.network_mode.as_deref() == Some("none") {
            request["isolation"] = json!("sandbox");
            request["allow_internet"] = json!(false);
        }
        let resources = step.resources.clone().unwrap_or_default();
        let size = |size: Option<&ByteSize>, unit: u64| {
            size.and_then(ByteSize::bytes).map(|bytes| bytes.div_ceil(unit).max(1))
        };
        for (field, value) in [
            ("vcpus", resources.cpu.map(|thousandths| thousandths.div_ceil(1_000).max(1))),
            ("memory_mb", size(resources.memory.as_ref(), 1 << 20)),
            ("disk_gb", size(resources.disk.as_ref(), 1 << 30)),
        ] {
            if let Some(value) = value {
                request[field] = json!(value);
            }
        }
        Ok(request)
    }
}

fn timeout_secs(step: &ContainerStep) -> u64 {
    let limit = step.resources.as_ref().and_then(|it| it.timeout.as_ref());
    let limit = limit.and_then(TimeSpan::duration).map_or(LONGEST_SECS, |it| it.as_secs());
    limit.clamp(1, LONGEST_SECS)
}

/// Words of a container's command; what a shell reads of them is one word, in which values stay text.
fn words(at: &StateVisit<'_>, step: &ContainerStep) -> Result<Vec<String>, ToolError> {
    if step.shell.unwrap_or_default() {
        return Ok(vec![at.command(&step.command.join(" "))?]);
    }
    let is_script =
        |word: &String| word.starts_with('-') && !word.starts_with("--") && word.ends_with('c');
    let of_shell = match step.command.as_slice() {
        [shell, options @ ..] if is_shell(shell) => options.iter().position(is_script),
        _ => None,
    };
    // The word behind the option, which is counted from the shell.
    let of_shell = of_shell.map(|option| option + 2);
    let words = step.command.iter().enumerate();
    words
        .map(|(place, word)| match Some(place) == of_shell {
            true => at.command(word),
            false => at.rendered("command", word),
        })
        .collect()
}

/// Line of a shell that runs a container's program, or its words as a line where it wants a shell.
fn command_line(step: &ContainerStep, words: &[String], images_user: Option<&str>) -> String {
    let program = match step.shell.unwrap_or_default() {
        true => format!("/bin/sh -c {}", quoted(&words.join(" "))),
        false => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
    };
    let user = match step.run_as_user.as_deref() {
        None => images_user.map(str::to_owned),
        Some(ContainerUser::Id(id)) => Some(format!("{id}:{id}")),
        Some(ContainerUser::Ids(ids)) => Some(ids.clone()),
    };
    format!("exec {}{program}", as_user(user.as_deref()))
}
