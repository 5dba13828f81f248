//! A flattening of tagged enums: a tool with an action for each variant is one plain object for
//! clients, because the model providers' interfaces take no alternatives at the root.
//!
//! The object has the properties of all variants. One that every action requires is required. Any
//! other may be null, which is as good as not there ([`super::spelling`]); what its action requires
//! is told by [`Actions::missing`]. Properties that several variants have must have one schema; where their
//! descriptions differ, or not all have it, the description says for which actions it is. A variant
//! may have actions of its own, below a tag of another name.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Properties that single actions require beyond those that all require.
#[derive(Debug)]
pub(crate) struct Actions {
    tag: String,
    wanted: BTreeMap<String, Wanted>,
}

/// Required properties of an action.
#[derive(Debug)]
struct Wanted {
    fields: Vec<String>,
    below: Option<Actions>,
}

impl Actions {
    /// The action of an input in its canonical spelling, and the properties that are missing.
    pub(crate) fn missing<'a>(&'a self, args: &Value) -> Option<(&'a str, Vec<&'a str>)> {
        let (action, wanted) = self.wanted.get_key_value(args.get(&self.tag)?.as_str()?)?;
        let absent = |field: &&str| args.get(*field).is_none();
        let missing: Vec<_> = wanted.fields.iter().map(String::as_str).filter(absent).collect();
        match missing.is_empty() {
            false => Some((action, missing)),
            true => wanted.below.as_ref().and_then(|below| below.missing(args)),
        }
    }
}

/// Variant of a tagged enum: its action, what it is for, its properties, which of them are required, and
/// the actions that it has itself.
struct Variant {
    action: String,
    about: String,
    properties: Map<String, Value>,
    required: Vec<String>,
    below: Option<Actions>,
}

/// Makes one object of a root with tagged alternatives; any other root stays as it is.
pub(super) fn flatten(root: &mut Map<String, Value>) -> Result<Option<Actions>, String> {
    let definitions = root.get("$defs").cloned().unwrap_or_default();
    let actions = merge(root, &definitions)?;
    if actions.is_some() {
        root.insert("type".to_owned(), json!("object"));
        root.insert("additionalProperties".to_owned(), json!(false));
        prune(root);
    }
    Ok(actions)
}

/// Puts the properties of tagged alternatives among those that stand beside them.
fn merge(schema: &mut Map<String, Value>, definitions: &Value) -> Result<Option<Actions>, String> {
    let Some(Value::Array(alternatives)) = schema.get("oneOf") else { return Ok(None) };
    let Some(tag) = alternatives.first().and_then(tag_of) else { return Ok(None) };
    let variants = alternatives.iter().map(|one| variant(one, &tag, definitions));
    let mut variants = variants.collect::<Result<Vec<_>, _>>()?;
    schema.remove("oneOf");

    // Properties outside of the variants are there for all of them.
    let mut properties = match schema.remove("properties") {
        Some(Value::Object(common)) => common,
        _ => Map::new(),
    };
    let mut required = match schema.remove("required") {
        Some(Value::Array(common)) => common,
        _ => Vec::new(),
    };
    properties.insert(tag.clone(), action(&variants));
    required.push(json!(tag));
    let everywhere = |name: &&String| variants.iter().all(|one| one.required.contains(name));
    let in_all: Vec<_> = variants[0].required.iter().filter(everywhere).cloned().collect();
    for name in variants.iter().flat_map(|one| one.properties.keys()) {
        if !properties.contains_key(name) {
            properties.insert(name.clone(), union(name, &variants, in_all.contains(name))?);
        }
    }
    let wanted = variants.iter_mut().map(|one| {
        let beyond = one.required.iter().filter(|name| !in_all.contains(name));
        let fields = beyond.cloned().collect();
        (one.action.clone(), Wanted { fields, below: one.below.take() })
    });
    let actions = Actions { tag, wanted: wanted.collect() };
    required.extend(in_all.into_iter().map(Value::from));
    schema.insert("properties".to_owned(), properties.into());
    schema.insert("required".to_owned(), required.into());
    Ok(Some(actions))
}

/// The property that is a constant.
fn tag_of(alternative: &Value) -> Option<String> {
    let properties = alternative["properties"].as_object()?;
    let mut constant = properties.iter().filter(|(_, schema)| schema.get("const").is_some());
    constant.next().map(|(name, _)| name.clone())
}

fn variant(alternative: &Value, tag: &str, definitions: &Value) -> Result<Variant, String> {
    let name = alternative["$ref"].as_str().and_then(|to| to.strip_prefix("#/$defs/"));
    let inner = name.and_then(|name| definitions.get(name)).and_then(Value::as_object);
    let mut inner = inner.cloned().unwrap_or_default();
    let below = merge(&mut inner, definitions)?;
    let inner = Value::Object(inner);
    let text = |schema: &Value| schema["description"].as_str().map(str::to_owned);
    let maps =
        [alternative, &inner].into_iter().filter_map(|schema| schema["properties"].as_object());
    let (tags, properties): (Map<_, _>, Map<_, _>) = maps
        .flatten()
        .map(|(name, schema)| (name.clone(), schema.clone()))
        .partition(|(name, _)| name == tag);
    let action = tags.get(tag).and_then(|tag| tag["const"].as_str()).map(str::to_owned);
    let lists =
        [alternative, &inner].into_iter().filter_map(|schema| schema["required"].as_array());
    let required = lists.flatten().filter_map(Value::as_str).map(str::to_owned);
    Ok(Variant {
        action: action.ok_or_else(|| format!("has an alternative without `{tag}`"))?,
        about: text(alternative).or_else(|| text(&inner)).unwrap_or_default(),
        properties,
        required: required.filter(|name| name != tag).collect(),
        below,
    })
}

