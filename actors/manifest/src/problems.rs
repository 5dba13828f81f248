//! Problems of a document, bounded in number, each with its place; and the explanation of schema
//! violations: what a person would change, at the place of it.

use std::fmt;

use hivekeep_ports::ManifestProblem;
use hivekeep_runtime::json_schema::{
    self, JsonType, ValidationError, ValidationErrorKind as Kind, Validator, validator,
};
use serde_json::Value;

use crate::yaml::{TextPosition, YamlNode};

/// Most problems that are reported of one text; more are not looked for.
pub const MAX_PROBLEMS: usize = 20;
/// Unknown keys that are reported of one mapping.
const MAX_KEYS: usize = 20;
/// Similarity from which another name is worth a question (Jaro-Winkler).
const SIMILAR: f64 = 0.8;

/// Path of a value in a manifest, from its root: steps of keys and indices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ManifestPath(pub(crate) Vec<String>);

impl ManifestPath {
    /// Path of a JSON pointer.
    pub(crate) fn of_pointer(pointer: &str) -> Self {
        let steps = pointer.split('/').skip(1);
        Self(steps.map(|step| step.replace("~1", "/").replace("~0", "~")).collect())
    }

    /// Path of a key or an item below.
    pub(crate) fn join(&self, step: impl ToString) -> Self {
        let mut steps = self.0.clone();
        steps.push(step.to_string());
        Self(steps)
    }
}

/// Format as in `steps[2].depends`; a step is cut to 60 characters, the whole to 300.
impl fmt::Display for ManifestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for step in &self.0 {
            let shown: String = step.chars().filter(|c| !c.is_control()).take(60).collect();
            let index = !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit());
            match (index, text.is_empty()) {
                (true, _) => text.push_str(&format!("[{shown}]")),
                (false, true) => text.push_str(&shown),
                (false, false) => text.push_str(&format!(".{shown}")),
            }
        }
        f.write_str(&text.chars().take(300).collect::<String>())
    }
}

/// Makes a path of its steps.
macro_rules! at {
    ($($step:expr),* $(,)?) => {
        $crate::problems::ManifestPath(vec![$($step.to_string()),*])
    };
}
pub(crate) use at;

/// Problems of one document.
pub(crate) struct ProblemList<'d> {
    document: &'d YamlNode,
    pub(crate) found: Vec<(TextPosition, ManifestProblem)>,
}

impl<'d> ProblemList<'d> {
    pub(crate) fn of(document: &'d YamlNode) -> Self {
        Self { document, found: Vec::new() }
    }

    /// Adds a problem of the value at a path.
    pub(crate) fn add(&mut self, path: &ManifestPath, message: impl Into<String>) {
        self.put(self.document.place(&path.0, false), path, message.into());
    }

    /// Adds a problem of the key at a path.
    pub(crate) fn add_key(&mut self, path: &ManifestPath, message: impl Into<String>) {
        self.put(self.document.place(&path.0, true), path, message.into());
    }

    /// Keys of the mapping at a path, those with an empty value among them.
    pub(crate) fn keys_at(&self, path: &ManifestPath) -> Vec<&'d str> {
        let node = self.document.node(&path.0);
        let entries = node.map(YamlNode::entries).unwrap_or_default();
        entries.iter().map(|(key, ..)| key.as_str()).collect()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.found.len() >= MAX_PROBLEMS
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(crate) fn put(&mut self, at: TextPosition, path: &ManifestPath, message: String) {
        let told = problem(at, path, message);
        if !self.is_full() && !self.found.iter().any(|(_, known)| *known == told) {
            self.found.push((at, told));
        }
    }
}

/// Schema with its validator.
pub(crate) struct CompiledSchema {
    pub(crate) schema: Value,
    validator: Validator,
}

impl CompiledSchema {
    /// Schema that we make ourselves.
    pub(crate) fn of(schema: Value) -> Self {
        // A test makes them; a program with a broken one is never built.
        Self { validator: validator(&schema).expect("our own schema is valid"), schema }
    }

    /// Reports what breaks the schema in a value that stands at a path.
    pub(crate) fn check(&self, value: &Value, at: &ManifestPath, problems: &mut ProblemList<'_>) {
        for error in self.validator.iter_errors(value) {
            if problems.is_full() {
                break;
            }
            tell_violation(&error, &self.schema, at, problems);
        }
    }
}

/// Problem at a place.
pub(crate) fn problem(at: TextPosition, path: &ManifestPath, message: String) -> ManifestProblem {
    let TextPosition { line, column } = at;
    ManifestProblem { line, column, path: path.to_string(), message }
}

