//! Checks of every declaration.

use hivekeep_kernel::ToolInfo;
use serde_json::Value;

use super::CatalogueError;

/// Names that every client takes, up to the dots (see [`super::NameStyle`]).
pub(super) fn name(name: &str) -> Result<(), CatalogueError> {
    let allowed = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.');
    if (3..=64).contains(&name.len()) && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(CatalogueError::BadName(name.to_owned()))
}

/// A title, a description, and a description of every input property.
pub(super) fn texts(
    info: &ToolInfo,
    description: &str,
    input: &Value,
) -> Result<(), CatalogueError> {
    let missing = |what: String| CatalogueError::Undescribed { tool: info.spec.name, what };
    if info.spec.title.trim().is_empty() {
        return Err(missing("title".to_owned()));
    }
    if description.trim().is_empty() {
        return Err(missing("description".to_owned()));
    }
    match undescribed(input, "") {
        Some(property) => Err(missing(format!("description of the property {property}"))),
        None => Ok(()),
    }
}

/// The path of the first property without a description, here or below.
fn undescribed(schema: &Value, at: &str) -> Option<String> {
    match schema {
        Value::Object(map) => {
            if let Some(Value::Object(properties)) = map.get("properties") {
                for (name, property) in properties {
                    let constant = property.get("const").is_some();
                    if !constant && property.get("description").is_none() {
                        return Some(format!("{at}/{name}"));
                    }
                }
            }
            map.iter().find_map(|(key, below)| undescribed(below, &format!("{at}/{key}")))
        }
        Value::Array(items) => items.iter().find_map(|item| undescribed(item, at)),
        _ => None,
    }
}
