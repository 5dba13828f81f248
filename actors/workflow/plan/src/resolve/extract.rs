//! Values that a step publishes, taken from its streams and files.

use hivekeep_manifest::dag::DagOutputForm;
use serde_json::Value;

/// Why a text has no value to publish.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExtractError {
    /// Name of the form that the text does not have, and the reason.
    #[error("is not valid {0}: {1}")]
    Form(&'static str, String),
    /// Nothing at the path.
    #[error("has nothing at `{0}`")]
    Missing(String),
}

/// Reads a text in its form, and selects a part of what it holds.
///
/// # Errors
/// For a text of another form, and for a path at which there is nothing.
pub fn decode(text: &str, form: DagOutputForm, path: Option<&str>) -> Result<Value, ExtractError> {
    let value = match form {
        DagOutputForm::Text => Value::String(text.trim().to_owned()),
        DagOutputForm::Json => serde_json::from_str(text)
            .map_err(|error| ExtractError::Form("JSON", error.to_string()))?,
        DagOutputForm::Yaml => hivekeep_manifest::read_yaml(text)
            .map_err(|reason| ExtractError::Form("YAML", reason))?,
    };
    match path {
        Some(path) => select(&value, path).cloned(),
        None => Ok(value),
    }
}

/// Part of a value at a path of keys and indices: `.items[0].name`, `["a key"]`; `.` is the whole.
///
/// # Errors
/// For a path at which there is nothing.
pub fn select<'v>(value: &'v Value, path: &str) -> Result<&'v Value, ExtractError> {
    find(value, path).ok_or_else(|| ExtractError::Missing(path.chars().take(200).collect()))
}

pub(super) fn find<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    let (mut value, mut rest) = (value, path.trim());
    if rest == "." {
        return Some(value);
    }
    while !rest.is_empty() {
        let bracket = rest.strip_prefix('[').or_else(|| rest.strip_prefix(".["));
        (value, rest) = match bracket {
            Some(inner) => {
                let (part, behind) = inner.split_once(']')?;
                let key = part.strip_prefix('"').and_then(|key| key.strip_suffix('"'));
                let index = || value.get(part.parse::<usize>().ok()?);
                (key.map_or_else(index, |key| value.get(key))?, behind)
            }
            None => {
                let key = rest.strip_prefix('.').unwrap_or(rest);
                let end = key.find(['.', '[']).filter(|end| *end > 0).unwrap_or(key.len());
                let (key, behind) = key.split_at(end);
                (value.get(key)?, behind)
            }
        };
    }
    Some(value)
}
