//! Blackboard of a run: what its states share.

use hivekeep_manifest::{
    common::JsonObject,
    workflow::{RESERVED_KEYS, WorkflowManifest, WorkflowState},
};
use serde_json::{Value, json};

use super::output::{StateOutput, StateResult};

/// Most bytes of the values of a blackboard.
pub const MAX_BLACKBOARD_BYTES: usize = 8 * 1024 * 1024;
/// Most keys of a blackboard.
pub const MAX_BLACKBOARD_KEYS: usize = 500;
/// Keys that are set at the start, whatever states set.
const TENANT: &str = "tenant_id";
const WORKFLOW: &str = "workflow";

/// Values that a run begins with.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MachineStart {
    /// Id of the run.
    pub execution_id: String,
    /// Tenant of whoever starts it.
    pub tenant_id: Option<String>,
    /// Input, null if there is none.
    pub input: Value,
    /// Intent in words.
    pub intent: Option<String>,
    /// Keys of the blackboard in place of the context's, and beside them.
    pub blackboard: JsonObject,
}

/// Values that the states of a run share, by key.
#[derive(Debug, Clone, PartialEq)]
pub struct Blackboard {
    /// An object.
    values: Value,
    bytes: usize,
    input: Value,
    intent: Option<String>,
    /// Answer of a person that was given last.
    human: Option<Value>,
}

impl Blackboard {
    /// Blackboard at the beginning of a run.
    ///
    /// # Errors
    /// In words: a key that nobody may set, or more than fits.
    pub fn new(manifest: &WorkflowManifest, start: MachineStart) -> Result<Self, String> {
        let MachineStart { execution_id, tenant_id, input, intent, blackboard } = start;
        let (metadata, spec) = (&manifest.metadata, &manifest.spec);
        let context = spec.context.clone().unwrap_or_default();
        let mut workflow = match &input {
            Value::Object(input) => input.clone(),
            _ => JsonObject::new(),
        };
        for (key, value) in [
            ("name", json!(metadata.name)),
            ("version", json!(metadata.version)),
            ("execution_id", json!(execution_id)),
            ("context", Value::Object(context.clone())),
        ] {
            workflow.insert(key.to_owned(), value);
        }
        let values = Value::Object(JsonObject::new());
        let bytes = size(&input);
        let mut made = Self { values, bytes, input, intent, human: None };
        for (key, value) in context {
            made.put(&key, value)?;
        }
        for (key, value) in blackboard {
            if spec.states.contains_key(&key) {
                return Err(format!("`{key:.80}` is a state, and its output stands there"));
            }
            made.set(&key, value)?;
        }
        made.put(TENANT, json!(tenant_id))?;
        made.put(WORKFLOW, Value::Object(workflow))?;
        Ok(made)
    }

    /// Sets a key for a state.
    ///
    /// # Errors
    /// In words: a key that nobody may set, or more than fits.
    pub fn set(&mut self, key: &str, value: Value) -> Result<(), String> {
        if RESERVED_KEYS.contains(&key) {
            return Err(format!("`{key}` is a name of the run: choose another key"));
        }
        self.put(key, value)
    }

    /// Puts the output of a state in its place, and what the state sets beside it.
    ///
    /// # Errors
    /// In words: a key that nobody may set, or more than fits.
    pub fn put_output(
        &mut self,
        name: &str,
        state: &WorkflowState,
        output: &StateOutput,
    ) -> Result<(), String> {
        let value = output.to_value();
        if let WorkflowState::Subworkflow { result_key: Some(key), .. } = state {
            self.set(key, value["output"].clone())?;
        }
        match &output.result {
            StateResult::Human { response, .. } => {
                self.human = Some(json!({ "response": response, "feedback": response }));
            }
            StateResult::Update { values } => {
                for (key, value) in values {
                    self.set(key, value.clone())?;
                }
            }
            _ => {}
        }
        self.put(name, value)
    }

    fn put(&mut self, key: &str, value: Value) -> Result<(), String> {
        let Value::Object(values) = &mut self.values else { return Ok(()) };
        let before = values.get(key).map_or(0, |value| key.len() + size(value));
        let bytes = self.bytes - before + key.len() + size(&value);
        if bytes > MAX_BLACKBOARD_BYTES {
            return Err(format!(
                "with `{key:.80}` the blackboard has {bytes} bytes; {MAX_BLACKBOARD_BYTES} are \
                allowed"
            ));
        }
        if before == 0 && values.len() >= MAX_BLACKBOARD_KEYS {
            return Err(format!("more than {MAX_BLACKBOARD_KEYS} keys are on the blackboard"));
        }
        values.insert(key.to_owned(), value);
        self.bytes = bytes;
        Ok(())
    }

    /// Values by key, an object.
    pub fn values(&self) -> &Value {
        &self.values
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.values.as_object().into_iter().flatten()
    }

    pub(super) fn input(&self) -> &Value {
        &self.input
    }

    pub(super) fn intent(&self) -> &str {
        self.intent.as_deref().unwrap_or_default()
    }

    pub(super) fn human(&self) -> Option<&Value> {
        self.human.as_ref()
    }
}

/// Bytes of a value in memory, about.
fn size(value: &Value) -> usize {
    const EACH: usize = 16;
    EACH + match value {
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(size).sum(),
        Value::Object(object) => object.iter().map(|(key, value)| key.len() + size(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}
