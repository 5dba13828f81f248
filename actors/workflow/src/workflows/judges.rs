//! Judges of a manifest: agents that are asked, side by side, what it is worth, before it is deployed.

use std::time::Duration;

use futures::future::try_join_all;
use hivekeep_kernel::{CallCx, ExecutionId, Layer, ToolError};
use hivekeep_manifest::{
    agent::Consensus,
    common::{JsonObject, Share},
    workflow::ParallelConsensus,
};
use hivekeep_plan::machine::{PanelAnswer, StateOutput, StateResult, StateStatus};
use hivekeep_ports::{ExecutionOrder, ExecutionResult, Executions, OrderedAgent};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::Answer;
use crate::{codes, service::WorkflowService};

/// Most judges of a manifest.
pub(super) const MOST_JUDGES: usize = 16;
/// Judge where a judgment is asked for and nobody is named.
const JUDGE: &str = "manifest-judge";
/// Longest work of a judge.
const PATIENCE: Duration = Duration::from_secs(90);
/// Time that a judge may take to end once it is told to.
const GRACE: Duration = Duration::from_secs(10);
/// Longest part of a judge's reasoning that is shown.
const REASONING_BYTES: usize = 4 * 1024;
const CRITERIA: &str = "the workflow does its task: each state has what it needs, failures lead somewhere, and it ends";

/// Request for a judgment of a manifest.
#[derive(Debug, Default)]
pub(super) struct ManifestPanel {
    pub(super) task: Option<String>,
    pub(super) agents: Option<Vec<String>>,
    pub(super) min_score: Option<f64>,
    pub(super) min_confidence: Option<f64>,
}

/// Judgment of a manifest.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ManifestJudgment {
    /// Score of all judges, 0 to 1.
    score: f64,
    /// Confidence of all judges, 0 to 1.
    confidence: f64,
    /// Answers of the judges, in the order in which they are named.
    judges: Vec<ManifestOpinion>,
}

/// Answer of a judge of a manifest.
#[derive(Debug, Serialize, JsonSchema)]
struct ManifestOpinion {
    /// Name of the judge.
    agent: String,
    /// Score, 0 to 1.
    score: Option<f64>,
    /// Confidence in it, 0 to 1.
    confidence: Option<f64>,
    /// Reasons of the judge.
    reasoning: Option<String>,
}

impl ManifestPanel {
    fn is_asked(&self) -> bool {
        let Self { task, agents, min_score, min_confidence } = self;
        task.is_some() || agents.is_some() || min_score.is_some() || min_confidence.is_some()
    }
}

impl WorkflowService {
    /// Judgment of a manifest; none where nobody is asked.
    ///
    /// # Errors
    /// `workflow_rejected`; those of the judges' executions, `llm_not_configured` among them.
    pub(super) async fn judged(
        &self,
        cx: &CallCx,
        text: &str,
        panel: ManifestPanel,
    ) -> Answer<Option<ManifestJudgment>> {
        if !panel.is_asked() {
            return Ok(None);
        }
        let agents = panel.agents.unwrap_or_else(|| vec![JUDGE.to_owned()]);
        let task = panel.task.as_deref().unwrap_or("(what the manifest itself says)");
        let question = json!({ "criteria": CRITERIA, "task": task, "output": text });
        let question = question.as_object().cloned().unwrap_or_default();
        let asked = agents.iter().map(|agent| self.opinion(cx, agent, question.clone()));
        let answers = try_join_all(asked).await?;
        let rule = ParallelConsensus {
            strategy: Consensus::WeightedAverage,
            threshold: Some(Share(panel.min_score.unwrap_or(0.8))),
            min_agreement_confidence: Some(Share(panel.min_confidence.unwrap_or(0.7))),
            n: None,
            min_judges_required: None,
            confidence_weighting: None,
        };
        let output = StateOutput::panel(&rule, answers);
        let StateResult::Panel { consensus, agents } = output.result else { return Ok(None) };
        let judgment = ManifestJudgment {
            score: consensus.score,
            confidence: consensus.confidence,
            judges: agents.into_iter().map(opinion).collect(),
        };
        match output.status {
            StateStatus::Succeeded => Ok(Some(judgment)),
            StateStatus::Failed => Err(rejected(&judgment)),
        }
    }

    async fn opinion(&self, cx: &CallCx, agent: &str, input: JsonObject) -> Answer<PanelAnswer> {
        let told = |error: ToolError| {
            let message = format!("the judge `{agent:.80}` gave no answer: {}", error.message);
            ToolError { message, ..error }
        };
        let executions = self.daemon.ports.need::<dyn Executions>()?;
        let id = ExecutionId::new();
        let order = ExecutionOrder {
            id,
            agent: OrderedAgent::Deployed { name: agent.to_owned(), version: None },
            intent: None,
            input,
            judges: Vec::new(),
            max_iterations: None,
            limit: Some(PATIENCE),
        };
        executions.begin(cx, order).await.map_err(told)?;
        let ended = tokio::time::timeout(PATIENCE + GRACE, executions.ended(id)).await;
        let ended = match ended {
            Ok(ended) => ended,
            Err(_) => {
                executions.cancel(id).await?;
                Err(ToolError::deadline(Layer::Actor, PATIENCE.as_secs()))
            }
        };
        match ended.map_err(told)? {
            ExecutionResult::Completed { output, .. } => {
                let answer = PanelAnswer::new(agent, 1.0, Some(&output));
                answer.score.map(|_| answer.clone()).ok_or_else(|| {
                    let message = "its output is not a judgment";
                    told(ToolError::new(Layer::Actor, codes::WORKFLOW_REJECTED, message).next(
                        "name a judge that answers with `score`, `confidence` and `reasoning`",
                    ))
                })
            }
            ExecutionResult::Failed { error, .. } => Err(told(error)),
            ExecutionResult::Cancelled => Err(told(ToolError::cancelled())),
        }
    }
}

fn opinion(answer: PanelAnswer) -> ManifestOpinion {
    let PanelAnswer { agent, score, confidence, output, .. } = answer;
    let reasoning = output.get("reasoning").and_then(Value::as_str).map(|reasoning| {
        let mut reasoning = reasoning.to_owned();
        reasoning.truncate(reasoning.floor_char_boundary(REASONING_BYTES));
        reasoning
    });
    ManifestOpinion { agent, score, confidence, reasoning }
}

fn rejected(judgment: &ManifestJudgment) -> ToolError {
    let ManifestJudgment { score, confidence, .. } = judgment;
    let message =
        format!("the judges give the manifest {score:.2} with a confidence of {confidence:.2}");
    ToolError::new(Layer::Actor, codes::WORKFLOW_REJECTED, message)
        .next("mend what `details.judgment` says, or ask for less by `min_score` and `min_confidence`")
        .detail("judgment", json!(judgment))
}
