//! Actions that are no commands: tools of the catalogue, called as the run's owner, and what a run does by itself.

use std::collections::BTreeSet;

use hivekeep_kernel::{Effect, EffectKey, Progress, ToolError, codes};
use hivekeep_manifest::dag::{DagManifest, action::is_builtin};
use hivekeep_plan::{progress::NodeOutcome, resolve::value_text};
use hivekeep_ports::ChildCall;
use serde_json::{Map, Value, json};

use super::{
    NodeLeft, RunSaga,
    conditions::matches,
    obeyed::steps,
    outputs::{StepOutput, Succeeded, failed},
    work::{NodeEnd, NodeTry},
};

/// Names of the tools that a DAG's steps call, those of loops among them.
pub(super) fn tools(dag: &DagManifest) -> impl Iterator<Item = String> + use<> {
    let called = steps(dag).into_iter().filter_map(|step| step.action.clone());
    let found: BTreeSet<String> = called.filter(|name| !is_builtin(name)).collect();
    found.into_iter()
}

impl RunSaga {
    /// Does what a step without a command does.
    pub(super) async fn act(&self, of: &NodeTry<'_>, action: &str) -> Result<NodeEnd, ToolError> {
        let with = self.settings(of)?;
        let (text, left) = match action {
            "log.write" => (
                with.get("message").map(value_text).unwrap_or_default().into_owned(),
                NodeLeft::default(),
            ),
            "outputs.write" => {
                let values = with.get("values").cloned().unwrap_or_else(|| json!({}));
                (values.to_string(), NodeLeft { published: Some(values), ..NodeLeft::default() })
            }
            "router.route" => {
                let chosen = routed(&with)?;
                (chosen.join("\n"), NodeLeft { chosen, ..NodeLeft::default() })
            }
            "harness.run" => return self.run_harness(of, with).await,
            "chat.completion" => match self.ask_model(of).await? {
                Some(text) => (text, NodeLeft::default()),
                None => return Ok(NodeEnd::of(NodeOutcome::Aborted)),
            },
            _ if is_builtin(action) => {
                return Err(failed(format!("the action `{action}` cannot be run yet")));
            }
            _ => match self.call_tool(of, action, with).await? {
                Some(text) => (text, NodeLeft::default()),
                None => return Ok(NodeEnd::of(NodeOutcome::Aborted)),
            },
        };
        self.spoke(of, StepOutput::Text(&text), left).await
    }

    /// End of a step that has succeeded with a text, and has left something beside it.
    pub(super) async fn spoke(
        &self,
        of: &NodeTry<'_>,
        from: StepOutput<'_>,
        mut left: NodeLeft,
    ) -> Result<NodeEnd, ToolError> {
        let (state, work, scopes) = (of.state, of.work, &of.scopes);
        let step = &*of.node.step;
        let collected = self.collect(&Succeeded { state, work, scopes, step, from }).await?;
        let mut ended = NodeEnd::of(NodeOutcome::Succeeded);
        left.published = left.published.or(collected.published);
        ended.left = NodeLeft { published: left.published, chosen: left.chosen, ..collected };
        Ok(ended)
    }

    /// Calls a tool in the run's session, through every step of the dispatcher; `None` where it was cut short. A call
    /// that an earlier incarnation may have begun is made again where it does no more than once.
    async fn call_tool(
        &self,
        of: &NodeTry<'_>,
        name: &str,
        args: Map<String, Value>,
    ) -> Result<Option<String>, ToolError> {
        let session = Self::session(of.state)?;
        let plain = |name: &str| name.replace('.', "_");
        let tools = self.shared.children.tools(session)?;
        let tool =
            tools.into_iter().find(|tool| plain(&tool.name) == plain(name)).ok_or_else(|| {
                failed(format!(
                    "there is no action `{name:.80}`, and no tool of the name that you may call"
                ))
            })?;
        let repeatable = matches!(tool.effect, Effect::Read | Effect::Idempotent);
        let again = of.resumed && !repeatable;
        let call = ChildCall {
            session,
            tool: tool.name,
            args,
            timeout: of.node.step.timeout_sec.map(std::time::Duration::from_secs),
            cancel: self.cancel_of(of.state, of.key).child_token(),
            progress: Progress::default(),
            effect: Some(EffectKey { key: format!("{}/{}", of.state.begun.id, of.name), again }),
        };
        match self.shared.children.call(call).await {
            Ok(answer) => Ok(Some(value_text(&answer.value).into_owned())),
            Err(error) if error.is(codes::CANCELLED) => Ok(None),
            Err(error) if again => {
                let mut interrupted = failed(format!(
                    "the daemon ended during its call, and whether that took effect is not known: {}",
                    error.message
                ));
                interrupted.details = error.details;
                Err(interrupted)
            }
            Err(error) => Err(error),
        }
    }
}

/// Steps that a router's value chooses, of all routes that it fits.
///
/// # Errors
/// For a route that is no regular expression.
fn routed(with: &Map<String, Value>) -> Result<Vec<String>, ToolError> {
    let value = with.get("value").map(value_text).unwrap_or_default();
    let mut chosen = Vec::new();
    for (route, targets) in with.get("routes").and_then(Value::as_object).into_iter().flatten() {
        let fits = match route.starts_with("re:") {
            true => matches(&value, route)?,
            false => value == *route,
        };
        let targets = match targets {
            Value::Array(targets) => targets.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect::<Vec<_>>(),
        };
        chosen.extend(targets.into_iter().filter(|_| fits).map(str::to_owned));
    }
    Ok(chosen)
}
