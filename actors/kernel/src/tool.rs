//! Tool declaration: everything that any front door, document or check needs to know about a tool,
//! stated once; and views, the tools that one attachment may call and is listed.

use std::{borrow::Cow, collections::BTreeSet};

use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Effect of a tool on the world; the source of MCP's annotations.
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

/// Harm that a call can do; policies act on it.
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

/// Audience that is shown the tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Every client.
    #[default]
    User,
    /// Agents of the system itself: the users of `policy.system_users`, and operators.
    System,
    /// Operators only.
    Operator,
}

/// Sessions that may call a tool of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Only the session that owns the actor.
    Owner,
    /// Every session. An actor that serves all of them judges each request itself.
    Any,
}

/// Token bucket that a call draws from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateClass {
    /// Makes machines.
    Create,
    /// Runs commands.
    Exec,
    /// Reads, searches or changes files.
    File,
    /// Everything else.
    Default,
}

/// Rule by which the registry finds the actor for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addressing {
    /// The actor of this name serves every call.
    Singleton(&'static str),
    /// The actor of this kind named by an input field.
    Field {
        /// Kind of actor, as directories are registered.
        kind: &'static str,
        /// Input field with the entity's id or name.
        field: &'static str,
    },
}

/// Declaration of a tool, apart from its types.
#[derive(Debug, Clone, Copy)]
pub struct ToolSpec {
    /// Name on the wire.
    pub name: &'static str,
    /// Title for people.
    pub title: &'static str,
    /// Group under which the tool is listed and documented.
    pub family: &'static str,
    /// Source that it comes from, as the operator named it; `None` for the daemon's own.
    pub source: Option<&'static str>,
    /// Effect on the world.
    pub effect: Effect,
    /// False if calls of it at one target are made one after another, and beside no other such call.
    pub concurrency_safe: bool,
    /// True if the tool reaches beyond the daemon and its guests' own state.
    pub open_world: bool,
    /// Harm that a call can do.
    pub risk: Risk,
    /// Audience that is shown the tool.
    pub tier: Tier,
    /// Sessions that may call it; checked before its handler runs.
    pub access: Access,
    /// Bucket that a call draws from.
    pub rate: RateClass,
    /// Bucket that the input of a call decides, in place of `rate`.
    pub rate_of: fn(&serde_json::Value) -> Option<RateClass>,
    /// Actor that serves it.
    pub addressing: Addressing,
    /// Time limit of a call whose input names none.
    pub timeout_secs: u64,
    /// Time limit that a call's input asks for, if any. A margin for the answer is added.
    pub limit_secs: fn(&serde_json::Value) -> Option<u64>,
    /// Maximum size of a result, in bytes of JSON, that reaches a client whole.
    pub result_budget_bytes: usize,
    /// Number of extra tokens that a call takes, from its input (a call for five workspaces takes
    /// five).
    pub weight: fn(&serde_json::Value) -> u32,
    /// Tool that tells what became of a call whose answer was lost.
    pub told_by: Option<&'static str>,
    /// Blocks of content, as MCP has them, of a result that is more than JSON: an image, say. Clients get
    /// them beside the result; `None` shows it as text.
    pub content: fn(&serde_json::Value) -> Option<Vec<serde_json::Value>>,
}

impl ToolSpec {
    /// Bucket that a call draws from.
    pub fn class(&self, input: &serde_json::Value) -> RateClass {
        (self.rate_of)(input).unwrap_or(self.rate)
    }
}

/// Input type of a tool. Implemented by [`tools!`](crate::tools).
pub trait Tool: DeserializeOwned + JsonSchema + Send + 'static {
    /// Declaration of the tool.
    const SPEC: ToolSpec;
    /// Type of a successful result; an object at the root.
    type Output: Serialize + JsonSchema + Send + 'static;
}

/// Row of the catalogue: data only, no actor type.
#[derive(Debug, Clone, Copy)]
pub struct ToolInfo {
    /// Declaration of the tool.
    pub spec: ToolSpec,
    /// JSON Schema 2020-12 of the input, with the description at its root.
    pub input: fn() -> Schema,
    /// JSON Schema 2020-12 of the output.
    pub output: fn() -> Schema,
}

impl ToolInfo {
    /// Makes the row of a tool.
    pub const fn of<T: Tool>() -> Self {
        Self { spec: T::SPEC, input: schema::<T>, output: output_schema::<T::Output> }
    }

