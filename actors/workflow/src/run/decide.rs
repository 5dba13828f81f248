//! Turns of the agent of a DAG: a model sees the tasks and what was done, and chooses the next step.

use chrono::Utc;
use hivekeep_kernel::ToolError;
use hivekeep_manifest::dag::DagModel;
use hivekeep_plan::{
    lower::{AGENT_STEP, most_decisions},
    plan::NodeIndex,
    progress::{MachineMove, NodeOutcome, NodePhase, ProgressRecord},
    resolve::{TextField, resolve_value},
};
use hivekeep_ports::{ModelMessage, ModelRequest, ModelToolChoice};
use hivekeep_runtime::log::LogError;
use serde_json::{Map, Value, json};

use super::{
    RunFold, RunSaga,
    agent_tools::{chosen, cut, goals, own_tools, tools},
    chat::{models, whole},
    decisions::{AgentDecision, DecidedCall, DecisionChoice, DecisionLog, GoalStatus},
    failure::failed,
    node_try::{NodeEnd, NodeTry},
    obeyed::chat_settings,
    records::RunChild,
    scope::too_long,
};

/// Longest result that an agent is shown, in bytes.
const SHOWN_BYTES: usize = 64 * 1024;
/// Tokens of a request from which older results are shortened, and results that stay whole, where the DAG says nothing.
const CONTEXT_TOKENS: u64 = 200_000;
const KEPT_WHOLE: u64 = 20;
const INSTRUCTIONS: &str = "You work on the tasks below by tools, one call at a time. Each tool does a step; its result \
    comes next. Call `set_task_status` as soon as a task's description holds (`completed`), is not needed (`skipped`) or \
    cannot be reached (`failed`). A failed step may be tried again. You are done when no task is open.";

impl RunSaga {
    /// Has the agent decide, or says why it may not any more.
    ///
    /// # Errors
    /// `step_failed` where tasks failed, or the agent is at its bounds; the model's error.
    pub(super) async fn decide(&self, of: &NodeTry<'_>) -> Result<NodeEnd, ToolError> {
        let none = || ToolError::internal("a decision of a run without an agent");
        let log = of.state.decisions.as_deref().ok_or_else(none)?;
        let dag = &of.state.begun.dag;
        let model = dag.llm.clone().unwrap_or_default();
        within_bounds(of.state, log)?;
        let settings = Value::Object(chat_settings(Map::new(), dag));
        let settings = resolve_value(&settings, TextField::StepText, &of.scopes.texts(of.work));
        let settings = settings.map_err(|_| too_long("llm"))?;
        let settings = settings.as_object().cloned().unwrap_or_default();
        let observed = observed(of, log, &model);
        let tools = tools(of);
        let system = system(of, log, observed.as_deref(), settings.get("system"))?;
        of.keeps_secrets(&Value::String(system.clone()))?;
        let messages = messages(log, observed.as_deref(), &model);
        let fill = |request: &mut ModelRequest| {
            request.system = Some(system.clone());
            request.messages = messages.clone();
            request.tools = tools.iter().map(|it| it.tool.clone()).chain(own_tools()).collect();
            request.tool_choice = ModelToolChoice::Auto;
        };
        let answer = self.first_answer(of, models(&settings)?, &fill);
        let Some(answer) = answer.await? else { return Ok(NodeEnd::of(NodeOutcome::Aborted)) };
        let (source, input_tokens) = (answer.source.to_string(), answer.usage.input_tokens);
        let call = answer.calls.first().cloned();
        let text = match call {
            Some(_) => answer.text,
            // An answer that was cut short, or withheld, is no silence.
            None => whole(answer)?,
        };
        let choice = call.as_ref().map_or(DecisionChoice::Stalled, |call| {
            let why = |why| DecisionChoice::Rejected { why };
            let said: Vec<_> = answers(log, observed.as_deref()).collect();
            chosen(of, log, (&tools, &said), &call.name, &call.arguments).unwrap_or_else(why)
        });
        let mut ended = NodeEnd::of(NodeOutcome::Succeeded);
        if let DecisionChoice::AskUser { question, .. } = &choice {
            ended.left.outputs.insert("question".to_owned(), question.clone());
        }
        ended.left.decision = Some(Box::new(AgentDecision {
            observed,
            text,
            call: call.map(DecidedCall::from),
            choice,
            model: source,
            input_tokens,
        }));
        Ok(ended)
    }

