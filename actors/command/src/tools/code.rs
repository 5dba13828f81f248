//! The tool `run_code`: code in an interpreter that remembers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use hivekeep_kernel::{CallCx, Layer, ToolError, WorkspaceId, tools};
use hivekeep_ports::PlaceWorkspace;
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Argument, MAX_PLACE_CHARS, with_place};
use crate::{
    codes,
    commands::{CommandResult, CommandService},
    interpreter::{CodeError, Told, failed},
};

/// Time limit of a call that names none.
const TIMEOUT_SECS: u64 = 300;
/// Longest time limit.
const MAX_TIMEOUT_SECS: u64 = 24 * 60 * 60;
/// Context of calls that name none.
const DEFAULT_CONTEXT: &str = "default";

/// Run Python in your place and see what it prints and shows: text, tables, plots. Variables, imports and
/// functions stay for the next call. Needs a place of the image `code-interpreter`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunCode {
    /// The code; the value of its last line is a result. Empty only starts the interpreter, or restarts.
    #[schemars(length(max = 1_000_000))]
    code: String,
    /// Context with variables of its own, made when it is first named.
    #[serde(default = "default_context")]
    #[schemars(length(max = 64), regex(pattern = "^[A-Za-z0-9_.-]+$"))]
    context: String,
    /// Language of the code: `python`.
    #[serde(default = "default_language")]
    #[schemars(length(max = 40))]
    language: String,
    /// True empties the context first, and ends what runs in it.
    #[serde(default)]
    restart: bool,
    /// Environment variables for this code.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 256))]
    env: BTreeMap<String, Argument>,
    /// Time limit in seconds, at which the code is interrupted; variables stay. Default 300.
    #[serde(default = "default_timeout_secs")]
    #[schemars(range(min = 1, max = MAX_TIMEOUT_SECS))]
    timeout_secs: u64,
    /// Name of the place, or `[USER@]WORKSPACE[:FOLDER]`. Default: the session's.
    #[schemars(length(max = MAX_PLACE_CHARS))]
    place: Option<String>,
}

fn default_context() -> String {
    DEFAULT_CONTEXT.to_owned()
}

fn default_language() -> String {
    "python".to_owned()
}

fn default_timeout_secs() -> u64 {
    TIMEOUT_SECS
}

/// Output and results of code.
#[derive(Debug, Serialize, JsonSchema)]
struct CodeRun {
    /// Results that the code showed, each by its forms: text, html, markdown, svg, png, jpeg (base64),
    /// json, data and others. `is_main_result` is the value of the last line; `left_out` has the sizes of
    /// forms that are too long.
    results: Vec<Map<String, Value>>,
    /// The last that it wrote to its standard output.
    stdout: String,
    /// The last that it wrote to its standard error.
    stderr: String,
    /// Bytes of stdout left out before what is shown.
    #[serde(skip_serializing_if = "is_zero")]
    stdout_omitted_bytes: u64,
    /// Bytes of stderr left out before what is shown.
    #[serde(skip_serializing_if = "is_zero")]
    stderr_omitted_bytes: u64,
    /// Results left out behind those that are shown.
    #[serde(skip_serializing_if = "is_zero")]
    results_omitted: u64,
    /// The exception that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<CodeError>,
    /// Number of executions of the context, this one included; absent where none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    execution_count: Option<u64>,
    /// Context that it ran in.
    context: String,
    /// Place that it ran in.
    place: String,
    /// Workspace of the place.
    #[schemars(with = "String")]
    workspace_id: WorkspaceId,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

tools! { pub(crate) FAMILY: "code" for service CommandService, singleton commands;
    run_code: RunCode => CodeRun = CommandService::run_code {
        title: "Run code that remembers", risk: Risk::High, rate: RateClass::Exec, open_world: true,
        timeout_secs: TIMEOUT_SECS, result_budget_bytes: 16 * 1024 * 1024, content: blocks,
        limit_secs: |input| with_place(input, "timeout_secs", TIMEOUT_SECS),
    };
}

/// Pictures as models see them, behind everything else that is told; `None` without any.
fn blocks(run: &Value) -> Option<Vec<Value>> {
    let mut beside = run.clone();
    let mut images = Vec::new();
    for result in beside["results"].as_array_mut()?.iter_mut().filter_map(Value::as_object_mut) {
        for (form, mime) in [("png", "image/png"), ("jpeg", "image/jpeg")] {
            if let Some(data) = result.remove(form) {
                images.push(json!({ "type": "image", "data": data, "mimeType": mime }));
            }
        }
    }
    let text = json!({ "type": "text", "text": beside.to_string() });
    (!images.is_empty()).then(|| std::iter::once(text).chain(images).collect())
}

impl CommandService {
    async fn run_code(self: Arc<Self>, cx: CallCx, input: RunCode) -> CommandResult<CodeRun> {
        // Code can do what any command line of Python can, and is judged as one.
        let argv = ["python3", "-c", &input.code].map(str::to_owned).into();
        let argv = self.rules.program(argv)?;
        let place = self.place(&cx, input.place.as_deref()).await?;
        let env = input.env.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect();
        // The interpreter is started otherwise; what it may be given is judged as a command's.
        let _judged = self.spec(&place, argv, place.root.clone(), env)?;
        self.prepare(&cx, &place, &input).await?;
        let mut told = Told::default();
        if !input.code.is_empty() {
            let limit = Duration::from_secs(input.timeout_secs);
            let run = cx.guard(self.execute(&cx, &place, &input, &mut told));
            match tokio::time::timeout(limit, run).await {
                Ok(ran) => ran?,
                Err(_) => return Err(timed_out(input.timeout_secs, &told, place.place)),
            }
        }
        let ((stdout, stdout_omitted_bytes), (stderr, stderr_omitted_bytes)) =
            (told.stdout.shown(), told.stderr.shown());
        Ok(CodeRun {
            results: told.results,
            stdout,
            stderr,
            stdout_omitted_bytes,
            stderr_omitted_bytes,
            results_omitted: told.results_omitted,
            error: told.error,
            execution_count: told.execution_count,
            context: input.context,
            place: place.place,
            workspace_id: place.workspace,
        })
    }

