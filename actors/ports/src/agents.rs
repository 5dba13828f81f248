//! Port of agents at work for others: whoever has a task done by an agent begins its execution under an id that it
//! has recorded before, and finds it by that again, whatever died meanwhile.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use hivekeep_kernel::{CallCx, ExecutionId, ToolError, WorkspaceId};
use serde_json::{Map, Value};

/// Work for an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecutionOrder {
    /// Id of the execution, chosen and recorded by whoever orders it.
    pub id: ExecutionId,
    /// Agent that does the work.
    pub agent: OrderedAgent,
    /// Task in plain words.
    pub intent: Option<String>,
    /// Input, which has to fit the agent's `input_schema`; `prompt` is the user's request.
    pub input: Map<String, Value>,
    /// Judges of each output, behind the agent's own validators.
    pub judges: Vec<OrderedJudge>,
    /// Most iterations, in place of what the agent's manifest says.
    pub max_iterations: Option<usize>,
    /// Longest work, where that is shorter than what the agent's manifest says; waits for people and for a daemon that
    /// is down do not count.
    pub limit: Option<Duration>,
}

/// Agent of an order.
#[derive(Debug, Clone, PartialEq)]
pub enum OrderedAgent {
    /// Agent of the registry.
    Deployed {
        /// Id or name. The user's own agent of a name comes before one that is everybody's.
        name: String,
        /// Version, as `1.2.3`; the latest without.
        version: Option<String>,
    },
    /// Program of others that works in a machine of whoever orders it. Its prompt is `prompt` of the input.
    Program(Box<OrderedProgram>),
}

/// Program of an order, such as `codex`, and where it works.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderedProgram {
    /// Name, as `spec.runtime.program` of an agent's manifest has it.
    pub program: String,
    /// Model, as an agent's manifest names one; `default` without.
    pub model: Option<String>,
    /// Place of the call's session that it works in.
    pub place: String,
    /// Workspace of the place.
    pub workspace: WorkspaceId,
    /// Root of the place in the guest.
    pub root: String,
    /// Folder that it works in, made where it is not there; a relative one begins at the root.
    pub folder: String,
    /// Folder that is its `HOME`, made where it is not there.
    pub home: String,
    /// Variables of the program, beside those that lead it to its model.
    pub env: BTreeMap<String, String>,
    /// Arguments behind those that the daemon gives it.
    pub arguments: Vec<String>,
}

/// Judge of an order. Its answer is an object with `score` and `confidence` from 0 to 1 and `reasoning`.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderedJudge {
    /// Id or name of the judging agent.
    pub agent: String,
    /// Criteria that it is asked to score by, beside the task and the output; general ones without.
    pub criteria: Option<String>,
    /// Weight of its score beside those of the others, at least 0.
    pub weight: f64,
}

/// Judgement of the last output that was judged.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputScore {
    /// Score of all judges, from 0 to 1.
    pub score: f64,
    /// Confidence of all judges, from 0 to 1.
    pub confidence: f64,
    /// Scores of the judges that answered, in the order in which they were named.
    pub scores: Vec<f64>,
}

/// End of an execution for whoever ordered it. `judged` is `None` unless the order had judges, and they judged an
/// output.
#[derive(Debug, Clone, PartialEq)]
pub enum ExecutionResult {
    /// The agent was done.
    Completed {
        /// Last text of the agent, or of its program.
        output: String,
        /// Judgement of that.
        judged: Option<OutputScore>,
    },
    /// A bound was reached, its judges were not content, or something failed that is not the agent's to mend.
    Failed {
        /// Reason of the failure.
        error: ToolError,
        /// Judgement of the last output that was judged.
        judged: Option<OutputScore>,
    },
    /// Somebody cancelled it.
    Cancelled,
}

/// Executions of agents, begun for others.
#[async_trait]
pub trait Executions: Send + Sync {
    /// Begins an execution, in the session of the call and with its user's budgets; durable when this returns. One that
    /// is there under the id already is left as it is.
    ///
    /// # Errors
    /// Those of `aegis.task.execute`, `too_many_runs` among them; `execution_not_found` for an id that is another
    /// user's. Nothing was begun then.
    async fn begin(&self, cx: &CallCx, order: ExecutionOrder) -> Result<(), ToolError>;

    /// Waits for the end of an execution, without a bound: whoever waits has one. Legal after a restart of the daemon.
    ///
    /// # Errors
    /// `execution_not_found`; `execution_given_up` for one that stands still until the daemon's next start.
    async fn ended(&self, id: ExecutionId) -> Result<ExecutionResult, ToolError>;

    /// Cancels an execution: answers when that is durable, and false where it was over.
    ///
    /// # Errors
    /// `execution_not_found`, `journal_failed`.
    async fn cancel(&self, id: ExecutionId) -> Result<bool, ToolError>;
}
