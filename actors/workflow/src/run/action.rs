//! Actions that are no commands: tools of the catalogue, called as the run's owner, and what a run does by itself.

use std::collections::BTreeSet;

use hivekeep_kernel::{Effect, EffectKey, Progress, ToolError, codes};
use hivekeep_manifest::dag::{DagManifest, action::is_builtin};
use hivekeep_plan::{go_template::render_go, progress::NodeOutcome, resolve::value_text};
use hivekeep_ports::{ChildCall, Mail, Mails};
use serde_json::{Map, Value, json};

use super::{
    NodeLeft, RunFold, RunSaga, RunTrigger,
    conditions::matches,
    failure::failed,
    kept_state::StateCall,
    node_try::{NodeEnd, NodeTry, stream_file},
    obeyed::steps,
    outputs::{StepOutput, Succeeded, most_bytes},
    requests::{FETCHER, of_key},
};
use crate::jq::JqRequest;

/// Namespace of state that all DAGs of a user share.
const GLOBAL: &str = "_";

/// Names of the tools that a DAG's steps call, those of loops among them.
pub(super) fn tools(dag: &DagManifest) -> impl Iterator<Item = String> + use<> {
    let called = steps(dag).into_iter().filter_map(|step| step.action.clone());
    let (own, mut found): (BTreeSet<String>, _) = called.partition(|name| is_builtin(name));
    let fetches = |name: &String| name == "http.request" || name == "wait.http";
    let is_old = |step: &hivekeep_manifest::dag::DagStep| step.step_type.as_deref() == Some("http");
    let tells = dag.delivery.is_some();
    if tells || own.iter().any(fetches) || steps(dag).into_iter().any(is_old) {
        found.insert(FETCHER.to_owned());
    }
    found.into_iter()
}

impl RunSaga {
    /// Does what a step without a command does.
    pub(super) async fn act(&self, of: &NodeTry<'_>, action: &str) -> Result<NodeEnd, ToolError> {
        let with = self.settings(of)?;
        let none = NodeLeft::default;
        let (text, own) = match action {
            "log.write" => {
                (with.get("message").map(value_text).unwrap_or_default().into_owned(), none())
            }
            "outputs.write" => {
                let values = with.get("values").cloned().unwrap_or_else(|| json!({}));
                (values.to_string(), NodeLeft { published: Some(values), ..none() })
            }
            "router.route" => {
                let chosen = routed(&with)?;
                (chosen.join("\n"), NodeLeft { chosen, ..none() })
            }
            "wait.duration" | "wait.until" => (String::new(), none()),
            "wait.file" => (self.wait_file(of, &with).await?, none()),
            "wait.http" => (self.wait_http(of, &with).await?, none()),
            "http.request" => (self.request(of, &with).await?, none()),
            "mail.send" => (self.mail(of, &with).await?, none()),
            "template.render" => (self.rendered(of, &with).await?, none()),
            "jq.filter" => (self.filtered(of, &with).await?, none()),
            _ if action.starts_with("file.") || action.starts_with("artifact.") => {
                (self.file_action(of, action, &with).await?, none())
            }
            "git.checkout" => {
                let outputs = self.checkout(of, &with).await?;
                (json!(outputs).to_string(), NodeLeft { outputs, ..none() })
            }
            _ if action.starts_with("git.worktree.") => {
                let outputs = self.worktree(of, action, &with).await?;
                (String::new(), NodeLeft { outputs, ..none() })
            }
            _ if action.starts_with("state.") => {
                (self.state_action(of, action, &with).await?, none())
            }
            "harness.run" => return self.run_harness(of, with).await,
            "chat.completion" => match self.ask_model(of).await? {
                Some(text) => (text, none()),
                None => return Ok(NodeEnd::of(NodeOutcome::Aborted)),
            },
            _ if is_builtin(action) => {
                return Err(failed(format!("the action `{action}` cannot be run yet")));
            }
            _ => match self.call_tool(of, action, with).await? {
                Some(text) => (text, none()),
                None => return Ok(NodeEnd::of(NodeOutcome::Aborted)),
            },
        };
        self.spoke(of, StepOutput::Text(&text), own).await
    }

    /// End of a step that has succeeded with a text, and has left something beside it.
    pub(super) async fn spoke(
        &self,
        of: &NodeTry<'_>,
        from: StepOutput<'_>,
        own: NodeLeft,
    ) -> Result<NodeEnd, ToolError> {
        let (state, work, scopes) = (of.state, of.work, &of.scopes);
        let step = &*of.node.step;
        let kept = match from {
            StepOutput::Text(text) => self.kept_text(of, text).await?,
            _ => None,
        };
        let collected = self.collect(&Succeeded { state, work, scopes, step, from }).await?;
        let mut ended = NodeEnd::of(NodeOutcome::Succeeded);
        ended.end.exit_code = Some(0);
        ended.left = NodeLeft {
            published: own.published.or(collected.published),
            chosen: own.chosen,
            outputs: if own.outputs.is_empty() { collected.outputs } else { own.outputs },
            stdout_file: kept.or(collected.stdout_file),
            ..collected
        };
        Ok(ended)
    }

    /// File with the text that an action leaves: the one that the step names for its output, or one of its try where
    /// the DAG refers to it.
    async fn kept_text(&self, of: &NodeTry<'_>, text: &str) -> Result<Option<String>, ToolError> {
        let named = stream_file(of, &of.node.step.stdout)?;
        let Some(path) = named.or_else(|| of.read_stream()) else { return Ok(None) };
        self.put_file(of, "stdout", &path, text).await?;
        Ok(Some(path))
    }

