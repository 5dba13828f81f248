//! Kinds of manifests with their names.

/// Kind of a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManifestKind {
    /// Agent, `agent/manifest/v1`.
    Agent,
    /// Workflow, `workflow/manifest/v1`.
    Workflow,
    /// DAG; its text may hold further documents, which are DAGs that its steps call.
    Dag,
}

impl ManifestKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Agent, Self::Workflow, Self::Dag];

    /// Name, as tools take it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Workflow => "workflow",
            Self::Dag => "dag",
        }
    }

    /// Key of its schema.
    pub fn schema_key(self) -> &'static str {
        match self {
            Self::Agent => "agent/manifest/v1",
            Self::Workflow => "workflow/manifest/v1",
            Self::Dag => "dag",
        }
    }

    /// Kind of a name or of a schema's key.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name || kind.schema_key() == name)
    }
}
