//! Rules of the policy over HTTP: listed, added, removed, as `hivekeep policy` does, and explained: what each layer
//! would say to a call, which is not made.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use hivekeep_door_server::codes;
use hivekeep_policy::{RuleEffect, RuleOptions, RuleRow};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{
    approvals::approver,
    decision::shown,
    error::ApiError,
    extract::{BodyOf, OperatorOnly, PathOf, ScopeQuery},
    published::{
        AnyErrorBody, PlainErrorBody, PublishedMode, ToolErrorBody, ToolReason, ToolVerdict,
    },
    sessions::word,
    state::Api,
};

/// Patterns of one rule.
const TOOLS: usize = 1_000;
/// Characters of a condition or a reason.
const TEXT_CHARS: usize = 4_000;

/// Effect of a rule on calls that match.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = RuleEffect)]
pub(super) enum EffectPayload {
    /// Without an approval, whatever the permission mode.
    Allow,
    /// Only with an approval.
    Ask,
    /// Never.
    Deny,
}

/// A rule.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Rule)]
pub(super) struct RuleBody {
    /// Name, as refusals and approvals show it.
    #[schema(min_length = 1, max_length = 64, example = "no-push")]
    name: String,
    effect: EffectPayload,
    /// Tools: names, or beginnings with `*`.
    #[schema(min_items = 1, max_items = 1000, example = json!(["exec*"]))]
    tools: Vec<String>,
    /// Condition in CEL over `tool`, `session`, `args` and `commands`; without one every call matches.
    #[schema(max_length = 4000, example = "commands.exists(c, c[0] == \"git\" && \"push\" in c)")]
    when: Option<String>,
    /// Why, for whoever meets it.
    #[serde(default)]
    #[schema(max_length = 4000)]
    why: String,
}

/// A rule, and where it is from.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ListedRule)]
pub(super) struct RulePayload {
    #[serde(flatten)]
    rule: RuleBody,
    /// True for one that was added, false for one of the configuration, which is changed in its file.
    added: bool,
}

/// Rules in the order in which they are asked.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RuleList)]
pub(super) struct RulesBody {
    rules: Vec<RulePayload>,
}

impl From<RuleEffect> for EffectPayload {
    fn from(effect: RuleEffect) -> Self {
        match effect {
            RuleEffect::Allow => Self::Allow,
            RuleEffect::Ask => Self::Ask,
            RuleEffect::Deny => Self::Deny,
        }
    }
}

impl From<EffectPayload> for RuleEffect {
    fn from(effect: EffectPayload) -> Self {
        match effect {
            EffectPayload::Allow => Self::Allow,
            EffectPayload::Ask => Self::Ask,
            EffectPayload::Deny => Self::Deny,
        }
    }
}

impl From<RuleRow> for RulePayload {
    fn from(RuleRow { rule, added }: RuleRow) -> Self {
        let RuleOptions { name, effect, tools, when, why } = rule;
        let tools = tools.iter().map(ToString::to_string).collect();
        Self { rule: RuleBody { name, effect: effect.into(), tools, when, why }, added }
    }
}

impl RuleBody {
    fn checked(self) -> Result<RuleOptions, ApiError> {
        let invalid = |why: String| ApiError::invalid(ToolReason::SchemaInvalid, why);
        let Self { name, effect, tools, when, why } = self;
        if tools.len() > TOOLS {
            return Err(invalid(format!("`tools` has more than {TOOLS} patterns")));
        }
        for (key, text) in [("when", when.as_deref().unwrap_or_default()), ("why", &why)] {
            if text.chars().count() > TEXT_CHARS {
                return Err(invalid(format!("`{key}` has more than {TEXT_CHARS} characters")));
            }
        }
        let tools = tools.into_iter().map(TryInto::try_into).collect::<Result<_, _>>();
        let tools = tools.map_err(invalid)?;
        Ok(RuleOptions { name, effect: effect.into(), tools, when, why })
    }
}

/// List the rules, in the order in which they are asked.
#[utoipa::path(
    get, path = "/api/policy/rules", tag = "hivekeep", operation_id = "listRules",
    responses((status = 200, description = "Rules.", body = RulesBody)),
)]
pub(super) async fn rules(
    State(api): State<Arc<Api>>,
    OperatorOnly(_): OperatorOnly,
) -> Json<RulesBody> {
    let rules = api.core.dispatcher.policy().rules();
    Json(RulesBody { rules: rules.into_iter().map(RulePayload::from).collect() })
}

