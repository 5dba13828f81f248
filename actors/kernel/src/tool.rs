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
    /// True if it obeys [`EffectKey`](crate::EffectKey): its effect can be had once, and asked for.
    pub keyed: bool,
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const TOOL: ToolSpec = ToolSpec {
        name: "fs.read",
        title: "Read",
        family: "Host files",
        source: None,
        effect: Effect::Read,
        concurrency_safe: true,
        open_world: false,
        risk: Risk::Low,
        tier: Tier::User,
        access: Access::Any,
        rate: RateClass::File,
        rate_of: |input| input["heavy"].as_bool()?.then_some(RateClass::Exec),
        addressing: Addressing::Singleton("files"),
        timeout_secs: 60,
        limit_secs: own_timeout,
        result_budget_bytes: 1,
        weight: one_token,
        told_by: None,
        keyed: false,
        content: plain_result,
    };

    #[test]
    fn a_view_has_the_tools_of_its_tier_and_toolsets() {
        let of = |toolset: &str| ToolView {
            toolsets: Some(vec!["other".to_owned(), toolset.to_owned()]),
            ..ToolView::default()
        };
        for toolset in ["Host files", "host-files", " HOST_FILES "] {
            assert!(of(toolset).shows(&TOOL), "{toolset}");
        }
        assert!(!of("hostfiles").shows(&TOOL) && !of("").shows(&TOOL));
        for (tier, user) in [(Tier::User, true), (Tier::System, true), (Tier::Operator, false)] {
            let tool = ToolSpec { tier, ..TOOL };
            assert_eq!(ToolView::default().shows(&tool), user, "{tier:?}");
            assert!(ToolView::operator().shows(&tool), "{tier:?}");
        }
    }

    #[test]
    fn a_small_listing_begins_with_what_it_names_and_has_what_was_loaded() {
        let lists = |tools: Vec<&'static str>, toolsets: &[&str], loaded: &[&str]| {
            let toolsets = toolsets.iter().map(|it| (*it).to_owned()).collect();
            let listing = Some(SmallListing { tools, toolsets });
            let loaded = loaded.iter().map(|it| (*it).to_owned()).collect();
            let lists = |tier| ToolView { listing: listing.clone(), tier, ..ToolView::default() };
            assert!(!lists(Tier::User).lists(&ToolSpec { tier: Tier::Operator, ..TOOL }, &loaded));
            lists(Tier::User).lists(&TOOL, &loaded)
        };
        assert!(lists(vec!["fs.read"], &[], &[]));
        assert!(lists(vec![], &["host_files"], &[]));
        assert!(lists(vec![], &[], &["Host files"]));
        assert!(!lists(vec!["fs.write"], &["files"], &["other"]));
        assert!(ToolView::default().lists(&TOOL, &BTreeSet::new()), "all without a small one");
    }

    #[test]
    fn names_are_in_the_form_of_the_view() {
        let name = |names, name| {
            let view = ToolView { names, ..ToolView::default() };
            view.name(&ToolSpec { name, ..TOOL })
        };
        assert_eq!(name(NameStyle::Underscored, "fs.read"), "fs_read");
        assert_eq!(name(NameStyle::Underscored, "exec"), "exec");
        assert_eq!(name(NameStyle::AsDeclared, "fs.read"), "fs.read");
        assert_eq!(name(NameStyle::Dotted, "fs.read"), "fs.read");
    }

    #[test]
    fn an_input_may_say_its_class_and_its_limit() {
        assert_eq!(TOOL.class(&serde_json::json!({ "heavy": true })), RateClass::Exec);
        assert_eq!(TOOL.class(&serde_json::json!({ "heavy": false })), RateClass::File);
        let plain = ToolSpec { rate_of: rate_as_declared, ..TOOL };
        assert_eq!(plain.class(&serde_json::json!({ "heavy": true })), RateClass::File);
        assert_eq!(own_timeout(&serde_json::json!({ "timeout_secs": 7 })), Some(7));
        assert_eq!(own_timeout(&serde_json::json!({ "timeout_secs": "7" })), None);
        assert_eq!((one_token(&().into()), plain_result(&().into())), (1, None));
    }

    /// Adds up.
    #[derive(Deserialize, JsonSchema)]
    struct Sum {
        #[serde(default, rename = "first")]
        _first: u32,
    }

    impl Tool for Sum {
        type Output = u32;
        const SPEC: ToolSpec = TOOL;
    }

    #[test]
    fn a_tool_is_described_by_its_types() {
        let info = ToolInfo::of::<Sum>();
        assert_eq!(info.description(), "Adds up.");
        assert_eq!((info.input)().as_value()["properties"]["first"]["type"], "integer");
        assert_eq!((info.output)().as_value()["type"], "integer");
    }
}
