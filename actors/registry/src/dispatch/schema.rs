//! Input validation against the tool's declaration.
//!
//! All violations are told at once, each with its JSON pointer and what was
//! expected there. The values themselves are not repeated: they may be secret.

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_runtime::json_schema::{self, JsonType, ValidationError, ValidationErrorKind as Kind};
use serde_json::{Map, Value, json};

use crate::ToolEntry;
use crate::codes;

/// Violations listed; more would not help, and are not looked for.
const MOST: usize = 20;
/// Values in an input, at any depth: far above what any tool takes, and little to look through.
const MOST_VALUES: usize = 20_000;
/// A pointer is shown as far as this: its steps are names from outside.
const POINTER_CHARS: usize = 200;

/// Refuses an input that would be dear to look at, before anything looks at it: whatever is done
/// with an input grows with its values, and none of it has been paid for.
pub(super) fn size(args: &Map<String, Value>) -> Result<(), ToolError> {
    let mut left = MOST_VALUES;
    if args.values().all(|value| fits(value, &mut left)) {
        return Ok(());
    }
    let message = format!("the input has more than {MOST_VALUES} values");
    Err(ToolError::new(Layer::Schema, codes::INVALID_INPUT, message)
        .next("split it into several calls, or pass it as a file"))
}

/// Stops at the first value that is one too many.
fn fits(value: &Value, left: &mut usize) -> bool {
    let Some(rest) = left.checked_sub(1) else { return false };
    *left = rest;
    match value {
        Value::Array(items) => items.iter().all(|item| fits(item, left)),
        Value::Object(map) => map.values().all(|item| fits(item, left)),
        _ => true,
    }
}

impl ToolEntry {
    /// Checks the input against the tool's declaration.
    ///
    /// # Errors
    /// `invalid_input` with everything that is wrong; `internal` for a schema that is not one.
    pub fn check(&self, args: &Value) -> Result<(), ToolError> {
        let Some(validator) = self.validator() else {
            let tool = self.name();
            return Err(ToolError::internal(format!("the input schema of `{tool}` is invalid")));
        };
        // The usual case allocates nothing.
        if validator.is_valid(args) {
            let missing = self.actions.as_ref().and_then(|actions| actions.missing(args));
            return missing.map_or(Ok(()), |(action, fields)| Err(lacking(self, action, &fields)));
        }
        let mut violations = Vec::new();
        for error in validator.iter_errors(args) {
            collect(&error, &mut violations);
            if violations.len() >= MOST {
                break;
            }
        }
        let texts: Vec<_> = violations.iter().map(Violation::text).collect();
        let list: Vec<_> = violations.into_iter().map(Violation::json).collect();
        let message = format!("the input of `{}` is invalid: {}", self.name(), texts.join("; "));
        Err(ToolError::new(Layer::Schema, codes::INVALID_INPUT, message)
            .next(format!("correct the input; properties: {}", properties(self)))
            .detail("violations", list))
    }
}

fn lacking(entry: &ToolEntry, action: &str, fields: &[&str]) -> ToolError {
    let violation = |field: &&str| Violation {
        pointer: format!("/{}", escaped(field)),
        expected: format!("to be there for the action `{action}`"),
    };
    let violations: Vec<_> = fields.iter().map(violation).map(Violation::json).collect();
    let (tool, fields) = (entry.name(), fields.join("`, `"));
    let message = format!("the action `{action}` of `{tool}` needs `{fields}`");
    ToolError::new(Layer::Schema, codes::INVALID_INPUT, message)
        .next(format!("give `{fields}`"))
        .detail("violations", violations)
}

struct Violation {
    pointer: String,
    expected: String,
}

impl Violation {
    fn text(&self) -> String {
        let at = if self.pointer.is_empty() { "the input" } else { &self.pointer };
        format!("{at}: expected {}", self.expected)
    }

    fn json(self) -> Value {
        json!({ "pointer": self.pointer, "expected": self.expected })
    }
}

