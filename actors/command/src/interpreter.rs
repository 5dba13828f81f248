//! Client of the code interpreter in a workspace: HTTP/1.1 over a connection to its port, and lazy start where
//! nothing listens there.
//!
//! ```text
//! run_code ─▶ judged ─▶ dial ─▶ contexts ─▶ execute ─▶ lines of JSON ─▶ result
//!                        └─ closed: start, wait for its word, dial again
//! ```
//! The port decides who is first: a second server finds it taken and ends. A call that ends early drops its
//! connection, and the interpreter interrupts what runs for it.

mod start;
mod told;
mod wire;

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{CallCx, Layer, ToolError, ports::PlaceWorkspace};
use hyper::StatusCode;
use serde_json::json;

use crate::{
    codes,
    commands::CommandService,
    tools::{CodeRun, DEFAULT_CONTEXT, RunCode},
};
use told::Told;

type Answer<T> = Result<T, ToolError>;

impl CommandService {
    pub(crate) async fn run_code(self: Arc<Self>, cx: CallCx, input: RunCode) -> Answer<CodeRun> {
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
    async fn prepare(&self, cx: &CallCx, place: &PlaceWorkspace, input: &RunCode) -> Answer<()> {
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
    ) -> Answer<()> {
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
fn accepted((status, text): (StatusCode, String)) -> Answer<()> {
    let text: String = text.chars().take(300).collect();
    match status {
        status if status.is_success() => Ok(()),
        StatusCode::BAD_REQUEST => Err(ToolError::invalid(text)),
        status => Err(failed(format!("the interpreter answers {}: {text}", status.as_u16()))),
    }
}

fn failed(why: String) -> ToolError {
    ToolError::new(Layer::Guest, codes::INTERPRETER_FAILED, why)
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
