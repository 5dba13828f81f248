//! Tool declarations of introspection.

pub(crate) mod events;

use hivekeep_kernel::tools;
use hivekeep_ports::{ManifestProblem, NetworkMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::service::IntrospectionService;

/// Get the JSON Schema of a manifest, of the configuration or of a tool's input or output, whole. To look
/// up a part of it use read_schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SchemaGet {
    /// `agent/manifest/v1`, `workflow/manifest/v1`, `dag`, `config`, `tool/NAME/input` or
    /// `tool/NAME/output`.
    #[schemars(length(min = 1, max = 200))]
    pub(crate) key: String,
}

/// JSON Schema 2020-12.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct SchemaDocument(pub(crate) Map<String, Value>);

/// Check a manifest's YAML before it is used: syntax, schema and rules, with the place of each problem.
/// A manifest that is not valid is an answer, not an error. That it is valid does not say that it runs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SchemaValidate {
    /// `agent`, `workflow` or `dag`.
    #[schemars(length(min = 1, max = 200))]
    pub(crate) kind: String,
    /// The whole text.
    #[schemars(length(max = hivekeep_manifest::MAX_TEXT_BYTES))]
    pub(crate) manifest_yaml: String,
}

/// Validity of a manifest, with its problems.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SchemaValidated {
    /// True if nothing is wrong with the text.
    pub(crate) valid: bool,
    /// Problems as texts with their places, at most 20; null for a valid one.
    pub(crate) errors: Option<Vec<String>>,
    /// The same, in parts.
    pub(crate) problems: Vec<ManifestProblem>,
}

/// Look up the keys of a schema at a path: types, what is required, defaults and descriptions. Use it to
/// write a DAG, a manifest or a tool call.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadSchema {
    /// `dag`, `agent/manifest/v1`, `workflow/manifest/v1`, `config`, `tool/NAME/input` or
    /// `tool/NAME/output`.
    #[schemars(length(min = 1, max = 200))]
    pub(crate) schema: String,
    /// Keys from the root, joined by dots: `steps.container`. Lists and mappings by name are passed
    /// through. Default: the root.
    #[schemars(length(max = 1000))]
    pub(crate) path: Option<String>,
}

/// A value of a schema and its keys.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SchemaNode {
    /// Schema.
    pub(crate) schema: String,
    /// Path, as it was asked.
    pub(crate) path: String,
    /// Type, with its bounds.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Description of the value, as the schema has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// Keys that it may have, in the order of the schema. Those of all alternatives, if it has some.
    pub(crate) properties: Vec<SchemaProperty>,
    /// Alternatives, in the order of the schema, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) alternatives: Vec<SchemaAlternative>,
}

/// A key.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct SchemaProperty {
    /// Name.
    pub(crate) name: String,
    /// Type, with its bounds.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// True if it has to be there; in an alternative only, where there are several.
    pub(crate) required: bool,
    /// First sentence of its description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// Default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default: Option<Value>,
}

/// Form of a value that has several.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SchemaAlternative {
    /// Type, with its bounds.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Description of the form, as the schema has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// Names of its keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) keys: Vec<String>,
}

/// List the languages and versions that a manifest's `spec.runtime` can name, and the image of each.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuntimeList {
    /// Only this language.
    #[schemars(length(max = 100))]
    pub(crate) language: Option<String>,
}

/// Runtimes of languages.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RuntimeListed {
    /// Name of the tool.
    pub(crate) tool: &'static str,
    /// By language, and by version from the oldest; none for a language that is not known.
    pub(crate) runtimes: Vec<RuntimeRow>,
    /// Languages that there are runtimes of.
    pub(crate) languages: Vec<String>,
    /// True: `spec.runtime.image` can name any image.
    pub(crate) custom_runtime_supported: bool,
}

/// Runtime of a language.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RuntimeRow {
    /// Language.
    pub(crate) language: String,
    /// Version.
    pub(crate) version: String,
    /// Reference of the image.
    pub(crate) image: String,
    /// Description of the runtime.
    pub(crate) description: String,
    /// True if new manifests should use another version.
    pub(crate) deprecated: bool,
    /// Whether the image is on this host.
    pub(crate) present: Presence,
}

