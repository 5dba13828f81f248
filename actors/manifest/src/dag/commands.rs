//! Types of steps, and the fields that each type can use.

use super::{action::ActionNames, has_word, step::DagStep, values::OneOrMore};
use crate::problems::{ManifestPath, ProblemList, nearest};

/// Types of steps; where there are two names in a row the second is another one for the first.
const TYPES: &str = "command shell docker container kubernetes k8s http mail ssh sftp s3 jq dag \
    subworkflow parallel archive chat agent harness log postgres sqlite redis router template \
    noop";

/// Fields that only some types can use.
const LIMITED: [(&str, &[&str]); 10] = [
    ("exec", &["command", "shell"]),
    ("shell", &["command", "shell", "docker", "container", "kubernetes", "k8s", "ssh"]),
    ("container", &["docker", "container"]),
    ("call", &["dag", "subworkflow", "parallel"]),
    ("parallel", &["dag", "subworkflow", "parallel"]),
    ("value", &["router"]),
    ("routes", &["router"]),
    ("llm", &["chat", "agent", "harness"]),
    ("messages", &["chat", "agent", "harness"]),
    ("agent", &["agent", "harness"]),
];

/// Types that do something other than commands.
const WITHOUT_COMMAND: [&str; 6] = ["dag", "subworkflow", "parallel", "router", "noop", "mail"];
/// Types that run several commands, one after the other.
const SEVERAL_COMMANDS: [&str; 7] =
    ["command", "shell", "docker", "container", "kubernetes", "k8s", "ssh"];

/// Signals that ask a process to stop or that it can handle.
const SIGNALS: &str = "SIGABRT SIGALRM SIGBUS SIGCHLD SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGIO \
    SIGKILL SIGPIPE SIGPROF SIGPWR SIGQUIT SIGSEGV SIGSTOP SIGSYS SIGTERM SIGTRAP SIGTSTP \
    SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ";

/// Checks the type of a step of the old notation against its fields.
pub(super) fn check(
    step: &DagStep,
    names: &ActionNames<'_>,
    at: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    let given = step.step_type.as_deref();
    if let Some(name) = given.filter(|name| !has_word(TYPES, name) && !names.has_type(name)) {
        let shown: String = name.chars().take(60).collect();
        let types: Vec<_> = TYPES.split_whitespace().collect();
        let message = match nearest(name, &types) {
            Some(near) => format!("`{shown}` is not a type of steps: did you mean `{near}`?"),
            None => format!("`{shown}` is not a type of steps; types are {}", types.join(", ")),
        };
        return problems.add(&at.join("type"), message);
    }
    // Fields of a type that the DAG declares are not known here.
    if given.is_none_or(|name| has_word(TYPES, name)) {
        capabilities(step, given, at, problems);
    }
    conflicts(step, at, problems);
    check_signal(step, at, problems);
}

pub(super) fn check_signal(step: &DagStep, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    if let Some(signal) = &step.signal_on_stop
        && !has_word(SIGNALS, signal)
    {
        problems.add(&at.join("signal_on_stop"), "is not the name of a signal, as `SIGINT`");
    }
}

fn capabilities(
    step: &DagStep,
    given: Option<&str>,
    at: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    for (field, types) in LIMITED.into_iter().filter(|(field, _)| has(step, field)) {
        match given {
            Some(name) if !types.contains(&name) => {
                problems
                    .add_key(&at.join(field), format!("a step of type `{name}` has no `{field}`"));
            }
            // Other fields determine the type of the step.
            None if matches!(field, "value" | "routes" | "messages") => {
                let message = format!("needs a `type`: {}", types.join(" or "));
                problems.add_key(&at.join(field), message);
            }
            _ => {}
        }
    }
    let Some(name) = given else { return };
    for field in ["command", "script"] {
        if WITHOUT_COMMAND.contains(&name) && has(step, field) {
            problems.add_key(&at.join(field), format!("a step of type `{name}` has no `{field}`"));
        }
    }
    if let Some(OneOrMore::More(commands)) = &step.command
        && commands.len() > 1
        && !SEVERAL_COMMANDS.contains(&name)
    {
        problems.add(&at.join("command"), format!("a step of type `{name}` has one command"));
    }
    let needed: &[&str] = match name {
        "dag" | "subworkflow" | "parallel" => &["call"],
        "router" => &["value", "routes"],
        "chat" => &["messages"],
        _ => &[],
    };
    for field in needed.iter().filter(|field| !has(step, field)) {
        problems.add(at, format!("a step of type `{name}` needs `{field}`"));
    }
}

fn conflicts(step: &DagStep, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    for (field, other) in [
        ("exec", "command"),
        ("exec", "script"),
        ("call", "command"),
        ("call", "script"),
        ("call", "exec"),
        ("call", "container"),
        ("config", "with"),
    ] {
        if has(step, field) && has(step, other) {
            problems.add_key(&at.join(field), format!("excludes `{other}`: keep one of them"));
        }
    }
    if step.parallel.is_some() && step.call.is_none() && step.action.is_none() {
        problems.add_key(&at.join("parallel"), "needs `call`: a DAG is called for each item");
    }
    // A step that has settings already is in the making: a notice tells it.
    let in_the_making = ["with", "config", "env", "outputs"].into_iter().any(|it| has(step, it));
    if is_idle(step) && !in_the_making {
        problems.add(at, "does nothing: give it `run`, `action` or `foreach`");
    }
}

/// True for a step that has nothing to do.
pub(super) fn is_idle(step: &DagStep) -> bool {
    const SELECTORS: &str =
        "run action foreach command exec script call container output approval llm agent messages";
    step.step_type.is_none() && !SELECTORS.split_whitespace().any(|it| has(step, it))
}

fn has(step: &DagStep, field: &str) -> bool {
    match field {
        "command" => step.command.is_some(),
        "exec" => step.exec.is_some(),
        "script" => step.script.is_some(),
        "shell" => step.shell.is_some(),
        "container" => step.container.is_some(),
        "call" => step.call.is_some(),
        "parallel" => step.parallel.is_some(),
        "value" => step.value.is_some(),
        "routes" => step.routes.is_some(),
        "llm" => step.llm.is_some(),
        "messages" => step.messages.is_some(),
        "agent" => step.agent.is_some(),
        "run" => step.run.is_some(),
        "action" => step.action.is_some(),
        "foreach" => step.foreach.is_some(),
        "output" => step.output.is_some(),
        "approval" => step.approval.is_some(),
        "env" => step.env.is_some(),
        "outputs" => step.outputs.is_some(),
        "with" => step.settings.is_some(),
        "config" => step.config.is_some(),
        _ => false,
    }
}
