//! Running commands and background jobs in one workspace.

pub(crate) mod api;
pub(crate) mod env;
pub(crate) mod exec;
pub(crate) mod jobs;
pub(crate) mod parallel;
pub(crate) mod runner;
pub(crate) mod user;

use hivekeep_kernel::{CallCx, Reply, ToolError, tools};

use self::api::{EnvSet, Exec, ExecBackground, ExecResult, JobAction, JobView, SetEnv};
use crate::state::Workspace;

tools! { pub FAMILY: "execution" for Workspace, addressed workspace by workspace_id;
    exec: Exec => ExecResult = exec::exec {
        title: "Run a command", rate: RateClass::Exec, open_world: true, timeout_secs: 120,
        result_budget_bytes: 40 * 1024 * 1024,
    };
    exec_background: ExecBackground => JobView = on_exec_background {
        title: "Background jobs", rate: RateClass::Exec, open_world: true, weight: start_takes_one,
    };
    set_env: SetEnv => EnvSet = env::set_env {
        title: "Set environment variables", effect: Idempotent,
    };
}

/// Only starting a job takes a token; looking at it and ending it are free.
fn start_takes_one(input: &serde_json::Value) -> u32 {
    u32::from(input.get("action").and_then(|action| action.as_str()) == Some("start"))
}

fn on_exec_background(
    state: &mut Workspace,
    cx: &CallCx,
    input: ExecBackground,
) -> Result<Reply<JobView>, ToolError> {
    match input.action {
        JobAction::Start { command, workdir, user, env } => {
            jobs::job_start(state, cx, command, workdir, user, env.unwrap_or_default())
        }
        JobAction::Poll { job_id, stdout_from, stderr_from } => {
            jobs::job_poll(state, cx, job_id, stdout_from.unwrap_or(0), stderr_from.unwrap_or(0))
        }
        JobAction::Kill { job_id, signal } => {
            jobs::job_kill(state, cx, job_id, signal.unwrap_or(9))
        }
    }
}