/// Whether something is on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Presence {
    /// Present on this host.
    Yes,
    /// Absent from this host.
    No,
    /// The daemon cannot tell.
    Unknown,
}

/// Tell what this daemon is and can do on this host, and what is missing with the remedy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SystemInfo {}

/// A daemon and its host.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SystemFacts {
    /// Version of the daemon.
    pub(crate) version: String,
    /// `unhealthy` where something that is needed is missing, or an actor below the root is in trouble.
    pub(crate) status: SystemHealth,
    /// Seconds since the daemon's start.
    pub(crate) uptime_secs: u64,
    /// Capabilities that are present: families of tools, then parts of the host.
    pub(crate) capabilities: Vec<String>,
    /// Parts of the host that are missing or wrong, those first that are needed.
    pub(crate) missing: Vec<MissingPart>,
    /// How workspaces are connected; absent where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) network: Option<NetworkMode>,
    /// Parts of the host that are present, in detail.
    pub(crate) host: Vec<HostPart>,
    /// Families of tools.
    pub(crate) families: Vec<FamilyRow>,
    /// Actors below the root that are restarting or gave up.
    pub(crate) troubled_actors: Vec<String>,
}

/// Whether a daemon can do its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SystemHealth {
    /// The daemon can do its work.
    Healthy,
    /// Something that it needs is missing.
    Unhealthy,
}

/// Part of the host that is missing or wrong.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MissingPart {
    /// Part.
    pub(crate) name: String,
    /// True if nothing works without it; otherwise something is slower or missing.
    pub(crate) needed: bool,
    /// Problem of the part.
    pub(crate) detail: String,
    /// Remedy: what to install, set or run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

/// Part of the host.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HostPart {
    /// Part.
    pub(crate) name: String,
    /// Finding on the part, such as its version.
    pub(crate) detail: String,
}

/// Family of tools.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FamilyRow {
    /// Name.
    pub(crate) name: String,
    /// Names of its tools.
    pub(crate) tools: Vec<String>,
}

/// Show the configuration in force and where each value comes from. Secrets are never shown, and paths of
/// the host only on its command line.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SystemConfig {}

/// Configuration in force.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ConfigInForce {
    /// File that it was read from; null without one.
    pub(crate) config_path: Option<String>,
    /// Whole configuration as YAML (JSON is YAML).
    pub(crate) content_yaml: String,
    /// Keys that somebody set, with the layer that did.
    pub(crate) set: Vec<ConfigSetting>,
}

/// Key that somebody set.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ConfigSetting {
    /// Section and key, joined by dots.
    pub(crate) key: String,
    /// Value in force.
    pub(crate) value: Value,
    /// Layer that set it.
    pub(crate) source: String,
}

tools! { pub(crate) SCHEMA: "schema" for service IntrospectionService, singleton introspection;
    schema_get: SchemaGet => SchemaDocument = IntrospectionService::schema_get {
        name: "aegis.schema.get", title: "Get a schema", effect: Read,
    };
    schema_validate: SchemaValidate => SchemaValidated = IntrospectionService::schema_validate {
        name: "aegis.schema.validate", title: "Check a manifest", effect: Read,
    };
    read_schema: ReadSchema => SchemaNode = IntrospectionService::read_schema {
        title: "Look up a schema", effect: Read,
    };
}

tools! { pub(crate) RUNTIME: "runtime" for service IntrospectionService, singleton introspection;
    runtime_list: RuntimeList => RuntimeListed = IntrospectionService::runtime_list {
        name: "aegis.runtime.list", title: "List language runtimes", effect: Read,
    };
}

tools! { pub(crate) SYSTEM: "system" for service IntrospectionService, singleton introspection;
    system_info: SystemInfo => SystemFacts = IntrospectionService::system_info {
        name: "aegis.system.info", title: "Tell what the daemon can do", effect: Read,
    };
    system_config: SystemConfig => ConfigInForce = IntrospectionService::system_config {
        name: "aegis.system.config", title: "Show the configuration", effect: Read,
    };
}