fn collect(error: &ValidationError<'_>, violations: &mut Vec<Violation>) {
    for rules in json_schema::violations(error) {
        let at = rules[0].instance_path().as_str();
        match rules[0].kind() {
            Kind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                push(violations, &format!("{at}/{}", escaped(name)), "to be there".to_owned());
            }
            Kind::AdditionalProperties { unexpected }
            | Kind::UnevaluatedProperties { unexpected } => {
                // The validator has made a list of all of them; `size` bounds it.
                for name in unexpected.iter().take(MOST) {
                    let pointer = format!("{at}/{}", escaped(name));
                    push(violations, &pointer, "no such property".to_owned());
                }
            }
            _ => push(violations, at, json_schema::expected(&rules, JsonType::as_str)),
        }
    }
}

fn push(violations: &mut Vec<Violation>, pointer: &str, expected: String) {
    if violations.len() < MOST {
        let pointer = pointer.chars().take(POINTER_CHARS).collect();
        violations.push(Violation { pointer, expected });
    }
}

/// A name as a step of a JSON pointer.
fn escaped(name: &str) -> String {
    name.chars().take(80).collect::<String>().replace('~', "~0").replace('/', "~1")
}

/// The properties with a star at those that must be there.
fn properties(entry: &ToolEntry) -> String {
    let schema = &entry.input_schema;
    let required = schema.get("required").and_then(Value::as_array);
    let must = |name: &str| required.is_some_and(|all| all.iter().any(|one| one == name));
    let names: Vec<_> = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|properties| properties.keys())
        .map(|name| if must(name) { format!("{name} (required)") } else { name.clone() })
        .collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use hivekeep_kernel::Effect;
    use schemars::{Schema, json_schema};

    use super::*;
    use crate::catalogue::tests::catalogue_of;

    fn nested() -> Schema {
        json_schema!({
            "type": "object", "description": "x",
            "properties": {
                "size": {
                    "description": "x",
                    "anyOf": [{ "$ref": "#/$defs/Size" }, { "type": "null" }],
                },
                "name": { "description": "x", "type": "string", "pattern": "^[a-z]+$", "maxLength": 3 },
            },
            "$defs": { "Size": {
                "type": "object", "required": ["mb"], "additionalProperties": false,
                "properties": { "mb": { "description": "x", "type": "integer", "maximum": 9 } },
            } },
        })
    }

    fn told(args: Value) -> Vec<(String, String)> {
        let catalogue = catalogue_of(Effect::Read, nested);
        let entry = catalogue.entries().next().expect("one");
        let error = entry.check(&args).expect_err("invalid");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let violations = error.details["violations"].as_array().expect("a list");
        violations.iter().map(|one| (text(&one["pointer"]), text(&one["expected"]))).collect()
    }

    #[test]
    fn of_alternatives_the_nearest_is_told() {
        let one = |pointer: &str, expected: &str| vec![(pointer.to_owned(), expected.to_owned())];
        assert_eq!(told(json!({ "size": { "mb": "x" } })), one("/size/mb", "integer"));
        assert_eq!(told(json!({ "size": { "mb": 10 } })), one("/size/mb", "at most 9"));
        assert_eq!(told(json!({ "size": {} })), one("/size/mb", "to be there"));
        assert_eq!(told(json!({ "size": 3 })), one("/size", "object or null"));
        let extra = json!({ "size": { "mb": 1, "gb": 1 } });
        assert_eq!(told(extra), one("/size/gb", "no such property"));
    }

    #[test]
    fn what_is_expected_is_said_in_words() {
        fn rules() -> Schema {
            let told = |rule: Value| {
                let mut rule = rule;
                rule["description"] = "x".into();
                rule
            };
            json_schema!({ "type": "object", "description": "x", "required": ["number"], "properties": {
                "number": told(json!({ "minimum": 3 })),
                "more": told(json!({ "exclusiveMinimum": 3 })),
                "less": told(json!({ "exclusiveMaximum": 3 })),
                "kind": told(json!({ "enum": ["a", "b"] })),
                "always": told(json!({ "const": 3 })),
                "text": told(json!({ "minLength": 3 })),
                "few": told(json!({ "minItems": 2, "type": ["array", "null"] })),
                "many": told(json!({ "maxItems": 0 })),
                "odd": told(json!({ "multipleOf": 2 })),
            } })
        }
        let catalogue = catalogue_of(Effect::Read, rules);
        let entry = catalogue.entries().next().expect("one");
        for (field, value, expected) in [
            ("number", json!(2), "at least 3"),
            ("more", json!(3), "more than 3"),
            ("less", json!(3), "less than 3"),
            ("kind", json!("c"), "one of a, b"),
            ("always", json!(4), "`3`"),
            ("text", json!("ab"), "at least 3 characters"),
            ("few", json!([1]), "at least 2 items"),
            ("few", json!(1), "array or null"),
            ("many", json!([1]), "at most 0 items"),
        ] {
            let mut input = json!({ "number": 3 });
            input[field] = value;
            let told = entry.check(&input).expect_err(field).message;
            assert_eq!(
                told,
                format!("the input of `odd_tool` is invalid: /{field}: expected {expected}")
            );
        }
        let odd = entry.check(&json!({ "number": 3, "odd": 77 })).expect_err("it is odd").message;
        assert!(odd.contains("something else (") && !odd.contains("77"), "{odd}");
        let missing = entry.check(&json!({})).expect_err("it is missing");
        assert!(
            missing
                .next_step
                .is_some_and(|next| next.contains("number (required)") && next.contains(" odd"))
        );
        assert!(told(json!(3)).contains(&(String::new(), "object".to_owned())));
        assert_eq!(escaped("a/b~c"), "a~1b~0c");
    }

    #[test]
    fn several_rules_of_one_value_are_each_told() {
        let told = told(json!({ "name": "ABCD" }));
        let expected: Vec<_> = told.iter().map(|(_, expected)| expected.as_str()).collect();
        assert_eq!(told.iter().filter(|(pointer, _)| pointer == "/name").count(), 2, "{told:?}");
        assert!(expected.contains(&"at most 3 characters"));
        assert!(expected.contains(&"a text that matches ^[a-z]+$"));
    }

    #[test]
    fn a_flood_of_violations_is_cut() {
        let many: serde_json::Map<_, _> =
            (0..1_000).map(|n| (format!("p{n}"), Value::Null)).collect();
        assert_eq!(told(json!({ "size": many })).len(), MOST);
    }

    #[test]
    fn a_long_name_is_not_repeated() {
        fn texts() -> Schema {
            json_schema!({
                "type": "object", "description": "x",
                "properties": { "env": {
                    "description": "x", "type": "object", "additionalProperties": { "type": "string" },
                } },
            })
        }
        let catalogue = catalogue_of(Effect::Read, texts);
        let entry = catalogue.entries().next().expect("one");
        let long: Map<_, _> =
            (0..30).map(|n| ("n".repeat(100_000) + &n.to_string(), json!(n))).collect();
        let error = entry.check(&json!({ "env": long })).expect_err("numbers are not texts");
        assert_eq!(error.details["violations"].as_array().expect("a list").len(), MOST);
        let bytes = serde_json::to_string(&error).expect("serialises").len();
        assert!(bytes < 3 * MOST * POINTER_CHARS, "{bytes} bytes");
    }

    #[test]
    fn what_has_too_many_values_is_not_looked_at() {
        let of = |value: Value| value.as_object().expect("an object").clone();
        let flat = |count: usize| Value::from(vec![0; count]);
        size(&of(json!({ "list": flat(MOST_VALUES - 1) }))).expect("as many as may be");
        let wide: Map<_, _> = (0..=MOST_VALUES).map(|n| (n.to_string(), Value::Null)).collect();
        let deep = (0..=MOST_VALUES / 100).fold(flat(100), |inner, _| json!([inner, flat(99)]));
        for args in [wide, of(json!({ "a": flat(MOST_VALUES) })), of(json!({ "a": deep }))] {
            assert_eq!(size(&args).expect_err("refused").code, "invalid_input");
        }
    }
}