    /// Documentation of the input type.
    pub fn description(&self) -> String {
        let schema = (self.input)();
        schema.get("description").and_then(|text| text.as_str()).unwrap_or_default().to_owned()
    }
}

fn schema<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>()
}

/// Schema of what is written, not of what could be read: a field that may be left out is not
/// required. Clients check results against this.
fn output_schema<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<T>()
}

/// Default of [`ToolSpec::limit_secs`]: the input's field `timeout_secs` limits the whole call.
pub fn own_timeout(input: &serde_json::Value) -> Option<u64> {
    input.get("timeout_secs")?.as_u64()
}

/// Default of [`ToolSpec::rate_of`]: every call draws from the tool's own bucket.
pub fn rate_as_declared(_: &serde_json::Value) -> Option<RateClass> {
    None
}

/// Default of [`ToolSpec::content`]: the result is JSON and nothing else.
pub fn plain_result(_: &serde_json::Value) -> Option<Vec<serde_json::Value>> {
    None
}

/// Default of [`ToolSpec::weight`]: a call takes one token.
pub fn one_token(_: &serde_json::Value) -> u32 {
    1
}

/// The form of dotted names in listings. Calls may use either.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NameStyle {
    /// Names as they are declared.
    #[default]
    AsDeclared,
    /// With dots, where the declaration has them.
    Dotted,
    /// Without dots, for clients that refuse them.
    Underscored,
}

/// A listing that begins small and grows by what the session loads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SmallListing {
    /// Names of the tools that it begins with.
    pub tools: Vec<&'static str>,
    /// Families that it begins with.
    pub toolsets: Vec<String>,
}

/// The tools that one attachment may call. Enforced at every call, not only in listings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolView {
    /// Families that may be called; all when `None`. Case, spaces, `-` and `_` do not matter.
    pub toolsets: Option<Vec<String>>,
    /// The form of names in listings.
    pub names: NameStyle,
    /// True when listings have output schemas.
    pub output_schemas: bool,
    /// The highest tier that may be called.
    pub tier: Tier,
    /// Tools that listings begin with; every tool that may be called when `None`. A tool that is not
    /// listed can be called all the same.
    pub listing: Option<SmallListing>,
}

impl Default for ToolView {
    fn default() -> Self {
        Self {
            toolsets: None,
            names: NameStyle::AsDeclared,
            output_schemas: false,
            tier: Tier::User,
            listing: None,
        }
    }
}

impl ToolView {
    /// Everything there is.
    pub fn operator() -> Self {
        Self { tier: Tier::Operator, ..Self::default() }
    }

    /// True when the tool may be called.
    pub fn shows(&self, spec: &ToolSpec) -> bool {
        self.reaches(spec.tier) && self.has_family(spec.family)
    }

    /// True when the tool is listed to a session that has loaded these families.
    pub fn lists(&self, spec: &ToolSpec, loaded: &BTreeSet<String>) -> bool {
        let begins = |small: &SmallListing| {
            small.tools.contains(&spec.name)
                || small.toolsets.iter().any(|toolset| same_family(toolset, spec.family))
                || loaded.contains(spec.family)
        };
        self.shows(spec) && self.listing.as_ref().is_none_or(begins)
    }

    /// True when a tier is within the view's.
    pub fn reaches(&self, tier: Tier) -> bool {
        match tier {
            // The policy decides which users are of the system.
            Tier::User | Tier::System => true,
            Tier::Operator => self.tier == Tier::Operator,
        }
    }

    /// True when a family is within the view's toolsets.
    pub fn has_family(&self, family: &str) -> bool {
        match &self.toolsets {
            None => true,
            Some(toolsets) => toolsets.iter().any(|toolset| same_family(toolset, family)),
        }
    }

    /// The name a tool is listed by.
    pub fn name(&self, spec: &ToolSpec) -> Cow<'static, str> {
        match self.names {
            NameStyle::Underscored if spec.name.contains('.') => spec.name.replace('.', "_").into(),
            _ => spec.name.into(),
        }
    }
}

/// True when two texts name one family: case, spaces, `-` and `_` do not matter.
pub fn same_family(a: &str, b: &str) -> bool {
    let plain = |text: &str| -> String {
        let text = text.trim().to_lowercase();
        text.chars().map(|c| if c == '-' || c == '_' { ' ' } else { c }).collect()
    };
    a == b || plain(a) == plain(b)
}
