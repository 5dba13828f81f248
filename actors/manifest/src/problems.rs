//! Problems of a document, bounded in number, each with its place; and the explanation of schema
//! violations: what a person would change, at the place of it.

use std::fmt;

use hivekeep_ports::ManifestProblem;
use jsonschema::{ValidationError, error::TypeKind, error::ValidationErrorKind as Kind};
use serde_json::Value;

use crate::yaml::{TextPosition, YamlNode};

/// Most problems that are reported of one text; more are not looked for.
pub const MAX_PROBLEMS: usize = 20;
/// Keys by which a value tells which alternative it is.
const TAGS: [&str; 2] = ["kind", "type"];
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

/// Problem at a place.
pub(crate) fn problem(at: TextPosition, path: &ManifestPath, message: String) -> ManifestProblem {
    let TextPosition { line, column } = at;
    ManifestProblem { line, column, path: path.to_string(), message }
}

/// Reports a violation, or, of alternatives, those of the one that was most likely meant.
pub(crate) fn tell_violation(
    error: &ValidationError<'_>,
    schema: &Value,
    problems: &mut ProblemList<'_>,
) {
    let at = ManifestPath::of_pointer(error.instance_path().as_str());
    match error.kind() {
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            alternatives(context, &at, schema, problems);
        }
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            let known = properties(error, schema);
            for key in unexpected.iter().take(MAX_KEYS) {
                problems.add_key(&at.join(key), unknown_key(key, &known));
            }
        }
        Kind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            problems.add(&at, format!("the key `{name}` is missing"));
        }
        _ => problems.add(&at, sentence(error, schema)),
    }
}

/// Reports what is wrong with the alternative that fits best, or, where none is of the value's kind, the
/// kinds that there are.
fn alternatives(
    branches: &[Vec<ValidationError<'static>>],
    at: &ManifestPath,
    schema: &Value,
    problems: &mut ProblemList<'_>,
) {
    if let Some(tag) = missing_tag(branches) {
        return problems.add(at, format!("the key `{tag}` is missing"));
    }
    let best = branches.iter().min_by_key(|branch| (other_kind(branch, at), branch.len()));
    match best {
        Some(best) if !other_kind(best, at) => {
            best.iter().for_each(|error| tell_violation(error, schema, problems));
        }
        _ => {
            let mut options = Vec::new();
            let mut place = at.clone();
            for error in branches.iter().flatten().filter(|error| tells_kind(error, at)) {
                place = ManifestPath::of_pointer(error.instance_path().as_str());
                let option = expected(error);
                if !options.contains(&option) {
                    options.push(option);
                }
            }
            problems.add(&place, format!("expected {}", options.join(" or ")));
        }
    }
}

/// Tag that every alternative with one misses.
fn missing_tag(branches: &[Vec<ValidationError<'static>>]) -> Option<&'static str> {
    let misses = |branch: &[ValidationError<'_>], tag: &str| {
        branch.iter().any(
            |error| matches!(error.kind(), Kind::Required { property } if property.as_str() == Some(tag)),
        )
    };
    let count = |tag: &str| branches.iter().filter(|branch| misses(branch, tag)).count();
    TAGS.into_iter().find(|tag| count(tag) > 1)
}

fn other_kind(branch: &[ValidationError<'_>], at: &ManifestPath) -> bool {
    branch.iter().any(|error| tells_kind(error, at))
}

/// True for a violation of type or tag, which shows that the value is another alternative.
fn tells_kind(error: &ValidationError<'_>, at: &ManifestPath) -> bool {
    let path = ManifestPath::of_pointer(error.instance_path().as_str());
    let tag = || {
        path.0.len() == at.0.len() + 1
            && TAGS.iter().any(|tag| path.0.last().is_some_and(|last| last == tag))
    };
    match error.kind() {
        Kind::Type { .. } | Kind::Enum { .. } => path == *at,
        Kind::Constant { .. } => path == *at || tag(),
        _ => false,
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

fn sentence(error: &ValidationError<'_>, schema: &Value) -> String {
    let unquoted = error.instance().is_number() || error.instance().is_boolean();
    let wanted = expected(error);
    let texts = matches!(error.kind(), Kind::Type { .. }) && wanted.starts_with("a text");
    if unquoted && texts && !wanted.contains("number") {
        return "expected a text: put the value in quotes".to_owned();
    }
    if let Kind::Pattern { pattern } = error.kind() {
        let about = holder(error, schema).and_then(|holder| holder.get("description")?.as_str());
        return match about.filter(|about| !about.is_empty()) {
            Some(about) => format!("is not valid. {about}"),
            None => format!("is not valid: it has to match {pattern}"),
        };
    }
    if let (Kind::Enum { options }, Some(given)) = (error.kind(), error.instance().as_str()) {
        let known: Vec<_> =
            options.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if let Some(name) = nearest(given, &known) {
            return format!("expected {}: did you mean `{name}`?", expected(error));
        }
    }
    format!("expected {}", expected(error))
}

/// Text of what a violated rule expects.
fn expected(error: &ValidationError<'_>) -> String {
    match error.kind() {
        Kind::Type { kind: TypeKind::Single(kind) } => type_name(&kind.to_string()).to_owned(),
        Kind::Type { kind: TypeKind::Multiple(kinds) } => {
            let names = kinds.iter().map(|kind| type_name(&kind.to_string()).to_owned());
            let mut names: Vec<_> = names.collect();
            names.sort_by_key(|name| name == "nothing");
            names.join(" or ")
        }
        Kind::Enum { options } => {
            let options = options.as_array().into_iter().flatten().map(text);
            format!("one of {}", options.collect::<Vec<_>>().join(", "))
        }
        Kind::Constant { expected_value } => format!("`{}`", text(expected_value)),
        Kind::Minimum { limit } => format!("at least {limit}"),
        Kind::Maximum { limit } => format!("at most {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("more than {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("less than {limit}"),
        Kind::MinLength { limit } => format!("at least {limit} characters"),
        Kind::MaxLength { limit } => format!("at most {limit} characters"),
        Kind::MinItems { limit } => format!("at least {limit} items"),
        Kind::MaxItems { limit } => format!("at most {limit} items"),
        Kind::MinProperties { limit } => format!("at least {limit} keys"),
        Kind::PropertyNames { .. } => "other keys".to_owned(),
        _ => "another value".to_owned(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn type_name(json: &str) -> &str {
    match json {
        "string" => "a text",
        "object" => "a mapping",
        "array" => "a list",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        "null" => "nothing",
        other => other,
    }
}
