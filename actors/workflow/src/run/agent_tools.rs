//! Tools of the agent of a DAG: its steps, what has become of a task, and a question to a person.

use hivekeep_manifest::dag::DagTask;
use hivekeep_plan::{
    lower::{AGENT_STEP, ASK_STEP, StepWork},
    plan::{NodeIndex, NodeOrder, NodeRole, PlanNode},
};
use hivekeep_ports::ModelTool;
use serde_json::{Map, Value, json};

use super::{
    RunFold,
    decisions::{DecisionChoice, DecisionLog, GoalStatus},
    node_try::NodeTry,
    records::RunTrigger,
};

/// Tool that says what has become of a task.
const SET_STATUS: &str = "set_task_status";
/// Longest name of a tool.
const NAME_CHARS: usize = 64;

/// Tool of a step.
pub(super) struct StepTool {
    node: NodeIndex,
    pub(super) tool: ModelTool,
}

/// Tools of the steps, each under a name of its own.
pub(super) fn tools(of: &NodeTry<'_>) -> Vec<StepTool> {
    let mut taken = vec![SET_STATUS.to_owned(), ASK_STEP.to_owned()];
    let steps = of.work.progress.plan().indexed();
    let steps = steps.filter(|(_, node)| {
        node.role == NodeRole::Step && ![AGENT_STEP, ASK_STEP].contains(&node.name.as_str())
    });
    let mut tools = Vec::new();
    for (at, node) in steps {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let own = node.id.as_ref().unwrap_or(&node.name);
        let base: String = own.chars().map(plain).take(NAME_CHARS).collect();
        let mut name = base.clone();
        for number in 2.. {
            if !taken.contains(&name) {
                break;
            }
            let number = format!("_{number}");
            name = base.chars().take(NAME_CHARS - number.len()).chain(number.chars()).collect();
        }
        taken.push(name.clone());
        let (description, input_schema) = (described(of.state, node), schema(of.state, node));
        tools.push(StepTool { node: at, tool: ModelTool { name, description, input_schema } });
    }
    tools
}

fn described(run: &RunFold, node: &PlanNode<StepWork>) -> String {
    let text = |key: &str| node.action.with.get(key).and_then(Value::as_str);
    let called = || run.begun.documents.get(text("dag")?)?.description.clone();
    let own = node.action.step.description.clone().or_else(|| text("prompt").map(str::to_owned));
    own.or_else(called).unwrap_or_else(|| format!("Does the step `{}`.", node.name))
}

/// Parameters that the author of a step left to the agent: those of a DAG that it runs, without those that it names.
fn schema(run: &RunFold, node: &PlanNode<StepWork>) -> Value {
    let with = &node.action.with;
    let called = with.get("dag").and_then(Value::as_str);
    let called = called.filter(|_| node.action.action == "dag.run");
    let params = called.and_then(|name| run.begun.documents.get(name)?.params.as_ref());
    let mut properties = Map::new();
    for (name, has_value) in params.map(|params| params.names()).unwrap_or_default() {
        let given = match with.get("params") {
            None => false,
            Some(Value::Object(given)) => given.contains_key(name),
            Some(Value::String(text)) => {
                text.split_whitespace().any(|word| word.split('=').next() == Some(name))
            }
            Some(_) => true,
        };
        if !given {
            let needed = if has_value { "It has a default." } else { "It is needed." };
            properties.insert(name.to_owned(), json!({ "type": "string", "description": needed }));
        }
    }
    json!({ "type": "object", "properties": properties })
}

