//! Schemas by their keys, what is told of a key that there is not, and path navigation of a JSON Schema:
//! through references, alternatives, lists and mappings by name.

use std::{borrow::Cow, sync::Arc};

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_manifest::{ManifestKind, schema};
use hivekeep_runtime::{
    introspection::{Introspection, ToolSchemas},
    schema_kinds::kind,
};
use serde_json::{Value, json};

use crate::{
    codes,
    tools::{SchemaAlternative, SchemaNode, SchemaProperty},
};

/// Key of the configuration's schema.
const CONFIG: &str = "config";
/// Names that are suggested for a wrong one, and their least similarity (Jaro-Winkler).
const MAX_NEAREST: usize = 3;
const SIMILAR: f64 = 0.75;
/// Steps of a path.
const MAX_STEPS: usize = 64;
/// Schemas that are looked at for one step; schemas refer to themselves.
const MAX_SCHEMAS: usize = 512;
/// Characters of a description in a list.
const MAX_DESCRIPTION_CHARS: usize = 160;

type Answer<T> = Result<T, ToolError>;

/// All schemas of the daemon.
pub(crate) struct Schemas(Arc<dyn Introspection>);

impl Schemas {
    pub(crate) fn new(daemon: Arc<dyn Introspection>) -> Self {
        Self(daemon)
    }

    /// Schema of a key.
    ///
    /// # Errors
    /// `unknown_schema`, with the keys there are.
    pub(crate) fn find(&self, key: &str) -> Answer<&Value> {
        if let Some(kind) = ManifestKind::ALL.into_iter().find(|kind| kind.schema_key() == key) {
            return Ok(schema(kind));
        }
        if key == CONFIG {
            return Ok(self.0.config_schema());
        }
        self.of_tool(key).ok_or_else(|| self.unknown(key))
    }

    fn of_tool(&self, key: &str) -> Option<&Value> {
        let (name, side) = key.strip_prefix("tool/")?.split_once('/')?;
        // Dots and underscores are the same, as in calls.
        let named = |tool: &&ToolSchemas| tool.name.replace('.', "_") == name.replace('.', "_");
        let tool = self.0.tools().iter().find(named)?;
        match side {
            "input" => Some(&tool.input),
            "output" => Some(&tool.output),
            _ => None,
        }
    }

    fn unknown(&self, key: &str) -> ToolError {
        let kinds = ManifestKind::ALL.map(|kind| Cow::from(kind.schema_key()));
        let tools = self.0.tools().iter().flat_map(|tool| {
            ["input", "output"].map(|side| Cow::from(format!("tool/{}/{side}", tool.name)))
        });
        let keys: Vec<_> = kinds.into_iter().chain([CONFIG.into()]).chain(tools).collect();
        let nearest = nearest(key, &keys);
        let next = match nearest.first() {
            Some(near) => format!("did you mean `{near}`?"),
            None => "use one of `details.supported_keys`".to_owned(),
        };
        ToolError::not_found(Layer::Actor, codes::UNKNOWN_SCHEMA, "schema", key)
            .next(next)
            .detail("nearest", json!(nearest))
            .detail("supported_keys", json!(keys))
    }

    /// Value of a schema at a path.
    ///
    /// # Errors
    /// `unknown_schema`, or `unknown_schema_path` with the keys there are.
    pub(crate) fn read(&self, key: String, path: String) -> Answer<SchemaNode> {
        let root = self.find(&key)?;
        value_at(root, key, path)
    }

    /// Kind of a name, as `agent`.
    ///
    /// # Errors
    /// `unknown_manifest_kind`, with the kinds there are.
    pub(crate) fn manifest_kind(&self, name: &str) -> Answer<ManifestKind> {
        ManifestKind::of(name).ok_or_else(|| {
            let kinds = ManifestKind::ALL.map(ManifestKind::name);
            ToolError::not_found(
                Layer::Actor,
                codes::UNKNOWN_MANIFEST_KIND,
                "kind of manifest",
                name,
            )
            .next(format!("use one of: {}", kinds.join(", ")))
            .detail("supported_kinds", json!(kinds))
        })
    }
}