    async fn rendered(
        &self,
        of: &NodeTry<'_>,
        with: &Map<String, Value>,
    ) -> Result<String, ToolError> {
        // The template itself is not resolved; what a reference to one has is.
        let template = of.node.with.get("template").or_else(|| with.get("template_ref"));
        let template = template.and_then(Value::as_str).unwrap_or_default();
        let data = match with.get("data") {
            Some(Value::String(text)) => serde_json::from_str(text).ok(),
            data => data.cloned(),
        };
        let data = match data {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(data)) => data,
            Some(_) => return Err(failed("`with.data` is not a mapping".to_owned())),
        };
        let text =
            render_go(template, &data).map_err(|why| failed(format!("its template: {why}")))?;
        match with.get("output").and_then(Value::as_str).filter(|path| !path.is_empty()) {
            Some(path) => self.put_file(of, "output", path, &text).await.map(|()| String::new()),
            None => Ok(text),
        }
    }

    async fn filtered(
        &self,
        of: &NodeTry<'_>,
        with: &Map<String, Value>,
    ) -> Result<String, ToolError> {
        let text = |name: &str| with.get(name).and_then(Value::as_str);
        let data = text("data").and_then(|data| data.strip_prefix("file://"));
        let input = match (text("input").or(data), with.get("data")) {
            (Some(path), _) => self.file_text(of, path).await?,
            (None, Some(data)) => value_text(data).into_owned(),
            (None, None) => return Err(failed("it needs `with.data` or `with.input`".to_owned())),
        };
        let raw = with.get("raw").is_some_and(|it| *it == true || *it == "true");
        let filter = text("filter").unwrap_or_default().to_owned();
        let request = JqRequest { filter, input, raw, most_bytes: most_bytes(of.state) };
        let cancel = self.cancel_of(of.state, of.key);
        let filtered = self.shared.filters.run(&request, cancel).await?;
        filtered.map_err(|why| failed(format!("its filter: {why}")))
    }

    async fn state_action(
        &self,
        of: &NodeTry<'_>,
        action: &str,
        with: &Map<String, Value>,
    ) -> Result<String, ToolError> {
        let (_, operation) = action.split_once('.').unwrap_or_default();
        let namespace = match with.get("scope").and_then(Value::as_str).unwrap_or("dag") {
            "dag" => of.state.begun.name.clone(),
            "root_dag" => self.root_name(of.state),
            "global" => GLOBAL.to_owned(),
            "custom" => String::new(),
            other => {
                let message =
                    format!("`with.scope` is `dag`, `root_dag`, `global` or `custom`: {other:.80}");
                return Err(failed(message));
            }
        };
        let by = format!("{}/{}", of.state.begun.id, of.name);
        let call = StateCall { operation, with, namespace, by };
        let told = self.shared.states.call(of.state.begun.user, &call).await?;
        Ok(told.to_string())
    }

    /// Name of the DAG that the run, or the one that began it, was started with.
    fn root_name(&self, state: &RunFold) -> String {
        let (mut name, mut trigger) = (state.begun.name.clone(), state.begun.trigger.clone());
        while let RunTrigger::Parent { run, .. } = trigger {
            let parent = |state: &RunFold| (state.begun.name.clone(), state.begun.trigger.clone());
            let Some(found) = self.runs().ok().and_then(|runs| runs.look(run, parent)) else {
                break;
            };
            (name, trigger) = found;
        }
        name
    }

    async fn mail(&self, of: &NodeTry<'_>, with: &Map<String, Value>) -> Result<String, ToolError> {
        if of.resumed {
            let message = "the daemon ended while it was sent, and whether it arrived is not known";
            return Err(failed(message.to_owned()));
        }
        let id = self.send_mail(of.state, of_key(of), with).await?;
        Ok(json!({ "message_id": id }).to_string())
    }

    /// Sends a mail of settings as the run's owner; its id.
    ///
    /// # Errors
    /// `step_failed` for settings that are not here, and where no mail is sent; those of the server.
    pub(super) async fn send_mail(
        &self,
        state: &RunFold,
        key: String,
        with: &Map<String, Value>,
    ) -> Result<String, ToolError> {
        for name in ["attachments", "attach_logs"] {
            if with.get(name).is_some_and(|it| !it.is_null() && *it != false && *it != json!([])) {
                let message = format!("`with.{name}` is not here: name the files in the text");
                return Err(failed(message));
            }
        }
        let text = |name: &str| with.get(name).map(value_text).unwrap_or_default().into_owned();
        let to = match with.get("to") {
            Some(Value::Array(all)) => all.iter().map(|to| value_text(to).into_owned()).collect(),
            _ => text("to").split([',', ';']).map(|to| to.trim().to_owned()).collect::<Vec<_>>(),
        };
        let mails = self.shared.daemon.ports.find::<dyn Mails>();
        let mails = mails.ok_or_else(|| {
            failed("the daemon sends no mail: have the operator set `agent.smtp`".to_owned())
        })?;
        let mail = Mail {
            to: to.into_iter().filter(|to| !to.is_empty()).collect(),
            reply_to: Some(text("from")).filter(|from| !from.trim().is_empty()),
            subject: text("subject"),
            body: text("message"),
            key,
        };
        mails.send(state.begun.user, mail).await
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