pub(super) fn own_tools() -> [ModelTool; 2] {
    let tool = |name: &str, description: &str, properties: Value| {
        let required: Vec<_> = properties.as_object().into_iter().flat_map(Map::keys).collect();
        ModelTool {
            name: name.to_owned(),
            description: description.to_owned(),
            input_schema: json!({ "type": "object", "properties": properties, "required": required }),
        }
    };
    let statuses =
        [GoalStatus::Open, GoalStatus::Completed, GoalStatus::Skipped, GoalStatus::Failed];
    [
        tool(
            SET_STATUS,
            "Say what has become of a task.",
            json!({
                "task": { "type": "string" },
                "status": { "type": "string", "enum": statuses.map(GoalStatus::word) },
                "reason": { "type": "string" },
            }),
        ),
        tool(
            ASK_STEP,
            "Ask a person what you cannot find out by other tools.",
            json!({ "question": { "type": "string" } }),
        ),
    ]
}

/// Meaning of a call.
///
/// # Errors
/// Why nothing is done for it, for the agent.
pub(super) fn chosen(
    of: &NodeTry<'_>,
    log: &DecisionLog,
    (tools, said): (&[StepTool], &[(&str, &str)]),
    name: &str,
    arguments: &Value,
) -> Result<DecisionChoice, String> {
    let Value::Object(arguments) = arguments else {
        return Err("Its arguments have to be a JSON object.".to_owned());
    };
    let text = |key: &str| arguments.get(key).and_then(Value::as_str).unwrap_or_default();
    match name {
        SET_STATUS => {
            let task = text("task");
            if !goals(of.state).iter().any(|goal| goal.name == task) {
                return Err(format!("The task `{task:.80}` is not here."));
            }
            let status = serde_json::from_value(json!(text("status")));
            let status: GoalStatus = status.map_err(|_| {
                "`status` is `open`, `completed`, `skipped` or `failed`.".to_owned()
            })?;
            let before = log.goals.get(task).map_or(GoalStatus::Open, |goal| goal.status);
            if status == before {
                return Err(format!("`{task}` is `{}` already.", status.word()));
            }
            let (task, reason) = (task.to_owned(), cut(text("reason").to_owned(), 2_000));
            Ok(DecisionChoice::TaskStatus { task, status, reason })
        }
        ASK_STEP => {
            let question = cut(text("question").trim().to_owned(), 4_000);
            let said = said.iter().find(|(asked, _)| *asked == question);
            match (said, &of.state.begun.trigger) {
                _ if question.is_empty() => Err("`question` is empty.".to_owned()),
                (_, RunTrigger::Parent { .. }) => {
                    Err("Nobody can be asked: another run waits for this one.".to_owned())
                }
                (Some((_, said)), _) => Err(format!("It was asked before: {said}")),
                (None, _) => {
                    let plan = of.work.progress.plan().indexed();
                    let mut ask = plan.filter(|(_, node)| node.name == ASK_STEP);
                    let node = ask.next().map(|(at, _)| at).ok_or("Nobody can be asked.")?;
                    may_again(of, node).map(|()| DecisionChoice::AskUser { node, question })
                }
            }
        }
        name => {
            let tool = tools.iter().find(|it| it.tool.name == name);
            let node =
                tool.map(|it| it.node).ok_or(format!("The tool `{name:.80}` is not here."))?;
            may_again(of, node).map(|()| DecisionChoice::Step { node })
        }
    }
}

fn may_again(of: &NodeTry<'_>, node: NodeIndex) -> Result<(), String> {
    let progress = &of.work.progress;
    let NodeOrder::Machine { visits, .. } = &progress.plan().order else { return Ok(()) };
    let (most, done) = (visits.get(node.at()), progress.node(node).map(|node| node.visits));
    match most.copied().unwrap_or_default() > done.unwrap_or_default() {
        true => Ok(()),
        false => Err("It was done as often as it may: choose another tool.".to_owned()),
    }
}

pub(super) fn goals(run: &RunFold) -> &[DagTask] {
    run.begun.dag.tasks.as_deref().unwrap_or_default()
}

/// Text of at most so many bytes, marked where it is cut.
pub(super) fn cut(mut text: String, most: usize) -> String {
    const MARK: &str = " [cut]";
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most.saturating_sub(MARK.len())));
        text.push_str(if most > MARK.len() { MARK } else { "" });
    }
    text
}
