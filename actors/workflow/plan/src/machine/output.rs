//! Output of a state: what conditions look at, and its JSON as it stands on the blackboard.

use std::{collections::BTreeMap, time::Duration};

use hivekeep_manifest::{
    agent::Consensus,
    common::{AttemptLimit, JsonObject, TimeSpan},
    consensus::{ConsensusRule, JudgeScore, consensus},
    workflow::{NodeCompletion, ParallelConsensus},
};
use hivekeep_runtime::json_text;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Threshold of a consensus, where the manifest names none.
const THRESHOLD: f64 = 0.7;

/// Output of a state that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateOutput {
    /// Whether the state did what it is for.
    pub status: StateStatus,
    /// Reason of a failure, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Result by the kind of the state.
    pub result: StateResult,
}

/// Whether a state did what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateStatus {
    /// The state did it.
    Succeeded,
    /// The state did not; transitions decide what that means.
    Failed,
}

impl StateStatus {
    fn of(succeeded: bool) -> Self {
        if succeeded { Self::Succeeded } else { Self::Failed }
    }
}

/// Result of a state by its kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum StateResult {
    /// Result of an agent.
    Agent {
        /// JSON of its output where that is an object or a list, its text otherwise.
        output: Value,
        /// Score of its judges, or of the output's own `score`; from 0 to 1.
        score: Option<f64>,
        /// Confidence of its judges, or of the output's own `confidence`; from 0 to 1.
        confidence: Option<f64>,
        /// Scores of its judges one by one.
        individual_scores: Vec<f64>,
    },
    /// Result of a command or of a container.
    Command(CommandOutcome),
    /// Results of several containers by the names of their steps.
    Containers {
        /// The results.
        steps: BTreeMap<String, CommandOutcome>,
    },
    /// Result of several agents.
    Panel {
        /// Scores as one.
        consensus: PanelConsensus,
        /// Answers in the order of the agents.
        agents: Vec<PanelAnswer>,
    },
    /// Answer of a person.
    Human {
        /// The answer, or the default when the time was over.
        response: String,
        /// True if the time was over.
        timed_out: bool,
    },
    /// Result of another workflow; without an output if its end is not waited for.
    Subworkflow {
        /// Id of its run.
        execution_id: String,
        /// Its final output.
        output: Option<Value>,
    },
    /// Nothing: the state could not do its work.
    Nothing,
    /// Keys of the blackboard that the state set.
    Update {
        /// Values by key.
        values: JsonObject,
    },
}

/// End of a command or of a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandOutcome {
    /// Exit status; 128 and the number of the signal for what a signal ended.
    pub exit_code: i64,
    /// Kept part of the standard output.
    pub stdout: String,
    /// Kept part of the standard error.
    pub stderr: String,
    /// Length of the last attempt.
    pub duration_ms: u64,
    /// Number of attempts.
    pub attempts: u64,
}

impl CommandOutcome {
    /// Pause before the next attempt; none if the last one succeeded or no more are allowed.
    pub fn retry_after(&self, retry: Option<&AttemptLimit>) -> Option<Duration> {
        let retry =
            retry.filter(|retry| self.exit_code != 0 && self.attempts < retry.max_attempts)?;
        Some(retry.backoff.as_ref().and_then(TimeSpan::duration).unwrap_or_default())
    }

    /// Exit status in words, with the last line of the standard error.
    fn told(&self) -> String {
        let last = self.stderr.lines().rev().find(|line| !line.trim().is_empty());
        let last = last.map(|line| format!(": {line:.300}")).unwrap_or_default();
        format!("its command ended with status {}{last}", self.exit_code)
    }
}

/// Scores of several agents as one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PanelConsensus {
    /// The rule.
    pub strategy: Consensus,
    /// Score from 0 to 1.
    pub score: f64,
    /// Confidence from 0 to 1.
    pub confidence: f64,
    /// Agents whose score reaches the threshold.
    pub pass_votes: u64,
    /// Agents whose score does not.
    pub fail_votes: u64,
}

/// Answer of one of several agents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PanelAnswer {
    /// Name of the agent.
    pub agent: String,
    /// Weight beside the others.
    pub weight: f64,
    /// JSON of its output where that is an object or a list, its text otherwise.
    pub output: Value,
    /// Score from 0 to 1; none if it failed or gave none.
    pub score: Option<f64>,
    /// Confidence from 0 to 1. One that is not told is 1.
    pub confidence: Option<f64>,
}