/// Add a rule before all others. It holds at once, and after a restart.
#[utoipa::path(
    post, path = "/api/policy/rules", tag = "hivekeep", operation_id = "addRule",
    request_body = RuleBody,
    responses(
        (status = 201, description = "It holds.", body = RulePayload),
        (status = 400, description = "The rule is not valid, or there is one of its name.", body = ToolErrorBody),
        (status = 502, description = "It could not be written down.", body = ToolErrorBody),
    ),
)]
pub(super) async fn add(
    State(api): State<Arc<Api>>,
    OperatorOnly(caller): OperatorOnly,
    BodyOf(body): BodyOf<RuleBody>,
) -> Result<(StatusCode, Json<RulePayload>), ApiError> {
    let rule = body.checked()?;
    let by = approver(&caller).to_string();
    api.core.dispatcher.policy().add_rule(rule.clone(), &by).await?;
    Ok((StatusCode::CREATED, Json(RuleRow { rule, added: true }.into())))
}

/// Remove a rule that was added. It holds no longer when this is answered.
#[utoipa::path(
    delete, path = "/api/policy/rules/{name}", tag = "hivekeep", operation_id = "removeRule",
    params(("name" = String, Path, description = "Name of the rule")),
    responses(
        (status = 204, description = "It is gone."),
        (status = 404, description = "No rule of this name was added.", body = PlainErrorBody),
        (status = 502, description = "It could not be written down.", body = ToolErrorBody),
    ),
)]
pub(super) async fn remove(
    State(api): State<Arc<Api>>,
    OperatorOnly(caller): OperatorOnly,
    PathOf(name): PathOf,
) -> Result<StatusCode, ApiError> {
    let by = approver(&caller).to_string();
    match api.core.dispatcher.policy().remove_rule(&name, &by).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(error) if error.is(codes::RULE_NOT_FOUND) => {
            Err(ApiError::not_there("added rule", &name))
        }
        Err(error) => Err(error.into()),
    }
}

/// A call to be explained.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ExplainRequest)]
pub(super) struct ExplainBody {
    /// Id of the tool.
    #[schema(max_length = 64, pattern = "^[a-z][a-z0-9_]*$", example = "workspace_list")]
    tool_id: String,
    /// Session that would call; without one, the caller.
    session_id: Option<String>,
    /// Agent that the call would be made for, where there is no session.
    agent_name: Option<String>,
    /// Input; without it, what depends on one is not ruled on.
    #[schema(value_type = Option<Object>)]
    input: Option<Map<String, Value>>,
}

/// Explanation of a call: the verdict of each layer, and the outcome.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Explanation)]
pub(super) struct ExplanationBody {
    /// `allowed`, `denied`, `unavailable` or `asks`.
    outcome: String,
    /// The verdicts in their order, up to the first denial.
    verdicts: Vec<ToolVerdict>,
    /// The mode that the call would be under.
    permission_mode: PublishedMode,
    /// Whether the tool is served now.
    availability: ToolVerdict,
}

/// Explain what would become of a call. Nobody is asked, and no approval is used up.
#[utoipa::path(
    post, path = "/api/policy/explain", tag = "hivekeep", operation_id = "explainCall",
    request_body = ExplainBody,
    responses(
        (status = 200, description = "The verdicts of the layers.", body = ExplanationBody),
        (status = 400, description = "The request is not valid.", body = ToolErrorBody),
        (status = 404, description = "No such tool or session.", body = AnyErrorBody),
    ),
)]
pub(super) async fn explain(
    State(api): State<Arc<Api>>,
    OperatorOnly(caller): OperatorOnly,
    BodyOf(body): BodyOf<ExplainBody>,
) -> Result<Json<ExplanationBody>, ApiError> {
    let ExplainBody { tool_id, session_id, agent_name, input } = body;
    let entry = api.entry(&tool_id)?;
    let asked = ScopeQuery { session_id, agent_name, ..ScopeQuery::default() };
    let scope = api.scope(&caller, &asked)?;
    let input = input.map(Value::Object);
    let view = api.decided(&scope, &entry, input.as_ref())?;
    Ok(Json(ExplanationBody {
        outcome: word(view.outcome),
        verdicts: view.verdicts.iter().map(shown).collect(),
        permission_mode: view.permission_mode.into(),
        availability: shown(&view.availability),
    }))
}
