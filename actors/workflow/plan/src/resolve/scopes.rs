//! Scopes: the values that references of a text read.

use std::{borrow::Cow, collections::BTreeMap};

use hivekeep_manifest::dag::reference::{ReferencePath, StepResult};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use super::{FieldRule, RunParams, ScopeName, extract::find};

/// Texts by name.
pub type NamedTexts = BTreeMap<String, String>;

/// Values that a text may refer to. Each is read only where the text's field has its scope.
#[derive(Debug, Clone, Copy, Default)]
pub struct TextScopes<'a> {
    /// Constants by name.
    pub consts: Option<&'a NamedTexts>,
    /// Parameters of the run.
    pub params: Option<&'a RunParams>,
    /// Environment of the run or, for its texts, of the step.
    pub env: Option<&'a NamedTexts>,
    /// Environment outside of the run, for the few fields that read it.
    pub host_env: Option<&'a NamedTexts>,
    /// Context by field, as `run.id`.
    pub context: Option<&'a NamedTexts>,
    /// Steps by id: those that the text's step follows and that have ended.
    pub steps: Option<&'a BTreeMap<String, StepValues>>,
    /// Items that the text is for; of several the innermost is the last.
    pub items: &'a [ItemScope],
}

/// Values that a step has left.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepValues {
    /// Declared outputs.
    pub outputs: NamedTexts,
    /// Value of the step's `output`.
    pub output: Option<Value>,
    /// Values of the step's `stdout.outputs`.
    pub published: Option<Value>,
    /// File of the standard output.
    pub stdout_file: Option<String>,
    /// File of the standard error.
    pub stderr_file: Option<String>,
    /// Exit status of the command.
    pub exit_status: Option<i32>,
}

/// Item of a step that is done for each of several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemScope {
    /// Item of `foreach`.
    Foreach {
        /// Name that the step gives it.
        name: String,
        /// Place, from 0.
        index: usize,
        /// Key; `None` while it is resolved.
        key: Option<String>,
        /// The item itself.
        value: Value,
    },
    /// Item of `parallel`.
    Parallel(Value),
}

/// Text of a value where it is put into another text: texts as they are, whole numbers in decimal digits,
/// others in the shortest that reads back the same, lists and objects as compact JSON, null as nothing.
pub fn value_text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::Null => "".into(),
        Value::String(text) => text.into(),
        Value::Number(number) => number_text(number).into(),
        _ => value.to_string().into(),
    }
}

fn number_text(number: &Number) -> String {
    let float = number.as_f64().filter(|_| number.is_f64());
    float.map_or_else(|| number.to_string(), |float| float.to_string())
}

impl<'a> TextScopes<'a> {
    /// Value that is named, of the scopes that a field has.
    pub(super) fn value(&self, path: &ReferencePath<'_>, rule: &FieldRule) -> Option<Cow<'a, str>> {
        let has = |scope| rule.scopes.contains(&scope);
        let named = |texts: Option<&'a NamedTexts>, name: &str| Some(texts?.get(name)?.into());
        match *path {
            ReferencePath::Const(name) if has(ScopeName::Consts) => named(self.consts, name),
            ReferencePath::Params if has(ScopeName::Params) => Some(self.params?.to_json()?.into()),
            ReferencePath::Param(name) if has(ScopeName::Params) => {
                Some(self.params?.get(name)?.into())
            }
            ReferencePath::Env(name) if has(ScopeName::Env) => named(self.env, name),
            ReferencePath::Context(field) if has(ScopeName::Context) => named(self.context, field),
            ReferencePath::StepOutput { step, name } if has(ScopeName::Steps) => {
                Some(self.steps?.get(step)?.outputs.get(name)?.into())
            }
            ReferencePath::StepResult { step, result, rest } if has(ScopeName::Steps) => {
                self.steps?.get(step)?.result(result, rest)
            }
            ReferencePath::Item(field) if has(ScopeName::Item) => match self.items.last()? {
                ItemScope::Parallel(value) => part(value, field),
                ItemScope::Foreach { .. } => None,
            },
            _ if has(ScopeName::Foreach) => {
                self.items.iter().rev().find_map(|item| item.of_foreach(path))
            }
            _ => None,
        }
    }

    /// Value of a variable, as `$NAME` reads it.
    pub(super) fn variable(&self, name: &str, rule: &FieldRule) -> Option<Cow<'a, str>> {
        if !rule.scopes.contains(&ScopeName::Env) {
            return None;
        }
        let item = || self.value(&ReferencePath::Item(None), rule).filter(|_| name == "ITEM");
        let positional = || self.params?.positional(name);
        let host = || self.host_env.filter(|_| rule.reads_host)?.get(name);
        let env = self.env.and_then(|env| env.get(name));
        let text = env.map(String::as_str).or_else(positional);
        text.map(Cow::from).or_else(item).or_else(|| host().map(Cow::from))
    }
}

impl ItemScope {
    fn of_foreach(&self, path: &ReferencePath<'_>) -> Option<Cow<'_, str>> {
        let Self::Foreach { name, index, key, value } = self else { return None };
        match path {
            ReferencePath::ForeachIndex => Some(index.to_string().into()),
            ReferencePath::ForeachKey => key.as_deref().map(Cow::from),
            ReferencePath::ForeachItem { name: named, field } if named == name => {
                part(value, *field)
            }
            _ => None,
        }
    }
}

/// A value, or one of its fields.
fn part<'a>(value: &'a Value, field: Option<&str>) -> Option<Cow<'a, str>> {
    field.map_or(Some(value), |field| value.as_object()?.get(field)).map(value_text)
}

impl StepValues {
    fn result(&self, result: StepResult, rest: &str) -> Option<Cow<'_, str>> {
        let file = |file: &'_ Option<String>| file.clone().map(Cow::from);
        match result {
            StepResult::Output => find(self.output.as_ref()?, rest).map(value_text),
            StepResult::Outputs => find(self.published.as_ref()?, rest).map(value_text),
            _ if !rest.is_empty() => None,
            StepResult::Stdout => file(&self.stdout_file),
            StepResult::Stderr => file(&self.stderr_file),
            StepResult::ExitCode => self.exit_status.map(|status| status.to_string().into()),
        }
    }
}