    /// Goes on from a step of a DAG with an agent: to its decision, or from that to what it chose.
    pub(crate) async fn leave_step(&self, run: &RunFold, node: NodeIndex) -> Result<(), LogError> {
        let Some(way) = way(run, node) else { return Ok(()) };
        self.moved(ProgressRecord::Moved { left: node, way, at: Utc::now() }, None).await
    }
}

impl RunFold {
    /// Arguments that the agent chose a step with.
    pub(super) fn decided_for(&self, node: NodeIndex) -> Option<&Map<String, Value>> {
        let last = self.decisions.as_ref()?.all.last()?;
        let is_this = last.choice == DecisionChoice::Step { node };
        last.call.as_ref().filter(|_| is_this)?.arguments.as_object()
    }
}

/// Adds parameters that a step's author left open.
pub(super) fn add_given(children: &mut [RunChild], given: &Map<String, Value>) {
    for child in children {
        let open = match &mut child.given {
            Value::Object(named) => named,
            Value::Array(list) => {
                if !matches!(list.last(), Some(Value::Object(_))) {
                    list.push(json!({}));
                }
                let Some(Value::Object(named)) = list.last_mut() else { continue };
                named
            }
            other => {
                *other = json!({});
                let Value::Object(named) = other else { continue };
                named
            }
        };
        for (name, value) in given {
            open.entry(name).or_insert_with(|| value.clone());
        }
    }
}

/// Names of the tasks that nothing is said of.
fn open_goals<'r>(run: &'r RunFold, log: &DecisionLog) -> Vec<&'r str> {
    let open = goals(run).iter().filter(|goal| !log.goals.contains_key(&goal.name));
    open.map(|goal| goal.name.as_str()).collect()
}

fn within_bounds(run: &RunFold, log: &DecisionLog) -> Result<(), ToolError> {
    let open = open_goals(run, log).join("`, `");
    let (most, made) = (most_decisions(&run.begun.dag), log.current());
    let stalls = made.iter().rev().take_while(|it| it.choice == DecisionChoice::Stalled).count();
    let lost = log.goals.iter().filter(|(_, goal)| goal.status == GoalStatus::Failed);
    let lost: Vec<_> = lost.map(|(name, goal)| format!("`{name}`: {}", goal.reason)).collect();
    match () {
        () if open.is_empty() => {
            Err(failed(format!("its agent gave tasks up: {}", lost.join("; "))))
        }
        () if made.len() >= most as usize => {
            let bound =
                "raise `llm.max_tool_iterations`, or make the tasks smaller; a retry goes on";
            let what =
                format!("its agent made {most} decisions, as many as it may; open: `{open}`");
            Err(failed(what).next(bound))
        }
        () if stalls > 1 => {
            Err(failed(format!("its agent chose nothing, twice, and these are open: `{open}`")))
        }
        () => Ok(()),
    }
}

fn way(run: &RunFold, node: NodeIndex) -> Option<MachineMove> {
    let work = run.work()?;
    let (log, plan) = (run.decisions.as_deref()?, work.progress.plan());
    let (agent, _) = plan.indexed().find(|(_, node)| node.name == AGENT_STEP)?;
    if node != agent {
        return Some(MachineMove::Node { node: agent });
    }
    let NodePhase::Ended(result) = &work.progress.node(node)?.phase else { return None };
    let lost = log.goals.values().any(|goal| goal.status == GoalStatus::Failed);
    Some(match log.all.last().map(|last| &last.choice) {
        _ if result.outcome != NodeOutcome::Succeeded => MachineMove::Failed,
        _ if open_goals(run, log).is_empty() && !lost => MachineMove::Completed,
        Some(DecisionChoice::Step { node } | DecisionChoice::AskUser { node, .. }) => {
            MachineMove::Node { node: *node }
        }
        _ => MachineMove::Node { node: agent },
    })
}

/// Result of the step that was chosen last, as the agent is told it.
fn observed(of: &NodeTry<'_>, log: &DecisionLog, model: &DagModel) -> Option<String> {
    let (DecisionChoice::Step { node } | DecisionChoice::AskUser { node, .. }) =
        &log.all.last()?.choice
    else {
        return None;
    };
    let Some(NodePhase::Ended(result)) = of.work.progress.node(*node).map(|node| &node.phase)
    else {
        return Some("It was cut short, and has no result.".to_owned());
    };
    let left = of.state.left.get(node).cloned().unwrap_or_default();
    let mut told = Map::new();
    told.insert("status".to_owned(), json!(result.outcome));
    told.extend(result.exit_code.map(|code| ("exit_code".to_owned(), json!(code))));
    told.extend(left.error.as_ref().map(|error| ("error".to_owned(), json!(error.message))));
    let named = left.outputs.iter().chain(&left.variables);
    told.extend(named.map(|(name, value)| (name.clone(), json!(value))));
    told.extend(left.output.clone().map(|output| ("output".to_owned(), output)));
    for (name, text) in left
        .logs
        .iter()
        .flat_map(|logs| [("stdout", &logs.stdout.text), ("stderr", &logs.stderr.text)])
    {
        let text = text.as_str();
        told.extend((!text.is_empty()).then(|| (name.to_owned(), json!(text))));
    }
    let asked = model.observation_max_bytes.filter(|most| *most > 0);
    let most = asked.and_then(|most| usize::try_from(most).ok()).unwrap_or(SHOWN_BYTES);
    Some(cut(Value::Object(told).to_string(), most.min(SHOWN_BYTES)))
}

