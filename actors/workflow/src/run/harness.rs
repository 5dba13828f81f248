//! Settings of `harness.run`: the program, those that stand in for it, and the words that it is given.

use hivekeep_kernel::ToolError;
use hivekeep_manifest::dag::{DagHarness, DagManifest, DagPromptMode};
use hivekeep_plan::resolve::value_text;
use serde_json::{Map, Value};

use super::failure::failed;

/// Most programs that stand in for the one of a step.
const MOST_FALLBACKS: usize = 16;
/// Settings that are no flags of the program.
const OWN_KEYS: [&str; 5] = ["prompt", "stdin", "provider", "fallback", "managed"];
/// Flags that give a program all rights. It has them: the workspace is its wall.
const RIGHTS: [&str; 4] =
    ["yolo", "full-auto", "dangerously-skip-permissions", "skip-git-repo-check"];

/// Call of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HarnessCall {
    /// Program that the DAG defines: a command like any other.
    Command { program: String, args: Vec<String>, stdin: Option<String> },
    /// Program that the agents family knows.
    Program(ProgramCall),
}

/// See [`HarnessCall::Program`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProgramCall {
    pub(super) program: String,
    pub(super) model: Option<String>,
    pub(super) prompt: String,
    pub(super) arguments: Vec<String>,
}

/// Calls of a step by its settings, those of the DAG among them; the first is its own. Their texts are resolved.
///
/// # Errors
/// `step_failed` for what cannot be obeyed.
pub(super) fn harness_calls(
    dag: &DagManifest,
    settings: &Map<String, Value>,
) -> Result<Vec<HarnessCall>, ToolError> {
    let prompt =
        setting(settings, "prompt").ok_or_else(|| failed("`with.prompt` is empty".to_owned()))?;
    let stdin = setting(settings, "stdin");
    let more = match settings.get("fallback") {
        None => &[][..],
        Some(Value::Array(more)) if more.len() <= MOST_FALLBACKS => more,
        Some(_) => return Err(no_fallback()),
    };
    let more = more.iter().map(|one| {
        let one = one.as_object().filter(|one| !one.contains_key("fallback"));
        one.ok_or_else(no_fallback)
    });
    let calls = std::iter::once(Ok(settings)).chain(more);
    calls.map(|one| call(dag, one?, &prompt, stdin.as_deref())).collect()
}

fn no_fallback() -> ToolError {
    failed(format!(
        "`fallback` is a list of at most {MOST_FALLBACKS} mappings with `provider`, without a `fallback` in them"
    ))
}

fn call(
    dag: &DagManifest,
    settings: &Map<String, Value>,
    prompt: &str,
    stdin: Option<&str>,
) -> Result<HarnessCall, ToolError> {
    let Some(provider) = setting(settings, "provider").filter(|name| !name.contains("${")) else {
        return Err(failed("`provider` names no program".to_owned()));
    };
    let own = dag.harnesses.as_ref().and_then(|all| all.get(&provider)?.as_ref());
    let flags = settings.iter().filter(|(key, _)| !OWN_KEYS.contains(&key.as_str()));
    if let Some(own) = own {
        return command(own, flags, prompt, stdin);
    }
    if settings.get("managed").is_some_and(|managed| *managed != Value::Bool(false)) {
        return Err(not_obeyed("managed", "it is `false` here"));
    }
    let mut arguments = Vec::new();
    for (key, value) in flags.filter(|(key, _)| *key != "model") {
        let name = key.replace('_', "-");
        match value {
            Value::Bool(true) if RIGHTS.contains(&name.as_str()) => {}
            _ if RIGHTS.contains(&name.as_str()) => {
                return Err(not_obeyed(key, "the program has all rights in its workspace"));
            }
            value => flag(&mut arguments, key, &format!("--{name}"), value)?,
        }
    }
    let prompt = [Some(prompt), stdin].into_iter().flatten().collect::<Vec<_>>().join("\n\n");
    let (program, model) = (provider, setting(settings, "model"));
    Ok(HarnessCall::Program(ProgramCall { program, model, prompt, arguments }))
}

fn command<'s>(
    own: &DagHarness,
    flags: impl Iterator<Item = (&'s String, &'s Value)>,
    prompt: &str,
    stdin: Option<&str>,
) -> Result<HarnessCall, ToolError> {
    let DagHarness {
        binary,
        prefix_args,
        prompt_mode,
        prompt_flag,
        prompt_position,
        flag_style,
        option_flags,
    } = own;
    let dashes = if flag_style.as_deref() == Some("single_dash") { "-" } else { "--" };
    let mut more = Vec::new();
    for (key, value) in flags {
        let named = option_flags.as_ref().and_then(|flags| flags.get(key)).cloned();
        flag(&mut more, key, &named.unwrap_or_else(|| format!("{dashes}{key}")), value)?;
    }
    let mut said: Vec<String> = Vec::new();
    let stdin = match prompt_mode.unwrap_or(DagPromptMode::Arg) {
        DagPromptMode::Stdin => {
            Some([Some(prompt), stdin].into_iter().flatten().collect::<Vec<_>>().join("\n\n"))
        }
        DagPromptMode::Arg | DagPromptMode::Flag => {
            said.extend(prompt_flag.clone());
            said.push(prompt.to_owned());
            stdin.map(str::to_owned)
        }
    };
    let behind = prompt_position.as_deref() == Some("after_flags");
    let words = if behind { [more, said] } else { [said, more] };
    let args = [prefix_args.clone().unwrap_or_default(), words.concat()].concat();
    Ok(HarnessCall::Command { program: binary.clone(), args, stdin })
}

/// Adds the words of a setting: a flag alone, or before a value, or before each value of a list.
fn flag(words: &mut Vec<String>, key: &str, flag: &str, value: &Value) -> Result<(), ToolError> {
    match value {
        Value::Null | Value::Bool(false) => {}
        Value::Bool(true) => words.push(flag.to_owned()),
        Value::Array(values) => {
            for value in values.iter().filter(|value| !value.is_array()) {
                self::flag(words, key, flag, value)?;
            }
        }
        Value::Object(_) => return Err(not_obeyed(key, "a flag has a text, a number or a list")),
        value => words.extend([flag.to_owned(), value_text(value).into_owned()]),
    }
    Ok(())
}

fn not_obeyed(key: &str, instead: &str) -> ToolError {
    failed(format!("`{key:.80}` cannot be obeyed: {instead}"))
}

/// Text of a setting; none where it is not there, or blank.
pub(super) fn setting(with: &Map<String, Value>, key: &str) -> Option<String> {
    let text = with.get(key).map(value_text)?.into_owned();
    (!text.trim().is_empty()).then_some(text)
}
