//! Parameters from `KEY=VALUE`, typed by the tool's schema.

use serde_json::Value;

use super::stdin;
use crate::cli::CommandFailure;

/// A parameter. Text stays text where the schema takes text; elsewhere it must
/// spell JSON of a type that the schema takes.
pub(super) fn parse(given: &str, schema: &Value) -> Result<(String, Value), CommandFailure> {
    let Some((key, text)) = given.split_once('=') else {
        return Err(CommandFailure::Usage(format!("--arg {given}: expected KEY=VALUE")));
    };
    let property = &schema["properties"][key];
    if property.is_null() {
        let known: Vec<_> =
            schema["properties"].as_object().into_iter().flat_map(|p| p.keys()).collect();
        let known: Vec<_> = known.iter().map(|key| key.as_str()).collect();
        return Err(CommandFailure::Usage(format!(
            "--arg {key}: there is no such parameter; there are {}",
            known.join(", ")
        )));
    }
    let text = text_of(text)?;
    let value = typed(&text, &kinds(property, schema)).map_err(|expected| {
        CommandFailure::Usage(format!("--arg {key}: `{text}` is not a valid {expected}"))
    })?;
    Ok((key.to_owned(), value))
}

/// The text itself, or standard input for `-`.
pub(super) fn text_of(text: &str) -> Result<String, CommandFailure> {
    if text == "-" { stdin() } else { Ok(text.to_owned()) }
}

fn typed(text: &str, kinds: &[String]) -> Result<Value, String> {
    let spelled = serde_json::from_str::<Value>(text).ok();
    let takes = |kind: &str| kinds.iter().any(|taken| taken == kind);
    if let Some(value) = spelled {
        let kind = match &value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string in quotes",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        // Where text is taken too, only lists and objects are meant as JSON: a
        // file's content `12` is text. The daemon knows which `5.0` are integers, and
        // what null stands for.
        let meant = !takes("string") || matches!(kind, "array" | "object");
        let taken = match kind {
            "null" => true,
            "integer" | "number" => takes("integer") || takes("number"),
            kind => takes(kind),
        };
        if kinds.is_empty() || (meant && taken) {
            return Ok(value);
        }
    }
    if kinds.is_empty() || takes("string") {
        return Ok(Value::from(text));
    }
    Err(kinds.iter().filter(|kind| *kind != "null").cloned().collect::<Vec<_>>().join(" or "))
}

/// The JSON types that a property takes; none when its schema does not say.
fn kinds(property: &Value, root: &Value) -> Vec<String> {
    if let Some(name) = property["$ref"].as_str().and_then(|at| at.strip_prefix("#/$defs/")) {
        return kinds(&root["$defs"][name], root);
    }
    match &property["type"] {
        Value::String(kind) => return vec![kind.clone()],
        Value::Array(kinds) => {
            return kinds.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        }
        _ => {}
    }
    if property.get("enum").is_some() || property.get("const").is_some() {
        return vec!["string".to_owned()];
    }
    let choices = ["anyOf", "oneOf", "allOf"].map(|key| property[key].as_array());
    choices.into_iter().flatten().flatten().flat_map(|choice| kinds(choice, root)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({
            "properties": {
                "name": {"type": "string"},
                "count": {"type": ["integer", "null"]},
                "ratio": {"type": "number"},
                "force": {"type": "boolean"},
                "commands": {"anyOf": [{"type": "string"}, {"type": "array"}]},
                "vars": {"type": "object"},
                "mode": {"$ref": "#/$defs/Mode"},
            },
            "$defs": {"Mode": {"oneOf": [{"const": "a"}, {"const": "b"}]}},
        })
    }

    fn parsed(given: &str) -> Value {
        parse(given, &schema()).expect("fits the schema").1
    }

    #[test]
    fn the_schema_decides_what_a_text_means() {
        assert_eq!(parsed("name=12"), json!("12"));
        assert_eq!(parsed("name=a=b"), json!("a=b"));
        assert_eq!(parsed("count=12"), json!(12));
        assert_eq!(parsed("count=5.0"), json!(5.0));
        assert_eq!(parsed("ratio=2"), json!(2));
        assert_eq!(parsed("force=null"), json!(null));
        assert_eq!(parsed("force=true"), json!(true));
        assert_eq!(parsed("commands=ls"), json!("ls"));
        assert_eq!(parsed(r#"commands=["ls", "id"]"#), json!(["ls", "id"]));
        assert_eq!(parsed(r#"vars={"A": "1"}"#), json!({"A": "1"}));
        assert_eq!(parsed("mode=a"), json!("a"));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_would() {
        for (given, part) in [
            ("count=many", "`many` is not a valid integer"),
            ("force=yes", "`yes` is not a valid boolean"),
            ("vars=[]", "`[]` is not a valid object"),
            ("nmae=x", "there are name, count"),
            ("name", "expected KEY=VALUE"),
        ] {
            let failure = parse(given, &schema()).expect_err("does not fit").to_string();
            assert!(failure.contains(part), "{given}: {failure}");
        }
    }
}
