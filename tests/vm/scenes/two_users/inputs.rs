//! Inputs of a tool, made of its schema.

use serde_json::{Map, Value, json};

/// What the daemon says that a tool takes.
pub struct Parameters<'t> {
    schema: &'t Value,
    pub properties: &'t Map<String, Value>,
}

impl<'t> Parameters<'t> {
    pub fn of(tool: &'t Value) -> Self {
        let schema = &tool["inputSchema"];
        Self { schema, properties: schema["properties"].as_object().expect("parameters") }
    }

    /// A schema without references and alternatives.
    fn plain(&self, mut schema: &'t Value) -> &'t Value {
        loop {
            let reference = schema["$ref"].as_str();
            let of = |key: &str| schema[key].as_array();
            let some = |all: &'t Vec<Value>| all.iter().find(|it| it["type"] != "null");
            schema = match (reference, of("anyOf").and_then(some)) {
                (Some(it), _) => self.schema.pointer(it.trim_start_matches('#')).expect("there"),
                (_, Some(one)) => one,
                (None, None) => return schema,
            };
        }
    }

    /// Something that a parameter takes.
    fn sample(&self, name: &str, schema: &'t Value) -> Value {
        let schema = self.plain(schema);
        let choice = schema["enum"].as_array().and_then(|all| all.first());
        if let Some(one) = choice.or(schema["oneOf"].get(0).map(|one| &one["const"])) {
            return one.clone();
        }
        let kinds = match &schema["type"] {
            Value::Array(kinds) => kinds.first().unwrap_or(&Value::Null),
            kind => kind,
        };
        match (kinds.as_str().unwrap_or_default(), name) {
            ("integer" | "number", _) => json!(schema["minimum"].as_u64().unwrap_or(1).max(1)),
            ("boolean", _) => json!(false),
            ("array", _) => json!([self.sample(name, &schema["items"])]),
            ("object", _) => self.required(schema),
            (_, "command") => json!("true"),
            (_, "content_base64") => json!("eA=="),
            (_, "url" | "repo_url") => json!("http://127.0.0.1:9/r.git"),
            _ => json!("x"),
        }
    }

    fn required(&self, schema: &'t Value) -> Value {
        let names = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let fields = names.map(|name| (name, self.sample(name, &schema["properties"][name])));
        fields.map(|(name, sample)| (name.to_owned(), sample)).collect::<Map<_, _>>().into()
    }

    /// Inputs with each action that there is.
    pub fn inputs(&self) -> Vec<Value> {
        let least = self.required(self.schema);
        let action = self.properties.get("action").map(|it| self.plain(it));
        let actions = action.and_then(|it| it["enum"].as_array().or(it["oneOf"].as_array()));
        let actions = actions.into_iter().flatten();
        let mut inputs: Vec<Value> = actions
            .map(|action| {
                let action = action.get("const").unwrap_or(action);
                let mut input = least.clone();
                input["action"] = action.clone();
                input
            })
            .collect();
        if inputs.is_empty() {
            inputs.push(least);
        }
        for wait in ["timeout_secs", "wait_secs"] {
            if self.properties.contains_key(wait) {
                inputs.iter_mut().for_each(|input| input[wait] = json!(1));
            }
        }
        inputs
    }
}
