//! Check of a text: syntax, schema and rules in one pass, which tells each problem with its place.

use hivekeep_kernel::ports::ManifestProblem;
use serde::de::DeserializeOwned;

use crate::agent::{self, AgentManifest};
use crate::dag::{self, DagManifest};
use crate::path::{ManifestPath, at};
use crate::workflow::{self, WorkflowManifest};
use crate::yaml::{self, TextPosition, YamlNode};
use crate::{misfit, schema};

/// Problems told of one text; more are not looked for.
pub const MAX_PROBLEMS: usize = 20;

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

/// Problems of one document.
pub(crate) struct ProblemList<'d> {
    document: &'d YamlNode,
    found: Vec<(TextPosition, ManifestProblem)>,
}

impl<'d> ProblemList<'d> {
    fn of(document: &'d YamlNode) -> Self {
        Self { document, found: Vec::new() }
    }

    /// Adds a problem of the value at a path.
    pub(crate) fn add(&mut self, path: &ManifestPath, message: impl Into<String>) {
        self.put(self.document.place(&path.0, false), path, message.into());
    }

    /// Adds a problem of the key at a path.
    pub(crate) fn add_key(&mut self, path: &ManifestPath, message: impl Into<String>) {
        self.put(self.document.place(&path.0, true), path, message.into());
    }

    pub(crate) fn is_full(&self) -> bool {
        self.found.len() >= MAX_PROBLEMS
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    fn put(&mut self, at: TextPosition, path: &ManifestPath, message: String) {
        let told = problem(at, path, message);
        if !self.is_full() && !self.found.iter().any(|(_, known)| *known == told) {
            self.found.push((at, told));
        }
    }
}

fn problem(at: TextPosition, path: &ManifestPath, message: String) -> ManifestProblem {
    let TextPosition { line, column } = at;
    ManifestProblem { line, column, path: path.to_string(), message }
}

/// Problems of a text in its order, at most [`MAX_PROBLEMS`]; none if it is valid.
pub fn check(kind: ManifestKind, text: &str) -> Vec<ManifestProblem> {
    let documents = match yaml::read(text) {
        Ok(documents) => documents,
        Err((at, message)) => return vec![problem(at, &at![], message)],
    };
    let Some(main) = documents.first() else {
        return vec![problem(TextPosition::START, &at![], "the text holds no document".to_owned())];
    };
    let mut found = match kind {
        ManifestKind::Agent => single::<AgentManifest>(kind, &documents, agent::check),
        ManifestKind::Workflow => single::<WorkflowManifest>(kind, &documents, workflow::check),
        ManifestKind::Dag => dags(main, &documents[1..]),
    };
    found.sort_by_key(|(at, _)| *at);
    found.truncate(MAX_PROBLEMS);
    found.into_iter().map(|(_, problem)| problem).collect()
}

type Found = Vec<(TextPosition, ManifestProblem)>;

fn single<T: DeserializeOwned>(
    kind: ManifestKind,
    documents: &[YamlNode],
    rules: fn(&T, &mut ProblemList<'_>),
) -> Found {
    let (document, further) = (&documents[0], documents.get(1));
    let mut problems = ProblemList::of(document);
    if let Some(manifest) = typed(kind, document, &mut problems) {
        rules(&manifest, &mut problems);
    }
    if let Some(further) = further {
        let message = format!("a text holds one {}, and another document begins here", kind.name());
        problems.put(further.at, &at![], message);
    }
    problems.found
}

fn dags(main: &YamlNode, further: &[YamlNode]) -> Found {
    let mut found = Vec::new();
    let mut names = Vec::new();
    for (index, document) in [main].into_iter().chain(further).enumerate() {
        let mut problems = ProblemList::of(document);
        if let Some(dag) = typed::<DagManifest>(ManifestKind::Dag, document, &mut problems) {
            dag::check(&dag, &mut problems);
            match &dag.name {
                None if index > 0 => {
                    problems.add(&at![], "a further document needs a `name` that steps call it by");
                }
                Some(name) if names.contains(name) => {
                    let message = format!("another document of this text is named `{name}`");
                    problems.add(&at!["name"], message);
                }
                _ => names.extend(dag.name),
            }
        }
        found.extend(problems.found);
        if found.len() >= MAX_PROBLEMS {
            break;
        }
    }
    found
}

/// Document as its type, if its schema holds.
fn typed<T: DeserializeOwned>(
    kind: ManifestKind,
    document: &YamlNode,
    problems: &mut ProblemList<'_>,
) -> Option<T> {
    let value = document.to_value();
    let compiled = schema::compiled(kind);
    for error in compiled.validator.iter_errors(&value) {
        misfit::tell(&error, &compiled.schema, problems);
        if problems.is_full() {
            break;
        }
    }
    if !problems.is_empty() {
        return None;
    }
    let manifest = serde_json::from_value(value);
    manifest.map_err(|error| problems.add(&at![], error.to_string())).ok()
}
