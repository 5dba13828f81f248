//! JSON Schemas of inputs, manifests and answers: compiled, and explained to whoever sent a value that breaks
//! one.

use jsonschema::{Draft, PatternOptions, error::TypeKind};
pub use jsonschema::{
    JsonType, ValidationError, Validator, error::ValidationErrorKind,
    meta::validate as check_schema,
};
use serde_json::Value;

use ValidationErrorKind as Kind;

/// Compiles a schema: patterns are matched in linear time, and nothing is fetched.
///
/// # Errors
/// With what is wrong in the schema.
pub fn validator(schema: &Value) -> Result<Validator, String> {
    let options = jsonschema::options()
        .with_draft(Draft::Draft202012)
        .with_pattern_options(PatternOptions::regex());
    options.build(schema).map_err(|error| error.to_string())
}

/// Distance of an alternative from the value that breaks it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Distance {
    Within,
    Tag,
    Type,
}

/// Violations below an error: of alternatives, those of the one that was most likely meant. A violation is a
/// broken rule, or the rules that stand for the types or tags of all alternatives where the value has none.
pub fn violations<'e>(error: &'e ValidationError<'e>) -> Vec<Vec<&'e ValidationError<'e>>> {
    let (Kind::AnyOf { context } | Kind::OneOfNotValid { context }) = error.kind() else {
        return vec![vec![error]];
    };
    let at = error.instance_path().as_str();
    let least = distance(error, at);
    if least != Distance::Within {
        let mut rules = Vec::new();
        collect(error, at, least, &mut rules);
        return vec![rules];
    }
    let near = context.iter().filter(|branch| distance_of(branch, at) == least);
    let near: Vec<_> = near.collect();
    // Without its tag a value is none of them.
    if let [first, others @ ..] = &near[..]
        && !others.is_empty()
    {
        let common = |error: &&ValidationError<'_>| {
            missing(error).is_some()
                && others.iter().all(|branch| branch.iter().any(|it| missing(it) == missing(error)))
        };
        let tags: Vec<_> = first.iter().filter(common).map(|error| vec![error]).collect();
        if !tags.is_empty() {
            return tags;
        }
    }
    let best = near.into_iter().min_by_key(|branch| branch.len());
    best.into_iter().flatten().flat_map(violations).collect()
}

fn distance_of(branch: &[ValidationError<'_>], at: &str) -> Distance {
    branch.iter().map(|error| distance(error, at)).max().unwrap_or(Distance::Within)
}

fn distance(error: &ValidationError<'_>, at: &str) -> Distance {
    let below = error.instance_path().as_str().strip_prefix(at).unwrap_or_default();
    match error.kind() {
        Kind::Type { .. } | Kind::Enum { .. } | Kind::Constant { .. } if below.is_empty() => {
            Distance::Type
        }
        Kind::Constant { .. } if below.rfind('/') == Some(0) => Distance::Tag,
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } if below.is_empty() => {
            let all = context.iter().map(|branch| distance_of(branch, at));
            all.min().unwrap_or(Distance::Within)
        }
        _ => Distance::Within,
    }
}

/// Collects the rules that keep alternatives at this distance, nested ones too.
fn collect<'e>(
    error: &'e ValidationError<'e>,
    at: &str,
    least: Distance,
    rules: &mut Vec<&'e ValidationError<'e>>,
) {
    match error.kind() {
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            context.iter().flatten().for_each(|error| collect(error, at, least, rules));
        }
        _ if distance(error, at) == least => rules.push(error),
        _ => {}
    }
}

fn missing<'e>(error: &'e ValidationError<'_>) -> Option<&'e str> {
    match error.kind() {
        Kind::Required { property } => property.as_str(),
        _ => None,
    }
}

/// Text of what a value should be to keep one of these rules. Never repeats the value, which may be secret.
pub fn expected(rules: &[&ValidationError<'_>], type_name: fn(JsonType) -> &'static str) -> String {
    let mut options = Vec::new();
    for rule in rules {
        match rule.kind() {
            Kind::Type { kind: TypeKind::Single(kind) } => {
                options.push(type_name(*kind).to_owned())
            }
            Kind::Type { kind: TypeKind::Multiple(kinds) } => {
                options.extend(kinds.iter().map(|kind| type_name(kind).to_owned()));
            }
            _ => options.push(bound(rule)),
        }
    }
    let null = type_name(JsonType::Null);
    options.sort_by_key(|option| option == null);
    let mut seen = std::collections::HashSet::new();
    options.retain(|option| seen.insert(option.clone()));
    options.join(" or ")
}

fn bound(rule: &ValidationError<'_>) -> String {
    match rule.kind() {
        Kind::Enum { options } => {
            let options = options.as_array().into_iter().flatten().map(text);
            format!("one of {}", options.collect::<Vec<_>>().join(", "))
        }
        Kind::Constant { expected_value } => format!("`{}`", text(expected_value)),
        Kind::Pattern { pattern } => format!("a text that matches {pattern}"),
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
        _ => format!("something else ({})", rule.masked_with("the value")),
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(schema: &Value, value: &Value) -> Vec<(String, String)> {
        let validator = validator(schema).expect("a schema");
        let errors: Vec<_> = validator.iter_errors(value).collect();
        let all = errors.iter().flat_map(violations);
        let text = |rules: Vec<&ValidationError<'_>>| match missing(rules[0]) {
            Some(name) => (rules[0].instance_path().to_string(), format!("{name} is missing")),
            None => {
                let expected = expected(&rules, JsonType::as_str);
                (rules[0].instance_path().to_string(), expected)
            }
        };
        all.map(text).collect()
    }

    #[test]
    fn of_alternatives_the_one_that_was_meant_is_told() {
        let tagged = |tag: &str, field: &str| {
            json!({
                "type": "object", "required": ["how", field],
                "properties": { "how": { "const": tag }, field: { "type": "integer" } },
            })
        };
        let modes = json!({ "oneOf": [tagged("all", "n"), tagged("some", "count")] });
        let schema = json!({ "properties": { "mode": { "anyOf": [{ "type": "null" }, modes] } } });
        for (mode, pointer, expected) in [
            // The name of the tag is longer than that of the field: the tag fits all the same.
            (json!({ "how": "all", "n": "x" }), "/mode/n", "integer"),
            (json!({ "how": "some" }), "/mode", "count is missing"),
            (json!({ "n": 1, "count": 1 }), "/mode", "how is missing"),
            (json!({ "how": "none" }), "/mode/how", "`all` or `some`"),
            (json!("all"), "/mode", "object or null"),
        ] {
            let expected = vec![(pointer.to_owned(), expected.to_owned())];
            assert_eq!(told(&schema, &json!({ "mode": mode })), expected);
        }
    }
}