fn action(variants: &[Variant]) -> Value {
    let names: Vec<_> = variants.iter().map(|one| &one.action).collect();
    let about = variants.iter().map(|one| format!("{}: {}", one.action, one.about));
    let about = about.collect::<Vec<_>>().join(" ");
    json!({ "type": "string", "enum": names, "description": format!("What to do. {about}") })
}

/// Schema of a property, from all variants that have it.
fn union(name: &str, variants: &[Variant], required: bool) -> Result<Value, String> {
    let mut schema: Option<Value> = None;
    let mut texts: Vec<(String, Vec<&str>)> = Vec::new();
    for one in variants {
        let Some(Value::Object(mut property)) = one.properties.get(name).cloned() else { continue };
        let text = match property.get("description").and_then(Value::as_str) {
            Some(text) => text.to_owned(),
            None => return Err(format!("has no description of `{name}` for `{}`", one.action)),
        };
        property.retain(|key, _| key != "description");
        match texts.iter_mut().find(|(known, _)| *known == text) {
            Some((_, actions)) => actions.push(&one.action),
            None => texts.push((text, vec![&one.action])),
        }
        let property = if required { property.into() } else { nullable(property) };
        if schema.get_or_insert_with(|| property.clone()) != &property {
            return Err(format!("has several schemas of `{name}`"));
        }
    }
    let told = |(text, actions): &(String, Vec<&str>)| match actions.len() == variants.len() {
        true => text.clone(),
        false => format!("{}: {}", actions.join(", "), lowered(text)),
    };
    let text = texts.iter().map(told).collect::<Vec<_>>().join(" ");
    let mut schema = schema.ok_or_else(|| format!("has `{name}` in no alternative"))?;
    schema["description"] = text.into();
    Ok(schema)
}

/// The schema with null beside what it takes, as optional fields of Rust have it.
fn nullable(mut schema: Map<String, Value>) -> Value {
    match schema.get("type") {
        Some(Value::String(kind)) if !schema.contains_key("enum") => {
            let kinds = json!([kind, "null"]);
            schema.insert("type".to_owned(), kinds);
            schema.into()
        }
        None if takes_anything(&schema) => schema.into(),
        Some(Value::Array(_)) => schema.into(),
        _ if takes_null(&schema) => schema.into(),
        _ => {
            let default = schema.remove("default");
            let mut wrapped = json!({ "anyOf": [schema, { "type": "null" }] });
            if let Some(default) = default {
                wrapped["default"] = default;
            }
            wrapped
        }
    }
}

pub(super) fn takes_anything(schema: &Map<String, Value>) -> bool {
    !["type", "$ref", "anyOf", "oneOf", "const"].into_iter().any(|key| schema.contains_key(key))
}

fn takes_null(schema: &Map<String, Value>) -> bool {
    let null = json!({ "type": "null" });
    schema.get("anyOf").and_then(Value::as_array).is_some_and(|all| all.contains(&null))
}

/// With a small first letter, unless the first word is written in capitals or is code.
fn lowered(text: &str) -> String {
    let mut letters = text.chars();
    match (letters.next(), letters.clone().next()) {
        (Some(first), Some(second)) if first.is_uppercase() && !second.is_uppercase() => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => text.to_owned(),
    }
}