/// Names that are most like another one, best first.
fn nearest<'n>(name: &str, known: &'n [Cow<'_, str>]) -> Vec<&'n str> {
    let mut scored: Vec<_> = known
        .iter()
        .map(|known| (strsim::jaro_winkler(name, known), known.as_ref()))
        .filter(|(score, _)| *score > SIMILAR)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(MAX_NEAREST).map(|(_, known)| known).collect()
}

/// Names of the keys that the value at a path of a schema may have.
///
/// # Errors
/// `unknown_schema_path`, with the keys of the last part that is there.
pub fn keys_at(schema: &Value, path: &str) -> Answer<Vec<String>> {
    let node = value_at(schema, String::new(), path.to_owned())?;
    Ok(node.properties.into_iter().map(|property| property.name).collect())
}

/// Value at a path of keys, joined by dots.
///
/// # Errors
/// `unknown_schema_path`, with the keys of the last part that is there.
fn value_at(root: &Value, schema: String, path: String) -> Answer<SchemaNode> {
    let mut here = vec![root];
    for (number, step) in path.split('.').filter(|step| !step.is_empty()).enumerate() {
        let below = if number < MAX_STEPS { below(&here, step, root) } else { Vec::new() };
        if below.is_empty() {
            return Err(no_such_step(&here, step, &path, root));
        }
        here = below;
    }
    let forms = forms(&here, root);
    let alternatives = forms.iter().filter(|form| form.get("type") != Some(&json!("null")));
    let alternatives: Vec<_> = alternatives.map(|form| alternative(form, root)).collect();
    Ok(SchemaNode {
        schema,
        path,
        kind: kinds(&here, root),
        description: described(&here, root).map(str::to_owned),
        properties: properties(&here, root),
        alternatives: if alternatives.len() > 1 { alternatives } else { Vec::new() },
    })
}

/// Schemas of a key in any of the forms of a value; else of an item, for a number, or of a value by
/// name.
fn below<'s>(here: &[&'s Value], step: &str, root: &'s Value) -> Vec<&'s Value> {
    let objects = objects(here, root);
    let named: Vec<_> =
        objects.iter().filter_map(|object| object.get("properties")?.get(step)).collect();
    if !named.is_empty() {
        return named;
    }
    let forms = forms(here, root);
    let items = forms.iter().filter_map(|form| form.get("items"));
    let items: Vec<_> = items.filter(|_| step.bytes().all(|byte| byte.is_ascii_digit())).collect();
    if !items.is_empty() {
        return items;
    }
    // Where a list is possible too a name is more likely a key that is misspelt.
    if forms.iter().any(|form| form.get("items").is_some()) {
        return Vec::new();
    }
    forms
        .iter()
        .filter_map(|form| form.get("additionalProperties"))
        .filter(|any| any.is_object())
        .collect()
}

/// Forms that a value may have: what its schemas refer to, with alternatives and parts apart.
fn forms<'s>(schemas: &[&'s Value], root: &'s Value) -> Vec<&'s Value> {
    walk(schemas, root, |_| Vec::new()).into_iter().filter(|form| !is_wrapper(form)).collect()
}

/// Objects with keys that a value is, or that are in its lists and mappings.
fn objects<'s>(schemas: &[&'s Value], root: &'s Value) -> Vec<&'s Value> {
    let inside = |form: &'s Value| {
        let by_name = form.get("additionalProperties").filter(|any| any.is_object());
        form.get("items").into_iter().chain(by_name).collect()
    };
    let all = walk(schemas, root, inside);
    all.into_iter().filter(|form| form.get("properties").is_some()).collect()
}

/// A schema that only leads to others.
fn is_wrapper(schema: &Value) -> bool {
    let leads = ["$ref", "anyOf", "oneOf", "allOf"].iter().any(|key| schema.get(key).is_some());
    leads && schema.get("properties").is_none()
}

