//! Schemas by their keys, and what is told of a key that there is not.

use std::{borrow::Cow, sync::Arc};

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_manifest::{ManifestKind, schema};
use hivekeep_runtime::introspection::{Introspection, ToolSchemas};
use serde_json::{Value, json};

use crate::{codes, navigate, tools::SchemaNode};

type Answer<T> = Result<T, ToolError>;

/// Key of the configuration's schema.
const CONFIG: &str = "config";
/// Names that are suggested for a wrong one, and their least similarity (Jaro-Winkler).
const MAX_NEAREST: usize = 3;
const SIMILAR: f64 = 0.75;

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
        navigate::read(root, key, path)
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
pub(crate) fn nearest<'n>(name: &str, known: &'n [Cow<'_, str>]) -> Vec<&'n str> {
    let mut scored: Vec<_> = known
        .iter()
        .map(|known| (strsim::jaro_winkler(name, known), known.as_ref()))
        .filter(|(score, _)| *score > SIMILAR)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(MAX_NEAREST).map(|(_, known)| known).collect()
}
