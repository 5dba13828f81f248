//! Running commands and background jobs in one workspace.

use hivekeep_kernel::{CallCx, Reply, ToolError, tools};

use crate::{
    api::execution::{EnvSet, Exec, ExecBackground, ExecResult, JobAction, JobView, SetEnv},
    workspace::Workspace,
};

tools! { pub FAMILY: "execution" for Workspace, addressed workspace by workspace_id;
    exec: Exec => ExecResult = Workspace::exec {
        title: "Run a command", rate: RateClass::Exec, open_world: true, timeout_secs: 120,
        result_budget_bytes: 40 * 1024 * 1024,
    };
    exec_background: ExecBackground => JobView = Workspace::on_exec_background {
        title: "Background jobs", rate: RateClass::Exec, open_world: true, weight: start_takes_one,
    };
    set_env: SetEnv => EnvSet = Workspace::set_env {
        title: "Set environment variables", effect: Idempotent,
    };
}

/// Only starting a job takes a token; looking at it and ending it are free.
fn start_takes_one(input: &serde_json::Value) -> u32 {
    u32::from(input.get("action").and_then(|action| action.as_str()) == Some("start"))
}

impl Workspace {
    fn on_exec_background(
        &mut self,
        cx: &CallCx,
        input: ExecBackground,
    ) -> Result<Reply<JobView>, ToolError> {
        let missing = |what: &str| ToolError::invalid(format!("this action needs `{what}`"));
        match input.action {
            JobAction::Start => {
                let command = input.command.ok_or_else(|| missing("command"))?;
                self.job_start(cx, command, input.workdir, input.env.unwrap_or_default())
            }
            JobAction::Poll => {
                let job = input.job_id.ok_or_else(|| missing("job_id"))?;
                self.job_poll(
                    cx,
                    job,
                    input.stdout_from.unwrap_or(0),
                    input.stderr_from.unwrap_or(0),
                )
            }
            JobAction::Kill => {
                let job = input.job_id.ok_or_else(|| missing("job_id"))?;
                self.job_kill(cx, job, input.signal.unwrap_or(9))
            }
        }
    }
}
