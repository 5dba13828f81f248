//! JSON Schemas of the manifests, made of their types.

use std::sync::LazyLock;

use jsonschema::{Draft, Validator};
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::agent::AgentManifest;
use crate::dag::DagManifest;
use crate::kind::ManifestKind;
use crate::workflow::WorkflowManifest;

/// Schema with its validator.
pub(crate) struct CompiledSchema {
    pub(crate) schema: Value,
    pub(crate) validator: Validator,
}

static AGENT: LazyLock<CompiledSchema> = LazyLock::new(compile::<AgentManifest>);
static WORKFLOW: LazyLock<CompiledSchema> = LazyLock::new(compile::<WorkflowManifest>);
static DAG: LazyLock<CompiledSchema> = LazyLock::new(compile::<DagManifest>);

/// JSON Schema 2020-12 of a manifest. The same at every call.
pub fn schema(kind: ManifestKind) -> &'static Value {
    &compiled(kind).schema
}

pub(crate) fn compiled(kind: ManifestKind) -> &'static CompiledSchema {
    match kind {
        ManifestKind::Agent => &AGENT,
        ManifestKind::Workflow => &WORKFLOW,
        ManifestKind::Dag => &DAG,
    }
}

fn compile<T: schemars::JsonSchema>() -> CompiledSchema {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let schema = generator.into_root_schema_for::<T>().to_value();
    // A test makes them; a program with a broken one is never built.
    let validator = jsonschema::options().with_draft(Draft::Draft202012).build(&schema);
    CompiledSchema { validator: validator.expect("the schema of a type is valid"), schema }
}
