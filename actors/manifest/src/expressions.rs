//! Checks of expressions that manifests hold as texts: cron, regular expressions, JSON Schemas.

use croner::parser::{CronParser, Seconds, Year};
use serde_json::Value;

use crate::path::ManifestPath;
use crate::problems::ProblemList;

/// Memory of one compiled regular expression.
const MAX_REGEX_BYTES: usize = 1024 * 1024;

/// Checks a cron expression of five fields.
pub(crate) fn cron(expression: &str, path: &ManifestPath, problems: &mut ProblemList<'_>) {
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    let fields = expression.split_whitespace().count();
    if fields != 5 {
        problems.add(path, format!("a cron expression has five fields, and this one {fields}"));
    } else if let Err(error) = parser.parse(expression) {
        problems.add(path, format!("is not a valid cron expression: {error}"));
    }
}

/// Checks a regular expression.
pub(crate) fn regex(pattern: &str, path: &ManifestPath, problems: &mut ProblemList<'_>) {
    let built = regex::RegexBuilder::new(pattern).size_limit(MAX_REGEX_BYTES).build();
    if let Err(error) = built {
        let reason = error.to_string();
        let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ");
        problems.add(path, format!("is not a valid regular expression: {reason}"));
    }
}

/// Checks a text that is a pattern if it begins with `re:`.
pub(crate) fn pattern(text: &str, path: &ManifestPath, problems: &mut ProblemList<'_>) {
    if let Some(expression) = text.strip_prefix("re:") {
        regex(expression, path, problems);
    }
}

/// Checks a JSON Schema.
pub(crate) fn json_schema(
    schema: &serde_json::Map<String, Value>,
    path: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    if let Err(error) = jsonschema::meta::validate(&Value::Object(schema.clone())) {
        let at = ManifestPath::of_pointer(error.instance_path().as_str());
        let path = at.0.iter().fold(path.clone(), |path, step| path.join(step));
        problems.add(&path, "is not valid in a JSON Schema");
    }
}