/// Removes definitions that nothing refers to any more.
fn prune(root: &mut Map<String, Value>) {
    loop {
        let text = Value::Object(root.clone()).to_string();
        let Some(Value::Object(defs)) = root.get_mut("$defs") else { return };
        let before = defs.len();
        defs.retain(|name, _| text.contains(&format!("\"#/$defs/{name}\"")));
        let (after, none) = (defs.len(), defs.is_empty());
        if none {
            root.remove("$defs");
        }
        if none || after == before {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;

    /// A tool.
    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Tool {
        /// Which one.
        thing: String,
        #[serde(flatten)]
        action: Action,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(tag = "action", rename_all = "snake_case")]
    enum Action {
        /// Makes one.
        Make(Make),
        /// Moves it.
        Move {
            /// Its name.
            name: String,
            /// Where to.
            to: Place,
            /// How far.
            #[schemars(range(max = 9))]
            far: Option<u8>,
        },
        /// Shows all.
        List,
        /// Changes labels.
        Label(Label),
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Label {
        /// Its name.
        name: String,
        #[serde(flatten)]
        change: Change,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(tag = "label_action", rename_all = "snake_case")]
    enum Change {
        /// Show them.
        Get,
        /// Set one.
        Set {
            /// Which one.
            #[schemars(length(max = 3))]
            key: String,
            /// Any JSON.
            content: Value,
        },
        /// Remove one.
        Unset {
            /// Which one.
            #[schemars(length(max = 3))]
            key: String,
        },
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Make {
        /// The new name.
        name: String,
        /// Any JSON.
        value: Option<Value>,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Place {
        Here,
        There,
    }

    fn flat() -> (Value, Actions) {
        let schema = schemars::schema_for!(Tool);
        let Value::Object(mut root) = schema.to_value() else { panic!("an object") };
        let actions = flatten(&mut root).expect("flat").expect("an action tool");
        (root.into(), actions)
    }

    #[test]
    fn variants_become_one_plain_object() {
        let (flat, _) = flat();
        assert_eq!((&flat["type"], &flat["oneOf"]), (&json!("object"), &Value::Null));
        assert_eq!(flat["additionalProperties"], false);
        let required: Vec<_> = flat["required"].as_array().expect("a list").iter().collect();
        assert_eq!(required, ["thing", "action"]);
        let properties = &flat["properties"];
        assert_eq!(properties["action"]["enum"], json!(["make", "move", "list", "label"]));
        let about = "What to do. make: Makes one. move: Moves it. list: Shows all. \
            label: Changes labels.";
        assert_eq!(properties["action"]["description"], about);
        assert_eq!(properties["thing"]["description"], "Which one.");
        let name = json!({ "type": ["string", "null"],
            "description": "make: the new name. move, label: its name." });
        assert_eq!(properties["name"], name);
        assert_eq!(properties["far"]["maximum"], 9);
        let to = json!({ "anyOf": [{ "$ref": "#/$defs/Place" }, { "type": "null" }],
            "description": "move: where to." });
        assert_eq!(properties["to"], to);
        assert_eq!(properties["value"]["description"], "make: any JSON.");
        let about = "label: what to do. get: Show them. set: Set one. unset: Remove one.";
        assert_eq!(properties["label_action"]["description"], about);
        assert_eq!(properties["key"]["maxLength"], 3);
        assert_eq!(properties["key"]["description"], "label: set, unset: which one.");
        let definitions: Vec<_> = flat["$defs"].as_object().expect("some").keys().collect();
        assert_eq!(definitions, ["Place"]);
    }

    /// The flat schema admits arguments that the enum refuses for lack of a property; `missing` names
    /// these properties. Arguments that lack none parse as the enum.
    #[test]
    fn what_an_action_requires_is_named() {
        let (flat, actions) = flat();
        let validator = hivekeep_runtime::json_schema::validator(&flat).expect("a schema");
        for (args, missing) in [
            (json!({ "action": "make", "name": "n" }), None),
            (json!({ "action": "make", "name": "n", "to": null, "value": null }), None),
            // A property of another action is not looked at.
            (json!({ "action": "list", "name": "n", "far": 3 }), None),
            (json!({ "action": "move", "name": "n", "to": "here" }), None),
            (json!({ "action": "make" }), Some(("make", vec!["name"]))),
            (json!({ "action": "move" }), Some(("move", vec!["name", "to"]))),
            (json!({ "action": "label" }), Some(("label", vec!["name", "label_action"]))),
            (json!({ "action": "label", "name": "n", "label_action": "get" }), None),
            (
                json!({ "action": "label", "name": "n", "label_action": "set" }),
                Some(("set", vec!["key", "content"])),
            ),
            (
                json!({ "action": "label", "name": "n", "label_action": "set", "key": "k",
                    "content": null }),
                None,
            ),
            (
                json!({ "action": "label", "name": "n", "label_action": "unset" }),
                Some(("unset", vec!["key"])),
            ),
        ] {
            let mut args = args;
            args["thing"] = json!("t");
            assert!(validator.is_valid(&args), "{args}");
            assert_eq!(actions.missing(&args), missing, "{args}");
            assert_eq!(
                serde_json::from_value::<Tool>(args.clone()).is_ok(),
                missing.is_none(),
                "{args}"
            );
        }
        for wrong in [
            json!({ "action": "none" }),
            json!({ "action": "list", "unknown": 1 }),
            json!({ "action": "move", "name": "n", "to": "nowhere" }),
            json!({ "action": "move", "name": "n", "to": "here", "far": 10 }),
            json!({ "name": "n" }),
        ] {
            let mut args = wrong;
            args["thing"] = json!("t");
            assert!(!validator.is_valid(&args), "{args}");
        }
    }

    #[test]
    fn one_name_with_two_schemas_is_refused() {
        let action = |name: &str| json!({ "type": "string", "const": name });
        let one = |kind: &str| json!({ "type": kind, "description": "d" });
        let root = json!({ "oneOf": [
            { "properties": { "action": action("a"), "x": one("string") }, "required": ["action"] },
            { "properties": { "action": action("b"), "x": one("integer") }, "required": ["action"] },
        ] });
        let Value::Object(mut root) = root else { panic!("an object") };
        assert!(flatten(&mut root).expect_err("two meanings").contains("`x`"));
    }
}
