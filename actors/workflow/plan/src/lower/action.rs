//! Action of a step: one name and one set of settings for what both generations of the notation write.

use hivekeep_manifest::{
    common::JsonObject,
    dag::{DagStep, OneOrMore},
};
use serde_json::{Value, json};

use super::{StepLines, StepWork};

/// Types of the old notation whose settings are those of an action, with the key that their command is.
const OLD_TYPES: [(&str, &str, &str); 12] = [
    ("docker", "container.run", "command"),
    ("container", "container.run", "command"),
    ("mail", "mail.send", ""),
    ("jq", "jq.filter", "filter"),
    ("dag", "dag.run", ""),
    ("subworkflow", "dag.run", ""),
    ("parallel", "dag.run", ""),
    ("chat", "chat.completion", "prompt"),
    ("harness", "harness.run", "prompt"),
    ("log", "log.write", "message"),
    ("template", "template.render", "template"),
    ("noop", "noop", ""),
];

/// Action of a step with its settings; `None` for a step that does nothing.
pub(super) fn of(step: &DagStep) -> Option<StepWork> {
    let (action, mut with, lines) = normal(step)?;
    if let Some(llm) = &step.llm {
        llm.iter().for_each(|(key, value)| put(&mut with, key, value.clone()));
    }
    if let Some(messages) = &step.messages {
        put(&mut with, "messages", json!(messages));
    }
    Some(StepWork { action, with, lines, routers: Vec::new(), step: Box::new(step.clone()) })
}

type Normal = (String, JsonObject, Option<StepLines>);

fn normal(step: &DagStep) -> Option<Normal> {
    let settings = step.settings.clone().or_else(|| step.config.clone()).unwrap_or_default();
    let named = |name: &str, with| Some((name.to_owned(), with, None));
    if let Some(run) = &step.run {
        let mut lines = run.lines();
        let lines = match lines.as_slice() {
            [script] if script.contains('\n') => StepLines::Script(lines.remove(0)),
            _ => StepLines::Commands(lines),
        };
        return Some(("run".to_owned(), settings, Some(lines)));
    }
    if let Some(action) = &step.action {
        return named(action, settings);
    }
    if step.foreach.is_some() {
        return named("foreach", settings);
    }
    old(step, settings)
}

/// Action of a step in the old notation.
fn old(step: &DagStep, mut with: JsonObject) -> Option<Normal> {
    let named = |name: &str, with| Some((name.to_owned(), with, None));
    if let Some(call) = &step.call {
        put(&mut with, "dag", json!(call));
        if let Some(params) = &step.params {
            put(&mut with, "params", json!(params));
        }
        return named("dag.run", with);
    }
    if let Some(exec) = &step.exec {
        put(&mut with, "command", json!(exec.command));
        put(&mut with, "args", json!(exec.args.clone().unwrap_or_default()));
        return named("exec", with);
    }
    let command = step.command.as_ref().map(|it| it.iter().collect::<Vec<_>>().join("\n"));
    let step_type = step.step_type.as_deref().unwrap_or("command");
    match step_type {
        "command" | "shell" => {
            if let Some(shell) = &step.shell {
                put(&mut with, "shell", json!(shell));
            }
            Some(("run".to_owned(), with, Some(lines(step)?)))
        }
        "http" => {
            let command = command.unwrap_or_default();
            let (method, url) =
                command.split_once(char::is_whitespace).unwrap_or(("GET", &command));
            put(&mut with, "method", json!(method.trim()));
            put(&mut with, "url", json!(url.trim()));
            named("http.request", with)
        }
        "router" => {
            put(&mut with, "value", json!(step.value));
            put(&mut with, "routes", json!(step.routes));
            named("router.route", with)
        }
        "archive" => named(&format!("archive.{}", command?.trim()), with),
        _ => {
            let row = OLD_TYPES.iter().find(|(old, ..)| *old == step_type);
            let Some((_, action, key)) = row else { return named(step_type, with) };
            let text = command.or_else(|| step.script.clone());
            if let Some(text) = text.filter(|_| !key.is_empty()) {
                put(&mut with, key, json!(text));
            }
            named(action, with)
        }
    }
}

fn lines(step: &DagStep) -> Option<StepLines> {
    if let Some(script) = &step.script {
        return Some(StepLines::Script(script.clone()));
    }
    match step.command.as_ref()? {
        OneOrMore::One(text) if text.trim_end().contains('\n') => {
            Some(StepLines::Script(text.clone()))
        }
        commands => Some(StepLines::Commands(commands.iter().map(str::to_owned).collect())),
    }
}

/// Puts a setting, unless the step has it under `with`.
fn put(with: &mut JsonObject, key: &str, value: Value) {
    with.entry(key.to_owned()).or_insert(value);
}
