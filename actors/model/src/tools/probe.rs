//! `ml_probe`.

use std::{collections::BTreeSet, sync::Arc};

use futures::{StreamExt, stream};
use hivekeep_kernel::{CallCx, ToolError, serve::Reply, tools};
use hivekeep_ports::{ModelRequest, ModelUse, Models};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::generate::MlUsage;
use crate::{
    models::{ModelsActor, ModelsShared},
    probes::{self, PROBES, Probe},
};

/// Sampling parameters as the probes were published with; a model's own bound of tokens holds if smaller.
const TEMPERATURE: f64 = 0.7;
const MAX_TOKENS: u32 = 2_048;
/// Characters of a response that are shown.
const SHOWN: usize = 300;

/// Probe what a model can do: 23 questions in 16 categories, each with its right answer, the response and the
/// verdict.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MlProbe {
    /// Backend, alias or `BACKEND/MODEL`. Default: `default`.
    #[schemars(length(max = 160))]
    pub(crate) backend: Option<String>,
    /// Categories with commas between, such as `arithmetic,code`. Default: all.
    #[schemars(length(max = 400))]
    pub(crate) categories: Option<String>,
}

/// Verdicts.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MlProbed {
    /// Backend that was probed.
    pub(crate) backend: String,
    /// Its model.
    pub(crate) model: String,
    /// API that the backend speaks; `scripted` is not a model.
    pub(crate) provider_kind: &'static str,
    /// Number of probes.
    pub(crate) total: usize,
    /// Probes that were answered rightly.
    pub(crate) passed: usize,
    /// Probes that got no answer.
    pub(crate) failed: usize,
    /// `passed` of those that got an answer, 0 to 1; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) score: Option<f64>,
    /// Each probe.
    pub(crate) results: Vec<MlProbeResult>,
    /// Tokens and cost of all.
    pub(crate) usage: MlUsage,
}

/// A probe's outcome.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MlProbeResult {
    /// Probe.
    pub(crate) id: &'static str,
    /// Category.
    pub(crate) category: &'static str,
    /// The right answer.
    pub(crate) expected: &'static str,
    /// The beginning of what the model said.
    pub(crate) response: String,
    /// Whether it is right.
    pub(crate) passed: bool,
    /// Present where there was no answer: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

fn chosen(categories: Option<&str>) -> Result<Vec<&'static Probe>, ToolError> {
    let named = categories.unwrap_or_default().split(',').map(str::trim);
    let named: BTreeSet<_> = named.filter(|name| !name.is_empty()).collect();
    let known = probes::categories();
    if let Some(unknown) = named.iter().find(|name| !known.contains(name)) {
        return Err(ToolError::invalid(format!("`{unknown:.40}` is not a category"))
            .next("use one of those in `details.known`")
            .detail("known", known));
    }
    let wanted = |probe: &&Probe| named.is_empty() || named.contains(probe.category);
    Ok(PROBES.iter().filter(wanted).collect())
}

impl ModelsActor {
    /// Serves `ml_probe`.
    pub(crate) fn probe(
        &mut self,
        cx: &CallCx,
        input: MlProbe,
    ) -> Result<Reply<MlProbed>, ToolError> {
        self.wait(cx, |shared, cx| async move {
            let chosen = chosen(input.categories.as_deref())?;
            let name = input.backend.as_deref().unwrap_or("default");
            let found = shared.models.catalogue.resolve(name, ModelUse::Generate)?;
            let first = found.into_iter().next();
            let first = first.ok_or_else(|| ToolError::internal("an alias without models"))?;
            let source = first.provider.source(&first.model);
            // All of one model: what another one answers says nothing about it.
            let (one, total) = (source.to_string(), chosen.len());
            let asked = chosen.iter().map(|probe| ask(shared.clone(), cx.clone(), &one, probe));
            let asked: Vec<_> = asked.collect();
            let mut asked = stream::iter(asked).buffered(first.provider.options.at_a_time());
            let (mut results, mut usage) = (Vec::with_capacity(total), MlUsage::default());
            while let Some((result, used)) = asked.next().await {
                #[allow(clippy::cast_precision_loss)]
                cx.progress.report(results.len() as f64 + 1.0, Some(total as f64), result.id);
                add(&mut usage, used);
                results.push(result);
            }
            let failed = results.iter().filter(|it| it.error.is_some()).count();
            let passed = results.iter().filter(|it| it.passed).count();
            #[allow(clippy::cast_precision_loss)]
            let score = (total > failed).then(|| passed as f64 / (total - failed) as f64);
            let (backend, model) = (source.provider, source.model);
            let provider_kind = source.provider_kind;
            Ok(MlProbed {
                backend,
                model,
                provider_kind,
                total,
                passed,
                failed,
                score,
                results,
                usage,
            })
        })
    }
}

async fn ask(
    shared: Arc<ModelsShared>,
    cx: CallCx,
    model: &str,
    probe: &'static Probe,
) -> (MlProbeResult, MlUsage) {
    let mut request = ModelRequest::question(cx.session, model, probe.prompt, cx.deadline);
    request.temperature = Some(TEMPERATURE);
    request.max_output_tokens = Some(MAX_TOKENS);
    let Probe { id, category, expected, .. } = *probe;
    let of = |response: &str, passed, error| MlProbeResult {
        id,
        category,
        expected,
        response: response.chars().take(SHOWN).collect(),
        passed,
        error,
    };
    match shared.models.generate(request).await {
        Ok(answer) => (of(&answer.text, probe.passed(&answer.text), None), answer.usage.into()),
        Err(error) => (of("", false, Some(error.to_string())), MlUsage::default()),
    }
}

fn add(sum: &mut MlUsage, one: MlUsage) {
    sum.input_tokens += one.input_tokens;
    sum.output_tokens += one.output_tokens;
    sum.estimated |= one.estimated;
    if let Some(cost) = one.cost_usd {
        *sum.cost_usd.get_or_insert_default() += cost;
    }
}

tools! { pub(crate) FAMILY: "ml" for ModelsActor, singleton models;
    ml_probe: MlProbe => MlProbed = ModelsActor::probe {
        title: "Probe a language model", open_world: true, timeout_secs: 1_800,
    };
}
