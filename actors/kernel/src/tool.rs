//! The declaration of a tool: everything that any front door, document or check
//! needs to know, stated once.

use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// What a tool does to the world; the source of MCP's annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Changes nothing.
    Read,
    /// Changes something; repeating it changes it again.
    Write,
    /// Changes something; repeating it changes nothing more.
    Idempotent,
    /// May destroy what was there.
    Destroy,
}

/// How much harm a call can do; what policies act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// None beyond the caller's own workspace.
    Low,
    /// Touches the host or takes its resources.
    Medium,
    /// Destroys data or takes over another's things.
    High,
}

/// Who may be shown the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Every client.
    User,
    /// Operators only.
    Operator,
}

/// Which sessions may call a tool of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// The one that owns the actor.
    Owner,
    /// Every one. Whoever serves all judges by what is asked for.
    Any,
}

/// The token bucket a call draws from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateClass {
    /// Makes machines.
    Create,
    /// Runs commands.
    Exec,
    /// Everything else.
    Default,
}

/// How the registry finds the actor for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addressing {
    /// One actor serves every call.
    Singleton(&'static str),
    /// The actor of this kind named by an input field.
    Field {
        /// Kind of actor, as directories are registered.
        kind: &'static str,
        /// Input field with the entity's id or name.
        field: &'static str,
    },
}

/// What is declared of a tool beside its types.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// Name on the wire.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// Group of tools it is listed and documented with.
    pub family: &'static str,
    /// What it does to the world.
    pub effect: Effect,
    /// Whether it reaches beyond the daemon and its guests' own state.
    pub open_world: bool,
    /// How much harm a call can do.
    pub risk: Risk,
    /// Who may see it.
    pub tier: Tier,
    /// Which sessions may call it; judged before its handler runs.
    pub access: Access,
    /// The bucket it draws from.
    pub rate: RateClass,
    /// The bucket of a call whose input decides that, in place of `rate`.
    pub rate_of: fn(&serde_json::Value) -> Option<RateClass>,
    /// Which actor serves it.
    pub addressing: Addressing,
    /// A call's time limit when its input names none.
    pub timeout_secs: u64,
    /// The time that a call's input asks for, if it does. A margin for the answer is added.
    pub limit_secs: fn(&serde_json::Value) -> Option<u64>,
    /// Largest result in bytes of JSON that reaches a client whole.
    pub result_budget_bytes: usize,
    /// Extra tokens a call takes, from its input (a call for five workspaces takes five).
    pub weight: fn(&serde_json::Value) -> u32,
}

impl Spec {
    /// The bucket that a call draws from.
    pub fn class(&self, input: &serde_json::Value) -> RateClass {
        (self.rate_of)(input).unwrap_or(self.rate)
    }
}

/// An input type that is a tool. Implemented by [`tools!`](crate::tools).
pub trait Tool: DeserializeOwned + JsonSchema + Send + 'static {
    /// The declaration.
    const SPEC: Spec;
    /// What a success looks like; an object at the root.
    type Output: Serialize + JsonSchema + Send + 'static;
}

/// One row of the catalogue: data only, no actor type.
#[derive(Debug, Clone, Copy)]
pub struct ToolInfo {
    /// The declaration.
    pub spec: Spec,
    /// JSON Schema 2020-12 of the input, with the description at its root.
    pub input: fn() -> Schema,
    /// JSON Schema 2020-12 of the output.
    pub output: fn() -> Schema,
}

impl ToolInfo {
    /// The row of a tool.
    pub const fn of<T: Tool>() -> Self {
        Self { spec: T::SPEC, input: schema::<T>, output: output_schema::<T::Output> }
    }

    /// The input type's documentation.
    pub fn description(&self) -> String {
        let schema = (self.input)();
        schema.get("description").and_then(|text| text.as_str()).unwrap_or_default().to_owned()
    }
}

fn schema<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>()
}

/// Says what is written, not what could be read: a field that may be left out is
/// not required. Clients check results against this.
fn output_schema<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<T>()
}

/// The input's field `timeout_secs` is the limit of the whole call.
pub fn own_timeout(input: &serde_json::Value) -> Option<u64> {
    input.get("timeout_secs")?.as_u64()
}

/// Every call draws from the tool's own bucket.
pub fn rate_as_declared(_: &serde_json::Value) -> Option<RateClass> {
    None
}

/// A call takes one token.
pub fn one_token(_: &serde_json::Value) -> u32 {
    1
}
