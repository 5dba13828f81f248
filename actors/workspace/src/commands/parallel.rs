//! `exec_parallel`: one command in each of several workspaces, all at once.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use hivekeep_kernel::{CallCx, Reply, ToolError, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    codes,
    commands::api::{Exec, ExecResult, MAX_TIMEOUT_SECS, default_output_bytes},
    directory::DirectoryEntry,
    manager::Workspaces,
    messages::{ExecRequest, GuestMsg},
};

/// Most workspaces of one call.
const MAX_WORKSPACES: usize = 20;

tools! { pub FAMILY: "execution" for Workspaces, singleton workspaces;
    exec_parallel: ExecParallel => ParallelResult = exec_parallel {
        title: "Run commands in several workspaces", rate: RateClass::Exec, open_world: true,
        timeout_secs: 300, weight: one_each, result_budget_bytes: 64 * 1024 * 1024,
    };
}

/// A call takes a token for each workspace.
fn one_each(input: &serde_json::Value) -> u32 {
    let workspaces = input.get("workspace_ids").and_then(|ids| ids.as_array()).map_or(1, Vec::len);
    u32::try_from(workspaces.clamp(1, MAX_WORKSPACES)).unwrap_or(1)
}

/// Run commands in several workspaces at the same time and collect the results
/// in the order of the workspaces. One that fails does not stop the others.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecParallel {
    /// Ids or names of 1 to 20 workspaces.
    #[schemars(length(min = 1, max = MAX_WORKSPACES))]
    pub workspace_ids: Vec<String>,
    /// Command for all workspaces, or a list with a command for each.
    pub commands: Commands,
    /// Wall-clock limit of each command in seconds, 1 to 86400.
    #[schemars(range(min = 1, max = MAX_TIMEOUT_SECS))]
    #[serde(default = "default_timeout_secs")]
    pub timeout_secs: u64,
    /// Directory to run in; default /workspace.
    pub workdir: Option<String>,
    /// Environment variables for these commands, over those of set_env.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Bytes of stdout, and of stderr, to return of each command.
    #[serde(default = "default_output_bytes")]
    pub max_output_bytes: u64,
}

fn default_timeout_secs() -> u64 {
    300
}

/// Command for all workspaces, or a command for each.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Commands {
    /// The same command in every workspace.
    Same(String),
    /// Commands in the order of the workspaces.
    Each(Vec<String>),
}

/// Results of the commands, with counts.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ParallelResult {
    /// Results in the order of the workspaces.
    pub results: Vec<ParallelRow>,
    /// Counts by outcome.
    pub summary: ParallelSummary,
}

/// Result of the command in a workspace.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ParallelRow {
    /// The workspace, as it was named.
    pub workspace_id: String,
    /// Name of the workspace.
    pub workspace_name: String,
    /// Exit status; -1 when there is none, and then `error` says why.
    pub exit_code: i32,
    /// Stdout of the command, cut with a notice.
    pub stdout: String,
    /// Stderr of the command, cut with a notice, or the error's message.
    pub stderr: String,
    /// The limit was reached and the command killed.
    pub timed_out: bool,
    /// Code of the error, when the command gave no exit status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Counts over all workspaces.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ParallelSummary {
    /// Number of workspaces.
    pub total: usize,
    /// Commands with exit status 0.
    pub succeeded: usize,
    /// Commands that failed otherwise than by a timeout.
    pub failed: usize,
    /// Commands that were killed at the limit.
    pub timed_out: usize,
    /// From the first start to the last end.
    pub elapsed_ms: u64,
}

/// `exec_parallel`.
///
/// # Errors
/// When a workspace is unknown, named twice or not the caller's; then nothing is run.
pub(crate) fn exec_parallel(
    state: &mut Workspaces,
    cx: &CallCx,
    input: ExecParallel,
) -> Result<Reply<ParallelResult>, ToolError> {
    let count = input.workspace_ids.len();
    let commands = match input.commands {
        Commands::Same(command) => vec![command; count],
        Commands::Each(commands) if commands.len() == count => commands,
        Commands::Each(commands) => {
            let message = format!("{} commands for {count} workspaces", commands.len());
            return Err(
                ToolError::invalid(message).next("give one command, or one for each workspace")
            );
        }
    };
    let mut runs = Vec::with_capacity(count);
    for (workspace_id, command) in input.workspace_ids.into_iter().zip(commands) {
        let card = state.of_caller(cx, &workspace_id)?;
        let exec = Exec {
            workspace_id: workspace_id.clone(),
            command,
            timeout_secs: input.timeout_secs,
            workdir: input.workdir.clone(),
            user: None,
            env: input.env.clone(),
            max_output_bytes: input.max_output_bytes,
        };
        runs.push((workspace_id, card, exec));
    }
    let cx = cx.clone();
    Ok(Reply::later(async move {
        // From here on it only waits for guests, each behind its own workspace's mailbox.
        cx.slot.give_back();
        let begun = Instant::now();
        let runs = runs.into_iter().map(|(named, card, exec)| run(cx.clone(), named, card, exec));
        let results = futures::future::join_all(runs).await;
        let summary = summary(&results, begun.elapsed());
        Ok(ParallelResult { results, summary })
    }))
}

async fn run(cx: CallCx, named: String, card: DirectoryEntry, input: Exec) -> ParallelRow {
    // The workspace's own deadlines come first; this one only bounds a lost actor.
    let patience = Duration::from_secs(input.timeout_secs.saturating_add(60)).min(cx.remaining());
    let session = cx.session;
    let outcome = card
        .address
        .ask(patience, |reply| {
            GuestMsg::Exec(Box::new(ExecRequest { cx, session, input, reply })).into()
        })
        .await;
    let outcome = outcome.map_err(ToolError::from).and_then(|outcome| outcome);
    row(named, card.name.to_string(), outcome)
}

fn row(
    workspace_id: String,
    workspace_name: String,
    outcome: Result<ExecResult, ToolError>,
) -> ParallelRow {
    match outcome {
        Ok(result) => ParallelRow {
            workspace_id,
            workspace_name,
            exit_code: result.exit_code,
            stdout: result.stdout,
            stderr: result.stderr,
            timed_out: false,
            error: None,
        },
        Err(error) => {
            let partial = |key: &str| {
                error.details.get(key).and_then(|text| text.as_str()).unwrap_or_default()
            };
            ParallelRow {
                workspace_id,
                workspace_name,
                exit_code: -1,
                stdout: partial("stdout").to_owned(),
                stderr: format!("{}{}", partial("stderr"), error.to_text()),
                timed_out: error.is(codes::EXEC_TIMED_OUT),
                error: Some(error.code.into_owned()),
            }
        }
    }
}

fn summary(rows: &[ParallelRow], elapsed: Duration) -> ParallelSummary {
    let timed_out = rows.iter().filter(|row| row.timed_out).count();
    let succeeded = rows.iter().filter(|row| row.error.is_none() && row.exit_code == 0).count();
    ParallelSummary {
        total: rows.len(),
        succeeded,
        failed: rows.len() - succeeded - timed_out,
        timed_out,
        elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
    }
}
