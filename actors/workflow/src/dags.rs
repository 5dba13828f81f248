//! The tools of DAGs: runs of them, begun, shown, told what to do, and what their steps wrote.

mod called;
mod compare;
mod control;
mod list;
mod logs;
mod show;
mod source;
mod start;
mod types;

use hivekeep_kernel::{CallCx, ToolError, tools};
use hivekeep_runtime::runs::RunCaller;

use crate::service::WorkflowService;
use types::{
    DagControl, DagControlled, DagLogs, DagLogsRead, DagRunsAsked, DagRunsShown, DagStart,
    DagStarted,
};

type Answer<T> = Result<T, ToolError>;

tools! { pub(crate) FAMILY: "dags" for service WorkflowService, singleton workflows;
    dag_start: DagStart => DagStarted = WorkflowService::dag_start {
        name: "dag_start", title: "Run a DAG", open_world: true, told_by: Some("dag_runs"),
    };
    dag_runs: DagRunsAsked => DagRunsShown = WorkflowService::dag_runs {
        name: "dag_runs", title: "Runs of DAGs", effect: Read, limit_secs: show::wait_secs,
    };
    dag_control: DagControl => DagControlled = WorkflowService::dag_control {
        name: "dag_control", title: "Stop, retry or decide on a run",
    };
    dag_logs: DagLogs => DagLogsRead = WorkflowService::dag_logs {
        name: "dag_logs", title: "Output of a run's steps", effect: Read,
    };
}

impl WorkflowService {
    pub(crate) fn run_caller(&self, cx: &CallCx) -> RunCaller {
        RunCaller::of(cx, &*self.sessions)
    }
}
