//! Parameters that models spell in different ways are the same input to every tool.

use hivekeep_config::families::catalogue;
use hivekeep_registry::ToolEntry;
use serde_json::{Map, Value, json};

/// Levels of objects within objects in an input.
const DEPTH: usize = 5;

/// How the parameters of an input are written.
#[derive(Clone, Copy, PartialEq)]
enum Spelled {
    Integers,
    Floats,
    /// Without the optional parameters of this depth.
    Without(usize),
    /// With null for the optional parameters of this depth.
    Null(usize),
}

struct Sample<'t> {
    entry: &'t ToolEntry,
    spelled: Spelled,
    /// Number of the alternative that is taken.
    nth: usize,
}

impl<'t> Sample<'t> {
    /// An input with every parameter, at every depth.
    fn of(entry: &'t ToolEntry, spelled: Spelled, nth: usize) -> Map<String, Value> {
        let sample = Sample { entry, spelled, nth };
        let Value::Object(args) = sample.value(&entry.input_schema, 0) else { panic!("an object") };
        args
    }

    fn plain(&self, mut schema: &'t Value) -> &'t Value {
        loop {
            let alternatives = ["anyOf", "oneOf"].iter().find_map(|key| schema[*key].as_array());
            schema = match (schema["$ref"].as_str(), alternatives) {
                (Some(to), _) => {
                    let root = &self.entry.input_schema;
                    root.pointer(to.trim_start_matches('#')).expect("it leads somewhere")
                }
                (None, Some(all)) => {
                    let all: Vec<_> = all.iter().filter(|one| one["type"] != "null").collect();
                    all[self.nth % all.len()]
                }
                (None, None) => return schema,
            };
        }
    }

    fn value(&self, schema: &'t Value, depth: usize) -> Value {
        let schema = self.plain(schema);
        if let Some(only) = schema.get("const") {
            return only.clone();
        }
        if let Some(all) = schema["enum"].as_array() {
            return all[self.nth % all.len()].clone();
        }
        let kind = schema["type"].as_array().map_or(&schema["type"], |kinds| &kinds[0]);
        match kind.as_str().unwrap_or_default() {
            "integer" => {
                let number = schema["minimum"].as_i64().unwrap_or(1).max(1);
                if self.spelled == Spelled::Floats { json!(number as f64) } else { json!(number) }
            }
            "number" => json!(1.5),
            "boolean" => json!(true),
            "array" => json!([self.value(&schema["items"], depth)]),
            "object" => self.object(schema, depth),
            _ => json!("x"),
        }
    }

    fn object(&self, schema: &'t Value, depth: usize) -> Value {
        let required = schema["required"].as_array();
        let mut made = Map::new();
        for (name, of) in schema["properties"].as_object().into_iter().flatten() {
            let optional = !required.is_some_and(|all| all.iter().any(|one| one == name));
            // Null is a value of its own for a field that may be anything.
            let free = ["type", "$ref", "anyOf", "oneOf", "enum", "const"]
                .iter()
                .all(|key| of.get(key).is_none());
            let value = match self.spelled {
                _ if optional && depth == DEPTH => continue,
                Spelled::Without(at) if optional && at == depth => continue,
                Spelled::Null(at) if optional && at == depth && free => continue,
                Spelled::Null(at) if optional && at == depth => Value::Null,
                _ => self.value(of, depth + 1),
            };
            made.insert(name.clone(), value);
        }
        if let Some(of) = schema.get("additionalProperties").filter(|of| of.is_object()) {
            made.insert("k".to_owned(), self.value(of, depth + 1));
        }
        made.into()
    }
}

#[test]
fn a_float_that_is_whole_is_the_integer_of_every_tool() {
    let mut floats = 0;
    for entry in catalogue().entries() {
        for nth in 0..8 {
            let is = Sample::of(entry, Spelled::Integers, nth);
            let mut written = Sample::of(entry, Spelled::Floats, nth);
            floats += usize::from(written != is);
            entry.respell(&mut written);
            assert_eq!(written, is, "{}", entry.name());
        }
    }
    assert!(floats > 400, "{floats}");
}

#[test]
fn null_for_what_is_optional_is_taken_as_if_it_was_absent_by_every_tool() {
    let mut nulls = 0;
    for entry in catalogue().entries() {
        for (nth, depth) in (0..8).flat_map(|nth| (0..DEPTH).map(move |depth| (nth, depth))) {
            let judged = |args: Map<String, Value>| {
                let judged = entry.check(&args.into());
                judged.map_err(|error| error.details["violations"].to_string())
            };
            let without = Sample::of(entry, Spelled::Without(depth), nth);
            let mut null = Sample::of(entry, Spelled::Null(depth), nth);
            nulls += usize::from(null != without);
            entry.respell(&mut null);
            assert_eq!(judged(null), judged(without), "{}, depth {depth}", entry.name());
        }
    }
    assert!(nulls > 400, "{nulls}");
}