/// Tasks with their status, rules, and answers of people.
fn system(
    of: &NodeTry<'_>,
    log: &DecisionLog,
    observed: Option<&str>,
    own: Option<&Value>,
) -> Result<String, ToolError> {
    let mut text = own.and_then(Value::as_str).map(|own| format!("{own}\n\n")).unwrap_or_default();
    text.push_str(INSTRUCTIONS);
    text.push_str("\n\nTasks:");
    for goal in goals(of.state) {
        let wanted = of.scopes.resolve(of.work, &goal.description, TextField::StepText)?;
        let settled = log.goals.get(&goal.name);
        let status = settled.map_or(GoalStatus::Open, |settled| settled.status);
        text.push_str(&format!("\n- {} ({}): {wanted}", goal.name, status.word()));
    }
    for (question, answer) in answers(log, observed) {
        text.push_str(&format!("\nA person was asked: {question}\nand said: {answer}"));
    }
    Ok(text)
}

/// Questions of the agent with what people said to them.
fn answers<'l>(
    log: &'l DecisionLog,
    observed: Option<&'l str>,
) -> impl Iterator<Item = (&'l str, &'l str)> {
    let seen = log.all.iter().skip(1).map(|it| it.observed.as_deref()).chain([observed]);
    log.all.iter().zip(seen).filter_map(|(decision, seen)| match &decision.choice {
        DecisionChoice::AskUser { question, .. } => Some((question.as_str(), seen?)),
        _ => None,
    })
}

fn messages(log: &DecisionLog, observed: Option<&str>, model: &DagModel) -> Vec<ModelMessage> {
    let most = model.max_context_tokens.unwrap_or(CONTEXT_TOKENS);
    let kept = model.observation_keep_recent.unwrap_or(KEPT_WHOLE);
    let is_long = most > 0 && kept > 0 && log.all.iter().any(|it| it.input_tokens >= most);
    let kept = usize::try_from(kept).unwrap_or(usize::MAX);
    let old = if is_long { log.all.len().saturating_sub(kept) } else { 0 };
    let mut messages = vec![ModelMessage::User("Begin.".to_owned())];
    let seen = log.all.iter().skip(1).map(|it| it.observed.as_deref()).chain([observed]);
    for (at, (decision, seen)) in log.all.iter().zip(seen).enumerate() {
        let call = decision.call.as_ref().map(Into::into);
        let text = match (decision.text.is_empty(), &call) {
            (true, None) => "(nothing)".to_owned(),
            _ => decision.text.clone(),
        };
        messages.push(ModelMessage::Assistant { text, calls: call.iter().cloned().collect() });
        let (content, is_error) = match &decision.choice {
            DecisionChoice::Step { .. } | DecisionChoice::AskUser { .. } if at < old => {
                (shortened(seen), false)
            }
            DecisionChoice::Step { .. } | DecisionChoice::AskUser { .. } => {
                (seen.unwrap_or("It has no result.").to_owned(), false)
            }
            DecisionChoice::TaskStatus { .. } => ("It is noted.".to_owned(), false),
            DecisionChoice::Rejected { why } => (why.clone(), true),
            DecisionChoice::Stalled => ("Tasks are open: call a tool.".to_owned(), false),
        };
        messages.push(match call {
            Some(call) => ModelMessage::ToolResult { call, content, is_error },
            None => ModelMessage::User(content),
        });
    }
    messages
}

/// Old result in a line.
fn shortened(seen: Option<&str>) -> String {
    let told: Option<Value> = seen.and_then(|seen| serde_json::from_str(seen).ok());
    let status = told.and_then(|told| told.get("status").map(Value::to_string));
    format!("It ended: {}. The rest is left out.", status.as_deref().unwrap_or("long ago"))
}