    /// Starts the interpreter and makes the context, where there is none, and empties it if asked.
    async fn prepare(
        &self,
        cx: &CallCx,
        place: &PlaceWorkspace,
        input: &RunCode,
    ) -> CommandResult<()> {
        let RunCode { context, language, .. } = input;
        let mut is_new = false;
        if context != DEFAULT_CONTEXT {
            let asked = json!({ "id": context, "language": language, "cwd": place.root });
            let exchange = self.interpreter(cx, place).await?;
            match cx.guard(exchange.ask("POST", "/contexts", &asked)).await? {
                (StatusCode::CONFLICT, _) => {}
                answer => {
                    accepted(answer)?;
                    is_new = true;
                }
            }
        }
        if input.restart && !is_new {
            let exchange = self.interpreter(cx, place).await?;
            let path = format!("/contexts/{context}/restart");
            accepted(cx.guard(exchange.ask("POST", &path, &json!({}))).await?)?;
        } else if input.code.is_empty() {
            self.interpreter(cx, place).await?;
        }
        Ok(())
    }

    async fn execute(
        &self,
        cx: &CallCx,
        place: &PlaceWorkspace,
        input: &RunCode,
        told: &mut Told,
    ) -> CommandResult<()> {
        let env: serde_json::Map<_, _> =
            input.env.iter().map(|(name, value)| (name.clone(), json!(value.0))).collect();
        let asked = json!({
            "code": input.code, "context_id": input.context, "language": input.language, "env_vars": env,
        });
        let exchange = self.interpreter(cx, place).await?;
        let mut answer = exchange.send("POST", "/execute", &asked).await?;
        if answer.status != StatusCode::OK {
            let status = answer.status;
            return accepted((status, answer.text().await?));
        }
        while let Some(line) = answer.line().await? {
            told.hear(&line)?;
            if cx.progress.wanted() {
                cx.progress.report(told.lines as f64, None, told.last_output());
            }
        }
        Ok(())
    }
}

/// Refuses what the interpreter refused.
fn accepted((status, text): (StatusCode, String)) -> CommandResult<()> {
    let text: String = text.chars().take(300).collect();
    match status {
        status if status.is_success() => Ok(()),
        StatusCode::BAD_REQUEST => Err(ToolError::invalid(text)),
        status => Err(failed(format!("the interpreter answers {}: {text}", status.as_u16()))),
    }
}

fn timed_out(after_secs: u64, told: &Told, place: String) -> ToolError {
    let message = format!("the code did not end within {after_secs} s and is interrupted");
    ToolError::new(Layer::Guest, codes::COMMAND_TIMED_OUT, message)
        .next("give a larger timeout_secs; what it set before is still there")
        .detail("timeout_secs", after_secs)
        .detail("stdout", told.stdout.shown().0)
        .detail("stderr", told.stderr.shown().0)
        .detail("place", place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_blocks_of_their_own() {
        let run = json!({ "results": [{ "text": "<Figure>", "png": "aGk=" }, { "text": "5" }] });
        let blocks = blocks(&run).expect("a picture");
        assert_eq!(blocks[1], json!({ "type": "image", "data": "aGk=", "mimeType": "image/png" }));
        let text = blocks[0]["text"].as_str().expect("text");
        assert_eq!(text, r#"{"results":[{"text":"<Figure>"},{"text":"5"}]}"#);
        assert_eq!(super::blocks(&json!({ "results": [{ "text": "5" }] })), None);
    }
}
