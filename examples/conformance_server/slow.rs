//! The suite's tools that take their time, and become tasks for clients that take them.

use std::time::Duration;

use hivekeep_kernel::{ApprovalId, CallCx, Layer, Reply, ToolError, tools};
use hivekeep_ports::UserQuestion;
use hivekeep_registry::codes;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::fixtures::{Fixtures, Text};

/// How long a tool works before it fails or asks: it is a task by then.
const WORK: Duration = Duration::from_secs(1);

/// Greets.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Greet {
    /// Whom.
    pub name: String,
}

/// Computes for so many seconds.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct SlowCompute {
    /// Seconds.
    pub seconds: u64,
    /// A label.
    #[serde(default)]
    pub label: String,
}

/// Works a little and fails.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct FailingJob {}

/// Works a little and ends with an error of the protocol.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ProtocolErrorJob {}

/// Works a little and asks for a confirmation.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ConfirmDelete {
    /// The file.
    pub filename: String,
}

/// Works a little and asks two questions at a time.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct MultiInput {}

tools! { pub FAMILY: "slow" for Fixtures, singleton fixtures;
    greet: Greet => Text = Fixtures::on_greet { title: "Greet", effect: Read };
    slow_compute: SlowCompute => Text = Fixtures::on_slow_compute {
        title: "Compute", effect: Read, timeout_secs: 120,
    };
    failing_job: FailingJob => Text = Fixtures::on_failing_job {
        title: "Fail slowly", effect: Read, timeout_secs: 120,
    };
    protocol_error_job: ProtocolErrorJob => Text = Fixtures::on_protocol_error_job {
        title: "Break slowly", effect: Read, timeout_secs: 120,
    };
    confirm_delete: ConfirmDelete => Text = Fixtures::on_confirm_delete {
        title: "Confirm", effect: Read, timeout_secs: 120,
    };
    multi_input: MultiInput => Text = Fixtures::on_multi_input {
        title: "Ask twice", effect: Read, timeout_secs: 120,
    };
}

impl Fixtures {
    fn on_greet(&mut self, _: &CallCx, input: Greet) -> Result<Reply<Text>, ToolError> {
        Ok(Reply::Now(Text { text: format!("Hello, {}!", input.name) }))
    }

    fn on_slow_compute(
        &mut self,
        _: &CallCx,
        input: SlowCompute,
    ) -> Result<Reply<Text>, ToolError> {
        Ok(Reply::later(async move {
            tokio::time::sleep(Duration::from_secs(input.seconds)).await;
            Ok(Text { text: format!("{} took {} s", input.label, input.seconds) })
        }))
    }

    fn on_failing_job(&mut self, _: &CallCx, _: FailingJob) -> Result<Reply<Text>, ToolError> {
        Ok(Reply::later(async move {
            tokio::time::sleep(WORK).await;
            Err(ToolError::invalid("this job intentionally fails"))
        }))
    }

    fn on_protocol_error_job(
        &mut self,
        _: &CallCx,
        _: ProtocolErrorJob,
    ) -> Result<Reply<Text>, ToolError> {
        Ok(Reply::later(async move {
            tokio::time::sleep(WORK).await;
            // The one error of a call that is the protocol's.
            let message = "this job intentionally breaks";
            Err(ToolError::new(Layer::Resolve, codes::UNKNOWN_TOOL, message))
        }))
    }

    fn on_confirm_delete(
        &mut self,
        cx: &CallCx,
        input: ConfirmDelete,
    ) -> Result<Reply<Text>, ToolError> {
        let cx = cx.clone();
        Ok(Reply::later(async move {
            tokio::time::sleep(WORK).await;
            Ok(Text { text: asked(&cx, format!("Delete {}?", input.filename)).await })
        }))
    }

    fn on_multi_input(&mut self, cx: &CallCx, _: MultiInput) -> Result<Reply<Text>, ToolError> {
        let cx = cx.clone();
        Ok(Reply::later(async move {
            tokio::time::sleep(WORK).await;
            let (first, second) = ("The first?".to_owned(), "The second?".to_owned());
            let (first, second) = tokio::join!(asked(&cx, first), asked(&cx, second));
            Ok(Text { text: format!("{first}; {second}") })
        }))
    }
}

/// Asks beside the task. Nothing has to be chosen: the suite replies with fields of its own.
async fn asked(cx: &CallCx, question: String) -> String {
    let options = vec!["yes".to_owned(), "no".to_owned()];
    let question = UserQuestion { question, options, free_text: true, ..Default::default() };
    match &cx.client {
        Some(client) => format!("{:?}", client.ask(ApprovalId::new(), &question).await),
        None => "there is nobody to ask".to_owned(),
    }
}