/// Reports the violations below an error, in a value that stands at a path.
fn tell_violation(
    error: &ValidationError<'_>,
    schema: &Value,
    root: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    for rules in json_schema::violations(error) {
        let rule = rules[0];
        let below = ManifestPath::of_pointer(rule.instance_path().as_str());
        let at = below.0.iter().fold(root.clone(), |at, step| at.join(step));
        match rule.kind() {
            Kind::AdditionalProperties { unexpected }
            | Kind::UnevaluatedProperties { unexpected } => {
                let known = properties(rule, schema);
                for key in unexpected.iter().take(MAX_KEYS) {
                    problems.add_key(&at.join(key), unknown_key(key, &known));
                }
            }
            Kind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                problems.add(&at, format!("the key `{name}` is missing"));
            }
            _ => problems.add(&at, sentence(&rules, schema)),
        }
    }
}

/// Schema that a violated keyword stands in.
fn holder<'s>(error: &ValidationError<'_>, schema: &'s Value) -> Option<&'s Value> {
    let keyword = error.schema_path().as_str();
    schema.pointer(keyword.rsplit_once('/')?.0)
}

/// Keys that a mapping may have.
fn properties<'s>(error: &ValidationError<'_>, schema: &'s Value) -> Vec<&'s str> {
    let known = holder(error, schema).and_then(|holder| holder.get("properties")?.as_object());
    known.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
}

fn unknown_key(key: &str, known: &[&str]) -> String {
    let shown: String = key.chars().filter(|c| !c.is_control()).take(60).collect();
    let snake = snake_case(key);
    if let Some(name) = known.iter().find(|name| **name == snake) {
        return format!("`{shown}` is not a key here: write `{name}`");
    }
    match nearest(key, known) {
        Some(name) => format!("`{shown}` is not a key here: did you mean `{name}`?"),
        None => format!("`{shown}` is not a key here; keys are {}", known.join(", ")),
    }
}

/// Message of a reference to something that does not exist, with the name that is nearest to it.
pub(crate) fn not_there(what: &str, name: &str, known: &[&str]) -> String {
    let shown: String = name.chars().take(60).collect();
    match nearest(name, known) {
        Some(near) => format!("there is no {what} `{shown}`: did you mean `{near}`?"),
        None => format!("there is no {what} `{shown}`"),
    }
}

/// Known name that is most similar, if one is similar enough.
pub(crate) fn nearest<'n>(name: &str, known: &[&'n str]) -> Option<&'n str> {
    // The comparison is quadratic in the name's length.
    let name: String = name.chars().take(60).collect();
    let scored = known.iter().map(|known| (strsim::jaro_winkler(&name, known), *known));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 >= SIMILAR).then_some(best.1)
}

fn snake_case(key: &str) -> String {
    let mut snake = String::new();
    for c in key.chars().take(60) {
        if c.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

fn sentence(rules: &[&ValidationError<'_>], schema: &Value) -> String {
    let wanted = json_schema::expected(rules, type_name);
    let [rule] = rules else { return format!("expected {wanted}") };
    match (rule.kind(), rule.instance().as_ref()) {
        (Kind::Type { .. }, Value::Number(_) | Value::Bool(_))
            if wanted.starts_with("a text") && !wanted.contains("number") =>
        {
            "expected a text: put the value in quotes".to_owned()
        }
        (Kind::Pattern { pattern }, _) => {
            let about = holder(rule, schema).and_then(|holder| holder.get("description")?.as_str());
            match about.filter(|about| !about.is_empty()) {
                Some(about) => format!("is not valid. {about}"),
                None => format!("is not valid: it has to match {pattern}"),
            }
        }
        (Kind::Enum { options }, Value::String(given)) => {
            let known = options.as_array().into_iter().flatten().filter_map(Value::as_str);
            match nearest(given, &known.collect::<Vec<_>>()) {
                Some(name) => format!("expected {wanted}: did you mean `{name}`?"),
                None => format!("expected {wanted}"),
            }
        }
        _ => format!("expected {wanted}"),
    }
}

fn type_name(kind: JsonType) -> &'static str {
    match kind {
        JsonType::String => "a text",
        JsonType::Object => "a mapping",
        JsonType::Array => "a list",
        JsonType::Integer => "a whole number",
        JsonType::Number => "a number",
        JsonType::Boolean => "true or false",
        JsonType::Null => "nothing",
    }
}