/// Schemas and all that they lead to, each once, in the order of the text.
fn walk<'s>(
    schemas: &[&'s Value],
    root: &'s Value,
    inside: impl Fn(&'s Value) -> Vec<&'s Value>,
) -> Vec<&'s Value> {
    let mut seen: Vec<&'s Value> = Vec::new();
    let mut open: Vec<&'s Value> = schemas.iter().rev().copied().collect();
    while let Some(schema) = open.pop() {
        if seen.len() >= MAX_SCHEMAS || seen.iter().any(|one| std::ptr::eq(*one, schema)) {
            continue;
        }
        seen.push(schema);
        let mut next = Vec::new();
        if let Some(to) = schema.get("$ref").and_then(Value::as_str) {
            next.extend(root.pointer(to.trim_start_matches('#')));
        }
        for key in ["allOf", "anyOf", "oneOf"] {
            next.extend(schema.get(key).and_then(Value::as_array).into_iter().flatten());
        }
        next.extend(inside(schema));
        open.extend(next.into_iter().rev());
    }
    seen
}

fn kinds(schemas: &[&Value], root: &Value) -> String {
    let mut kinds = Vec::new();
    for schema in schemas {
        let kind = kind(schema, root);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds.join(" or ")
}

/// First description of the schemas, or of what they lead to.
fn described<'s>(schemas: &[&'s Value], root: &'s Value) -> Option<&'s str> {
    let text = |schema: &&'s Value| schema.get("description").and_then(Value::as_str);
    let referred = || {
        let to = |schema: &&'s Value| schema.get("$ref").and_then(Value::as_str);
        schemas.iter().filter_map(to).filter_map(|to| root.pointer(to.trim_start_matches('#')))
    };
    schemas.iter().find_map(text).or_else(|| referred().find_map(|schema| text(&schema)))
}

fn properties(schemas: &[&Value], root: &Value) -> Vec<SchemaProperty> {
    let objects = objects(schemas, root);
    let mut listed: Vec<SchemaProperty> = Vec::new();
    for (name, schema) in
        objects.iter().filter_map(|object| object.get("properties")?.as_object()).flatten()
    {
        if listed.iter().any(|property| property.name == *name) {
            continue;
        }
        let requires = |object: &&Value| {
            let required = object.get("required").and_then(Value::as_array);
            required.is_some_and(|all| all.iter().any(|one| one == name))
        };
        listed.push(SchemaProperty {
            name: name.clone(),
            kind: kind(schema, root),
            required: objects.iter().all(requires),
            description: described(&[schema], root).map(brief),
            default: schema.get("default").filter(|default| !default.is_null()).cloned(),
        });
    }
    listed
}

fn alternative(form: &Value, root: &Value) -> SchemaAlternative {
    let keys = properties(&[form], root).into_iter().map(|property| property.name);
    SchemaAlternative {
        kind: kind(form, root),
        description: described(&[form], root).map(brief),
        keys: keys.collect(),
    }
}

/// First sentence of a description, shortened.
fn brief(text: &str) -> String {
    let text = text.replace('\n', " ");
    let first = text.split_once(". ").map_or(text.as_str(), |(first, _)| first);
    match first.char_indices().nth(MAX_DESCRIPTION_CHARS) {
        Some((end, _)) => format!("{}…", &first[..end]),
        None => first.trim_end_matches('.').to_owned(),
    }
}

fn no_such_step(here: &[&Value], step: &str, path: &str, root: &Value) -> ToolError {
    let keys: Vec<_> = properties(here, root).into_iter().map(|one| Cow::from(one.name)).collect();
    let near = nearest(step, &keys);
    let next = match (near.first(), keys.is_empty()) {
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, false) => "use one of `details.supported_keys`".to_owned(),
        (None, true) => "the value before it has no keys: shorten the path".to_owned(),
    };
    ToolError::not_found(Layer::Actor, codes::UNKNOWN_SCHEMA_PATH, "key", step)
        .next(next)
        .detail("path", path)
        .detail("supported_keys", json!(keys))
}