impl PanelAnswer {
    /// Answer of a text, `None` for an agent that failed.
    pub fn new(agent: &str, weight: f64, text: Option<&str>) -> Self {
        let output = text.map_or(Value::Null, value_of);
        let (score, confidence) = (share(&output, "score"), share(&output, "confidence"));
        Self { agent: agent.to_owned(), weight, output, score, confidence }
    }
}

impl StateOutput {
    /// Reason of a failure as far as it is known.
    pub fn reason(&self) -> Option<String> {
        match (&self.error, &self.result) {
            (Some(error), _) => Some(error.clone()),
            (None, StateResult::Command(outcome)) => Some(outcome.told()),
            (None, StateResult::Containers { steps }) => {
                let (name, outcome) = steps.iter().find(|(_, outcome)| outcome.exit_code != 0)?;
                Some(format!("`{name}`: {}", outcome.told()))
            }
            _ => None,
        }
    }

    /// Output of an agent with the score and the confidence of its judges, if it has any.
    pub fn agent(text: &str, judged: Option<(f64, f64)>, individual_scores: Vec<f64>) -> Self {
        let output = value_of(text);
        let (score, confidence) = match judged {
            Some((score, confidence)) => (Some(score), Some(confidence)),
            None => (share(&output, "score"), share(&output, "confidence")),
        };
        let result = StateResult::Agent { output, score, confidence, individual_scores };
        Self { status: StateStatus::Succeeded, error: None, result }
    }

    /// Output of a command or of a container, which succeeds with status 0.
    pub fn command(outcome: CommandOutcome) -> Self {
        let status = StateStatus::of(outcome.exit_code == 0);
        Self { status, error: None, result: StateResult::Command(outcome) }
    }

    /// Output of several containers.
    pub fn containers(
        completion: Option<NodeCompletion>,
        steps: BTreeMap<String, CommandOutcome>,
    ) -> Self {
        let mut ends = steps.values().map(|step| step.exit_code == 0);
        let succeeded = match completion {
            None | Some(NodeCompletion::AllSucceed) => ends.all(|succeeded| succeeded),
            Some(NodeCompletion::AnySucceed) => ends.any(|succeeded| succeeded),
            Some(NodeCompletion::BestEffort) => true,
        };
        let result = StateResult::Containers { steps };
        Self { status: StateStatus::of(succeeded), error: None, result }
    }

    /// Output of several agents. It succeeds when enough of them gave a score, and score and confidence are those
    /// that the manifest wants.
    pub fn panel(rule: &ParallelConsensus, agents: Vec<PanelAnswer>) -> Self {
        let threshold = rule.threshold.map_or(THRESHOLD, |it| it.0);
        let scores: Vec<_> = agents.iter().filter_map(PanelAnswer::judge_score).collect();
        let best = rule.n.unwrap_or(1);
        let best = usize::try_from(best).unwrap_or(usize::MAX);
        let mut formula = ConsensusRule::new(rule.strategy, threshold, best);
        if let Some(shares) = &rule.confidence_weighting {
            formula.agreement = shares.agreement_factor.0;
            formula.own_confidence = shares.self_confidence_factor.0;
        }
        let (score, confidence) = consensus(&formula, &scores);
        let required = rule.min_judges_required.unwrap_or(1);
        let enough = scores.len() as u64 >= required;
        let least = rule.min_agreement_confidence.map_or(0.0, |it| it.0);
        let pass_votes = scores.iter().filter(|it| it.score >= threshold).count() as u64;
        let fail_votes = scores.len() as u64 - pass_votes;
        let consensus =
            PanelConsensus { strategy: rule.strategy, score, confidence, pass_votes, fail_votes };
        let status = StateStatus::of(enough && score >= threshold && confidence >= least);
        let error =
            (!enough).then(|| format!("{} of {required} agents gave a score", scores.len()));
        Self { status, error, result: StateResult::Panel { consensus, agents } }
    }

    /// Output of a state that could not do its work.
    pub fn nothing(error: impl Into<String>) -> Self {
        let result = StateResult::Nothing;
        Self { status: StateStatus::Failed, error: Some(error.into()), result }
    }

    /// Answer of a person, or the default in its place when the time was over.
    pub fn human(response: &str, timed_out: bool) -> Self {
        let result = StateResult::Human { response: response.to_owned(), timed_out };
        Self { status: StateStatus::Succeeded, error: None, result }
    }

    /// The output with a reason why it is a failure.
    pub fn failed(self, error: impl Into<String>) -> Self {
        Self { status: StateStatus::Failed, error: Some(error.into()), ..self }
    }

