//! The tool that reads the events of a run of a workflow.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{CallCx, RunId, tools};
use hivekeep_runtime::runs::SequencedEvent;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Answer, run::run_id};
use crate::service::WorkflowService;

/// Read the events of a run of a workflow in order: states that it entered and left, and what they did.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WorkflowLogs {
    /// Id of the run.
    execution_id: String,
    /// Most events to show, 1 to 200.
    #[serde(default = "fifty")]
    #[schemars(range(min = 1, max = 200))]
    limit: usize,
    /// Events to leave out at the beginning.
    #[serde(default)]
    offset: usize,
}

fn fifty() -> usize {
    50
}

/// Events of a run of a workflow.
#[derive(Debug, Serialize, JsonSchema)]
struct WorkflowEvents {
    /// Name of the tool.
    tool: &'static str,
    /// Id of the run.
    execution_id: RunId,
    /// `pending`, `running`, `completed`, `failed` or `cancelled`.
    status: &'static str,
    /// Events of the page, in order.
    events: Vec<WorkflowEvent>,
    /// How many there are in all.
    total: usize,
    /// Most events that were asked for.
    limit: usize,
    /// Events left out at the beginning.
    offset: usize,
}

/// An event of a run of a workflow.
#[derive(Debug, Serialize, JsonSchema)]
struct WorkflowEvent {
    /// Place in the run, from 1 and without a gap.
    sequence: u64,
    /// Name of what happened, as `state_entered`.
    event_type: &'static str,
    /// State that it happened in; null for what is the run's.
    state_name: Option<String>,
    /// Iteration of an agent, or visit of the state, from 1.
    iteration_number: Option<u64>,
    /// Facts about it.
    payload: Value,
    /// Time of the event.
    recorded_at: DateTime<Utc>,
}

impl WorkflowEvent {
    fn new(event: SequencedEvent) -> Self {
        let SequencedEvent { sequence, recorded_at, event } = event;
        let text = |key: &str| event.payload.get(key).and_then(Value::as_str).map(str::to_owned);
        let number = |key: &str| event.payload.get(key).and_then(Value::as_u64);
        Self {
            sequence,
            event_type: event.event_type,
            state_name: text("state_name"),
            iteration_number: number("iteration").or_else(|| number("visit")),
            payload: event.payload,
            recorded_at,
        }
    }
}

tools! { pub(crate) LOG_FAMILY: "workflows" for service WorkflowService, singleton workflows;
    workflow_logs: WorkflowLogs => WorkflowEvents = WorkflowService::logs {
        name: "aegis.workflow.logs", title: "Events of a run of a workflow", effect: Read,
        rate: RateClass::File,
    };
}

impl WorkflowService {
    async fn logs(self: Arc<Self>, cx: CallCx, input: WorkflowLogs) -> Answer<WorkflowEvents> {
        let WorkflowLogs { execution_id, limit, offset } = input;
        let (caller, execution_id) = (self.run_caller(&cx), run_id(&execution_id)?);
        let status = self.runs.machine(caller, execution_id).await?.status.word();
        let page = self.runs.events(caller, execution_id, offset, limit).await?;
        Ok(WorkflowEvents {
            tool: cx.tool,
            execution_id,
            status,
            events: page.events.into_iter().map(WorkflowEvent::new).collect(),
            total: page.total,
            limit,
            offset,
        })
    }
}
