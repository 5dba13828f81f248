//! The tools `bash` and `think`: a line of shell, and a thought.

use std::{collections::BTreeMap, sync::Arc};

use hivekeep_kernel::{CallCx, Layer, ToolError, WorkspaceId, tools};
use hivekeep_ports::{CommandEnd, CommandLimits};
use hivekeep_store::NewEvent;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{MAX_PLACE_CHARS, MAX_WORD_CHARS, with_place};
use crate::{
    codes,
    commands::{CommandResult, CommandService, head},
};

/// Time limit of a call that names none.
const TIMEOUT_SECS: u64 = 120;
/// Longest time limit.
const MAX_TIMEOUT_SECS: u64 = 600;

/// Characters of each stream that `bash` shows.
const SHOWN_CHARS: usize = 100_000;

/// Run a line or script of bash in your place and wait for its end: pipes, loops and the rest of the
/// language. Each call begins anew in the place's root.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Bash {
    /// The script.
    #[schemars(length(min = 1, max = MAX_WORD_CHARS))]
    command: String,
    /// Time limit in seconds, 1 to 600, at which it is killed with all that it started.
    #[schemars(range(min = 1, max = MAX_TIMEOUT_SECS))]
    #[serde(default = "default_timeout")]
    timeout: u64,
    /// Name of the place, or `[USER@]WORKSPACE[:FOLDER]`. Default: the session's.
    #[schemars(length(max = MAX_PLACE_CHARS))]
    place: Option<String>,
}

fn default_timeout() -> u64 {
    TIMEOUT_SECS
}

/// Output and exit status of a script.
#[derive(Debug, Serialize, JsonSchema)]
struct BashEnd {
    /// stdout, then after a line `STDERR:` what it wrote to stderr; of each the first 100,000 characters.
    output: String,
    /// True if it exited with another status than 0, was killed or reached its limit.
    is_error: bool,
    /// Exit status; 128 and the signal's number when a signal ended it.
    exit_code: i32,
    /// True if it reached its limit.
    timed_out: bool,
    /// True if some of its output is left out.
    truncated: bool,
    /// Shell that ran it: `bash`, or `sh` where there is no bash.
    shell: String,
    /// Wall-clock time in the guest.
    elapsed_ms: u64,
    /// Place that it ran in.
    place: String,
    /// Workspace of the place.
    #[schemars(with = "String")]
    workspace_id: WorkspaceId,
}

/// Write a thought down: a plan, a conclusion, what to do next. It becomes an event of the session and
/// changes nothing else.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Think {
    /// The thought.
    #[schemars(length(min = 1, max = 16_384))]
    thought: String,
}

/// A thought that is recorded.
#[derive(Debug, Serialize, JsonSchema)]
struct Thought {
    /// `recorded`: it is on the disk.
    status: String,
    /// Number of the event `session.thought`.
    event: u64,
}

tools! { pub(crate) FAMILY: "agent" for service CommandService, singleton commands;
    bash: Bash => BashEnd = CommandService::bash {
        title: "Run a script of bash", rate: RateClass::Exec, open_world: true, keyed: true,
        timeout_secs: TIMEOUT_SECS, result_budget_bytes: 16 * 1024 * 1024,
        limit_secs: |input| with_place(input, "timeout", TIMEOUT_SECS),
    };
    think: Think => Thought = CommandService::think {
        title: "Write a thought down",
    };
}

impl CommandService {
    async fn bash(self: Arc<Self>, cx: CallCx, input: Bash) -> CommandResult<BashEnd> {
        let line = self.rules.script(&input.command)?;
        let place = self.place(&cx, input.place.as_deref()).await?;
        let limits = CommandLimits {
            timeout_secs: input.timeout,
            // A character has at most four.
            output_bytes: 4 * SHOWN_CHARS as u64,
            tail: false,
        };
        let run = async |shell: &str| {
            let cx = cx.further(shell);
            let argv = [shell, "-c", &line].map(str::to_owned).to_vec();
            let spec = self.spec(&place, argv, place.root.clone(), BTreeMap::new())?;
            self.commands.run(&cx, place.workspace, spec, limits).await
        };
        let (shell, end) = match run("bash").await {
            // An attempt before this one may have been at the other.
            Err(error) if error.is(codes::CANNOT_START) || error.is(codes::EFFECT_UNKNOWN) => {
                ("sh", run("sh").await?)
            }
            ended => ("bash", ended?),
        };
        let (output, truncated) = shown(&end, input.timeout);
        Ok(BashEnd {
            output,
            is_error: end.exit_code != 0 || end.timed_out,
            exit_code: end.exit_code,
            timed_out: end.timed_out,
            truncated,
            shell: shell.to_owned(),
            elapsed_ms: end.elapsed_ms,
            place: place.place,
            workspace_id: place.workspace,
        })
    }

    async fn think(self: Arc<Self>, cx: CallCx, input: Think) -> CommandResult<Thought> {
        let event = NewEvent {
            kind: "session.thought".to_owned(),
            subject: cx.session.to_string(),
            data: json!({ "thought": (self.redact)(&input.thought) }),
        };
        let event = self.journal.events().publish(event).await.map_err(|error| {
            ToolError::new(Layer::Store, codes::JOURNAL_FAILED, error.to_string())
                .next("repeat it; nothing was recorded as far as is known")
        })?;
        Ok(Thought { status: "recorded".to_owned(), event: event.get() })
    }
}

/// Both streams as one text.
fn shown(end: &CommandEnd, timeout_secs: u64) -> (String, bool) {
    let ((stdout, cut), (stderr, cut_too)) =
        (head(&end.stdout, SHOWN_CHARS), head(&end.stderr, SHOWN_CHARS));
    let mut output = stdout;
    let line = |output: &mut String, text: &str| {
        if !output.is_empty() && !output.ends_with('\n') {
            output.push('\n');
        }
        output.push_str(text);
    };
    if !stderr.is_empty() {
        line(&mut output, "STDERR:\n");
        output.push_str(&stderr);
    }
    if end.timed_out {
        line(&mut output, &format!("[it did not end within {timeout_secs} s and was killed]"));
    }
    if output.is_empty() {
        output.push_str("(no output)");
    }
    (output, cut || cut_too)
}
