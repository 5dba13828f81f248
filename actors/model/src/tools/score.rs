//! `ml_score`.

use std::collections::BTreeSet;

use hivekeep_kernel::{CallCx, Layer, ToolError, serve::Reply, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::generate::{MlUsage, PROMPT_BYTES};
use crate::{
    codes,
    heuristic::{self, HeuristicScores},
    judge::{self, SemanticScores},
    models::ModelsActor,
};

/// Score a response: `heuristic` counts words and form and needs no model, `semantic` has the model of the alias
/// `judge` grade it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MlScore {
    /// What was asked.
    #[schemars(length(min = 1, max = PROMPT_BYTES))]
    pub(crate) prompt: String,
    /// The response to score.
    #[schemars(length(min = 1, max = PROMPT_BYTES))]
    pub(crate) response: String,
    /// `heuristic`, `semantic`, or both with a comma between.
    #[serde(default = "default_suites")]
    #[schemars(length(max = 100))]
    pub(crate) suites: String,
}

fn default_suites() -> String {
    "heuristic".to_owned()
}

/// Scores.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct MlScores {
    /// By words and form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) heuristic: Option<HeuristicScores>,
    /// By the judge, 1 to 10 each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) semantic: Option<SemanticScores>,
    /// Who judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) judge: Option<MlJudge>,
}

/// A judge.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MlJudge {
    /// Backend.
    pub(crate) backend: String,
    /// Model.
    pub(crate) model: String,
    /// What the backend speaks; `scripted` is not a model.
    pub(crate) provider_kind: &'static str,
    /// Tokens and cost.
    pub(crate) usage: MlUsage,
}

/// The suites of a comma-separated list.
fn suites(text: &str) -> Result<BTreeSet<&str>, ToolError> {
    let named = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let found: BTreeSet<_> = named.collect();
    if found.contains("content") {
        let message = "the suite `content` is not available here";
        return Err(ToolError::new(Layer::Actor, codes::ML_SUITE_UNAVAILABLE, message)
            .next("use `heuristic`, `semantic`, or both"));
    }
    if let Some(unknown) = found.iter().find(|name| !["heuristic", "semantic"].contains(name)) {
        return Err(ToolError::invalid(format!("`{unknown:.40}` is not a suite"))
            .next("use `heuristic`, `semantic`, or both"));
    }
    if found.is_empty() {
        return Err(ToolError::invalid("no suite is named"));
    }
    Ok(found)
}

impl ModelsActor {
    /// Serves `ml_score`.
    pub(crate) fn score(
        &mut self,
        cx: &CallCx,
        input: MlScore,
    ) -> Result<Reply<MlScores>, ToolError> {
        self.wait(cx, |shared, cx| async move {
            let suites = suites(&input.suites)?;
            let mut scores = MlScores::default();
            if suites.contains("semantic") {
                let judged = (input.prompt.as_str(), input.response.as_str());
                let judging = judge::judge(&shared.models, cx.session, judged, cx.deadline);
                let (semantic, answer) = judging.await?;
                scores.semantic = Some(semantic);
                scores.judge = Some(MlJudge {
                    backend: answer.source.provider,
                    model: answer.source.model,
                    provider_kind: answer.source.provider_kind,
                    usage: answer.usage.into(),
                });
            }
            if suites.contains("heuristic") {
                let scored = tokio::task::spawn_blocking(move || heuristic::score(&input.response));
                let scored = scored.await.map_err(|it| ToolError::internal(it.to_string()))?;
                scores.heuristic = Some(scored);
            }
            Ok(scores)
        })
    }
}

tools! { pub(crate) FAMILY: "ml" for ModelsActor, singleton models;
    ml_score: MlScore => MlScores = ModelsActor::score {
        title: "Score a response", open_world: true, timeout_secs: 300,
    };
}