    /// Exit status; of several containers that of the first that failed, if the state failed.
    pub fn exit_code(&self) -> Option<i64> {
        match &self.result {
            StateResult::Command(outcome) => Some(outcome.exit_code),
            StateResult::Containers { .. } if self.status == StateStatus::Succeeded => Some(0),
            StateResult::Containers { steps } => {
                steps.values().map(|step| step.exit_code).find(|code| *code != 0)
            }
            _ => None,
        }
    }

    /// Score from 0 to 1.
    pub fn score(&self) -> Option<f64> {
        match &self.result {
            StateResult::Agent { score, .. } => *score,
            StateResult::Panel { consensus, agents } => {
                agents.iter().any(|it| it.score.is_some()).then_some(consensus.score)
            }
            _ => None,
        }
    }

    /// Confidence from 0 to 1.
    pub fn confidence(&self) -> Option<f64> {
        match &self.result {
            StateResult::Agent { confidence, .. } => *confidence,
            StateResult::Panel { consensus, .. } => self.score().map(|_| consensus.confidence),
            _ => None,
        }
    }

    /// Scores of judges or agents one by one; `None` for one that gave none.
    pub fn individual_scores(&self) -> Vec<Option<f64>> {
        match &self.result {
            StateResult::Agent { individual_scores, .. } => {
                individual_scores.iter().copied().map(Some).collect()
            }
            StateResult::Panel { agents, .. } => agents.iter().map(|it| it.score).collect(),
            _ => Vec::new(),
        }
    }

    /// Answer of a person.
    pub fn response(&self) -> Option<&str> {
        match &self.result {
            StateResult::Human { response, .. } => Some(response),
            _ => None,
        }
    }

    /// JSON as it stands on the blackboard: `status`, `output` and what the kind has beside them.
    pub fn to_value(&self) -> Value {
        let mut value = match &self.result {
            StateResult::Agent { output, .. } => json!({ "output": output }),
            StateResult::Command(outcome) => {
                let mut value = json!(outcome);
                let output = value.clone();
                value["output"] = output;
                value
            }
            StateResult::Containers { steps } => {
                json!({ "output": steps, "exit_code": self.exit_code() })
            }
            StateResult::Panel { consensus, agents } => {
                let PanelConsensus { pass_votes, fail_votes, .. } = consensus;
                let mut value =
                    json!({ "output": consensus, "consensus": consensus, "agents": agents });
                value["consensus"]["metadata"] = json!({
                    "total_judges": agents.len(), "pass_votes": pass_votes, "fail_votes": fail_votes,
                    "all_pass": *pass_votes == agents.len() as u64,
                });
                value
            }
            StateResult::Human { response, timed_out } => {
                json!({ "output": response, "response": response, "timed_out": timed_out })
            }
            StateResult::Subworkflow { execution_id, output } => {
                json!({ "output": output, "execution_id": execution_id })
            }
            StateResult::Nothing => json!({ "output": null }),
            StateResult::Update { values } => json!({ "output": values }),
        };
        value["status"] = json!(self.status);
        let scores = self.individual_scores();
        for (name, part) in [
            ("error", self.error.as_ref().map(|it| json!(it))),
            ("score", self.score().map(|it| json!(it))),
            ("confidence", self.confidence().map(|it| json!(it))),
            ("individual_scores", (!scores.is_empty()).then(|| json!(scores))),
        ] {
            if let Some(part) = part {
                value[name] = part;
            }
        }
        value
    }
}

impl PanelAnswer {
    fn judge_score(&self) -> Option<JudgeScore> {
        let confidence = self.confidence.unwrap_or(1.0);
        self.score.map(|score| JudgeScore { score, confidence, weight: self.weight })
    }
}

/// Member of an object that is a number from 0 to 1.
fn share(output: &Value, name: &str) -> Option<f64> {
    output.get(name)?.as_f64().filter(|share| (0.0..=1.0).contains(share))
}

/// JSON of a text that is an object or a list, or has one in a code fence; the text itself otherwise.
pub(super) fn value_of(text: &str) -> Value {
    let blocks = text.split("```").skip(1).step_by(2);
    let blocks = blocks.filter_map(|block| block.split_once('\n').map(|(_, body)| body));
    let mut parsed =
        [json_text::without_fence(text)].into_iter().chain(blocks).filter_map(|text| {
            let value = json_text::from_str::<Value>(text.trim()).ok()?;
            (value.is_object() || value.is_array()).then_some(value)
        });
    parsed.next().unwrap_or_else(|| Value::String(text.to_owned()))
}
