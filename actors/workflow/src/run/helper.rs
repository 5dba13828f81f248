//! Scripts of the daemon's own that do the action of a step in the run's place.

use hivekeep_kernel::ToolError;
use hivekeep_ports::TaskOutcome;

use super::{
    RunSaga,
    command::{CommandRequest, LONGEST_SECS},
    failure::failed,
    node_try::NodeTry,
    outputs::most_bytes,
    scope::{artifacts_folder, work_folder},
    script::{StepCommand, StepFolders, script},
};

/// Largest script: it is one argument of a program.
const MAX_SCRIPT_BYTES: usize = 120 * 1024;
/// Bytes of what a script that failed says.
const TOLD_BYTES: usize = 2_000;

impl RunSaga {
    /// Runs a script in the working directory of a step, for what it writes. `part` tells it apart from others of the
    /// try.
    ///
    /// # Errors
    /// `step_failed` with what it says when it fails; as [`Self::command`].
    pub(super) async fn helper(
        &self,
        of: &NodeTry<'_>,
        part: &str,
        text: String,
    ) -> Result<String, ToolError> {
        let (place, workspace) = self.environment(of).await?;
        let (named, own_work) = (self.folder(of)?, work_folder(of.state));
        let (own, args) = (format!("{}-{part}", of.folder), ["-c".to_owned(), text]);
        let folders = StepFolders {
            own: &own,
            work: named.as_deref().unwrap_or(&own_work),
            makes_work: named.is_none(),
            declares: true,
            stdout: None,
            stderr: None,
            more: &[artifacts_folder(of.state)],
            user: workspace.user.as_deref(),
        };
        let script = script(
            &StepCommand::Program { program: "/bin/sh", args: &args, stdin: None },
            &folders,
        );
        if script.len() > MAX_SCRIPT_BYTES {
            return Err(failed(format!(
                "its settings have {} bytes as a script, {MAX_SCRIPT_BYTES} are allowed: write large texts by a command",
                script.len()
            )));
        }
        let request = CommandRequest {
            name: format!("{}-{part}", of.name),
            script,
            env: of.scopes.env.clone(),
            timeout_secs: of.node.step.timeout_sec.filter(|secs| *secs > 0).unwrap_or(LONGEST_SECS),
        };
        let cancel = self.cancel_of(of.state, of.key);
        let ran = self.command_in(of.state, (&place, workspace), request, cancel).await?;
        match (&ran.result.outcome, ran.exit_code()) {
            (_, Some(0)) => {
                let most = most_bytes(of.state);
                let said = self.output_of(&ran, true, most).await?;
                match said.len() > most {
                    true => Err(failed(format!("its output is longer than {most} bytes"))),
                    false => Ok(said),
                }
            }
            (TaskOutcome::Cancelled, _) => Err(ToolError::cancelled()),
            (TaskOutcome::TimedOut, _) => Err(failed("it ran out of its time".to_owned())),
            (other, code) => {
                let said = self.output_of(&ran, false, TOLD_BYTES).await?;
                let said: String = said.trim().chars().take(TOLD_BYTES).collect();
                Err(failed(match said.is_empty() {
                    true => format!("it ended: {}, {code:?}", other.word()),
                    false => said,
                }))
            }
        }
    }
}
