//! Canonical spelling of an input: values that JSON can write in several ways, and models do, are written as
//! the tool's schema has them, before anything looks at the input.
//!
//! - A number without a fraction, `5.0`, is an integer where the schema says so.
//! - Null for a property that need not be there is left out, unless null is a value of it.
//!
//! This holds at every depth that the schema leads to. Where alternatives leave open which of them is
//! meant, nothing changes. A schema may be another server's: the work is bounded by the input's size.

use hivekeep_runtime::json_text;
use serde_json::{Map, Value};

use super::{ToolEntry, actions::takes_anything};

/// References and alternatives that are followed to what holds for one value.
const HOPS: usize = 16;
/// Schemas that are looked at to tell whether one takes a value.
const LOOKS: u8 = 64;

impl ToolEntry {
    /// Writes an input in its canonical spelling.
    pub fn respell(&self, args: &mut Map<String, Value>) {
        let (schema, root) = (&self.input_schema, &self.input_schema);
        match self.actions {
            None => object(args, schema, root, |of| takes(of, root, &Value::Null)),
            // Null is there for the properties of other actions, and as good as absent.
            Some(_) => object(args, schema, root, |of| of.as_object().is_some_and(takes_anything)),
        }
    }
}

fn object(
    map: &mut Map<String, Value>,
    schema: &Value,
    root: &Value,
    takes_null: impl Fn(&Value) -> bool,
) {
    map.retain(|name, value| {
        let declared = || schema.get("properties").and_then(|all| all.get(name));
        match value {
            Value::Null => declared().is_none_or(|of| requires(schema, name) || takes_null(of)),
            _ if has_one_spelling(value) => true,
            _ => {
                if let Some(of) = declared().or_else(|| schema.get("additionalProperties")) {
                    respell(value, of, root);
                }
                true
            }
        }
    });
}

fn respell(value: &mut Value, schema: &Value, root: &Value) {
    if has_one_spelling(value) {
        return;
    }
    let Some(schema) = telling(value, schema, root) else { return };
    match value {
        Value::Object(map) => object(map, schema, root, |of| takes(of, root, &Value::Null)),
        Value::Array(items) => {
            let first = schema.get("prefixItems").and_then(Value::as_array);
            for (at, item) in items.iter_mut().enumerate() {
                let own = first.and_then(|first| first.get(at));
                if let Some(of) = own.or_else(|| schema.get("items")) {
                    respell(item, of, root);
                }
            }
        }
        Value::Number(number) if names_type(schema, "integer") && !names_type(schema, "number") => {
            if let Some(integer) = json_text::integer(number) {
                *number = integer;
            }
        }
        _ => {}
    }
}

fn has_one_spelling(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => !number.is_f64(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// The schema that describes the inside of a value or the type of a number; `None` where several could
/// be meant, or none.
fn telling<'s>(value: &Value, mut schema: &'s Value, root: &'s Value) -> Option<&'s Value> {
    let tells: &[&str] = match value {
        Value::Object(_) => &["properties", "additionalProperties"],
        Value::Array(_) => &["items", "prefixItems"],
        _ => &["type"],
    };
    for _ in 0..HOPS {
        if tells.iter().any(|key| schema.get(key).is_some()) {
            return Some(schema);
        }
        if let Some(target) = target(schema, root) {
            schema = target;
            continue;
        }
        let alternatives = ["anyOf", "oneOf", "allOf"].into_iter().find_map(|key| schema.get(key));
        let mut meant = alternatives?.as_array()?.iter().filter(|one| takes(one, root, value));
        schema = meant.next()?;
        if meant.next().is_some() {
            return None;
        }
    }
    None
}

/// Whether a schema could take a value, by its types, constants, required properties, and texts of
/// properties: what alternatives differ in.
fn takes(schema: &Value, root: &Value, value: &Value) -> bool {
    let mut looks = LOOKS;
    could(schema, root, value, &mut looks)
}

fn could(schema: &Value, root: &Value, value: &Value, looks: &mut u8) -> bool {
    let Some(left) = looks.checked_sub(1) else { return true };
    *looks = left;
    let Value::Object(says) = schema else { return schema != &Value::Bool(false) };
    let list = |key: &str| says.get(key).and_then(Value::as_array);
    let type_name = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let named = !says.contains_key("type")
        || names_type(schema, type_name)
        || (value.is_number() && names_type(schema, "integer"));
    let listed = list("enum").is_none_or(|all| all.contains(value))
        && says.get("const").is_none_or(|only| only == value);
    let within = value.as_object().is_none_or(|map| {
        let has = |name: &Value| name.as_str().is_none_or(|name| map.contains_key(name));
        let properties = says.get("properties");
        let mut texts = map.iter().filter(|(_, value)| value.is_string());
        list("required").is_none_or(|all| all.iter().all(has))
            && texts.all(|(name, text)| {
                let of = properties.and_then(|all| all.get(name));
                of.is_none_or(|of| could(of, root, text, looks))
            })
    });
    named
        && listed
        && within
        && target(schema, root).is_none_or(|one| could(one, root, value, looks))
        && ["anyOf", "oneOf"].into_iter().filter_map(list).all(|all| {
            let mut all = all.iter();
            all.any(|one| could(one, root, value, looks))
        })
        && list("allOf").is_none_or(|all| all.iter().all(|one| could(one, root, value, looks)))
}

/// Where a reference within the schema leads.
fn target<'s>(schema: &Value, root: &'s Value) -> Option<&'s Value> {
    root.pointer(schema.get("$ref")?.as_str()?.strip_prefix('#')?)
}

fn names_type(schema: &Value, name: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(only)) => only == name,
        Some(Value::Array(all)) => all.iter().any(|one| one == name),
        _ => false,
    }
}

fn requires(schema: &Value, name: &str) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|all| all.iter().any(|one| one == name))
}

#[cfg(test)]
mod tests;
