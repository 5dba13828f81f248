//! `exec_parallel`: one command in each of several workspaces, all at once.

use std::time::{Duration, Instant};

use hivekeep_kernel::{CallCx, Reply, ToolError};

use super::Workspaces;
use crate::{
    api::{
        execution::{Exec, ExecResult},
        parallel::{Commands, ExecParallel, ParallelResult, ParallelRow, ParallelSummary},
    },
    codes,
    directory::DirectoryEntry,
    messages::{ExecRequest, GuestMsg},
};

impl Workspaces {
    /// `exec_parallel`.
    ///
    /// # Errors
    /// When a workspace is unknown, named twice or not the caller's; then nothing is run.
    pub(crate) fn exec_parallel(
        &mut self,
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
            let card = self.of_caller(cx, &workspace_id)?;
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
            let runs =
                runs.into_iter().map(|(named, card, exec)| run(cx.clone(), named, card, exec));
            let results = futures::future::join_all(runs).await;
            let summary = summary(&results, begun.elapsed());
            Ok(ParallelResult { results, summary })
        }))
    }
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
