//! Kinds of manifests with their JSON schemas, which are made of their types, and the check of a text:
//! syntax, schema and rules in one pass, which tells each problem with its place.

use std::{collections::HashSet, sync::LazyLock};

use hivekeep_ports::ManifestProblem;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    agent::{self, AgentManifest},
    base::DagBase,
    dag::{self, DagManifest, DagNotice},
    problems::{CompiledSchema, MAX_PROBLEMS, ProblemList, at, problem},
    workflow::{self, WorkflowManifest},
    yaml::{self, TextPosition, YamlNode},
};

/// Name of a file with defaults of the DAGs beside it.
pub const BASE_FILE: &str = "base.yaml";

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

static AGENT: LazyLock<CompiledSchema> = LazyLock::new(compile::<AgentManifest>);
static WORKFLOW: LazyLock<CompiledSchema> = LazyLock::new(compile::<WorkflowManifest>);
static DAG: LazyLock<CompiledSchema> = LazyLock::new(compile::<DagManifest>);

/// JSON Schema 2020-12 of a manifest. The same at every call.
pub fn schema(kind: ManifestKind) -> &'static Value {
    &schema_of(kind).schema
}

fn schema_of(kind: ManifestKind) -> &'static CompiledSchema {
    match kind {
        ManifestKind::Agent => &AGENT,
        ManifestKind::Workflow => &WORKFLOW,
        ManifestKind::Dag => &DAG,
    }
}

fn compile<T: JsonSchema>() -> CompiledSchema {
    let generator = SchemaSettings::draft2020_12().into_generator();
    CompiledSchema::of(generator.into_root_schema_for::<T>().to_value())
}

/// Problems of a text in its order, at most [`MAX_PROBLEMS`]; none if it is valid.
pub fn check(kind: ManifestKind, text: &str) -> Vec<ManifestProblem> {
    let found = read(text).map(|documents| match kind {
        ManifestKind::Agent => single(kind, &documents, agent::check).1,
        ManifestKind::Workflow => single(kind, &documents, workflow::check).1,
        ManifestKind::Dag => dags(&documents, None).1,
    });
    found.map_or_else(|problem| vec![problem], in_order)
}

/// Agent of a text. The tools that it names are among `tools`, with `.` and `_` as one letter.
///
/// # Errors
/// Problems, as [`check`] tells them.
pub fn read_agent(text: &str, tools: &[&str]) -> Result<AgentManifest, Vec<ManifestProblem>> {
    agent_of(text, Some(tools))
}

/// DAGs of a text, the one that is run first, with notices of references that have no value.
#[derive(Debug, Clone, PartialEq)]
pub struct DagFile {
    /// DAGs in order: those behind the first are called by their names.
    pub documents: Vec<DagManifest>,
    /// Notices in the order of the text.
    pub notices: Vec<DagNotice>,
}

/// DAGs of a text. Actions that are neither of the file nor ours are among `tools`, with `.` and `_` as one
/// letter; without `tools` whatever has the form of a tool's name is taken.
///
/// # Errors
/// Problems, as [`check`] tells them.
pub fn read_dag(text: &str, tools: Option<&[&str]>) -> Result<DagFile, Vec<ManifestProblem>> {
    read_dag_over(None, text, tools)
}

/// DAGs of a text as [`read_dag`] reads them, with the defaults of the text of another file.
///
/// # Errors
/// Problems, as [`check`] tells them; those of the other file name it.
pub fn read_dag_over(
    base: Option<&str>,
    text: &str,
    tools: Option<&[&str]>,
) -> Result<DagFile, Vec<ManifestProblem>> {
    let mut documents = read(text).map_err(|problem| vec![problem])?;
    if let Some(base) = base {
        let base = DagBase::read(base).map_err(|found| {
            let mut problems = in_order(found);
            for problem in &mut problems {
                problem.message = format!("{BASE_FILE}: {}", problem.message);
            }
            problems
        })?;
        documents.iter_mut().for_each(|document| base.add_to(document));
    }
    match dags(&documents, tools) {
        (file, found) if found.is_empty() => Ok(file),
        (_, found) => Err(in_order(found)),
    }
}

/// Agent of a text, whatever tools there are.
///
/// # Errors
/// Problems, as [`check`] tells them.
pub fn parse_agent(text: &str) -> Result<AgentManifest, Vec<ManifestProblem>> {
    agent_of(text, None)
}

fn agent_of(text: &str, tools: Option<&[&str]>) -> Result<AgentManifest, Vec<ManifestProblem>> {
    manifest_of(ManifestKind::Agent, text, |agent, problems| {
        agent::check(agent, problems);
        if let Some(tools) = tools {
            agent::check_tools(agent, tools, problems);
        }
    })
}

/// Workflow of a text, with what it has to keep to be registered. The agents that it names outside of templates are
/// among `agents`, by name or id; whatever agents there are without that.
///
/// # Errors
/// Problems, as [`check`] tells them.
pub fn read_workflow(
    text: &str,
    agents: Option<&[&str]>,
) -> Result<WorkflowManifest, Vec<ManifestProblem>> {
    manifest_of(ManifestKind::Workflow, text, |workflow, problems| {
        workflow::check(workflow, problems);
        workflow::check_registration(workflow, problems);
        if let Some(agents) = agents {
            workflow::check_agents(workflow, agents, problems);
        }
    })
}

/// Workflow of a text.
///
/// # Errors
/// Problems, as [`check`] tells them.
pub fn parse_workflow(text: &str) -> Result<WorkflowManifest, Vec<ManifestProblem>> {
    manifest_of(ManifestKind::Workflow, text, workflow::check)
}

fn manifest_of<T: DeserializeOwned>(
    kind: ManifestKind,
    text: &str,
    rules: impl FnOnce(&T, &mut ProblemList<'_>),
) -> Result<T, Vec<ManifestProblem>> {
    let documents = read(text).map_err(|problem| vec![problem])?;
    match single(kind, &documents, rules) {
        (Some(manifest), found) if found.is_empty() => Ok(manifest),
        (_, found) => Err(in_order(found)),
    }
}

pub(crate) type Found = Vec<(TextPosition, ManifestProblem)>;

/// Problems of a document that is a DAG.
pub(crate) fn dag_problems(document: &YamlNode) -> Found {
    dags(std::slice::from_ref(document), None).1
}

/// Documents of a text, at least one.
pub(crate) fn read(text: &str) -> Result<Vec<YamlNode>, ManifestProblem> {
    let documents = yaml::read(text).map_err(|(at, message)| problem(at, &at![], message))?;
    match documents.is_empty() {
        false => Ok(documents),
        true => {
            let message = "the text is empty: it holds no document".to_owned();
            Err(problem(TextPosition::START, &at![], message))
        }
    }
}

fn in_order(mut found: Found) -> Vec<ManifestProblem> {
    found.sort_by_key(|(at, _)| *at);
    found.truncate(MAX_PROBLEMS);
    found.into_iter().map(|(_, problem)| problem).collect()
}

fn single<T: DeserializeOwned>(
    kind: ManifestKind,
    documents: &[YamlNode],
    rules: impl FnOnce(&T, &mut ProblemList<'_>),
) -> (Option<T>, Found) {
    let (document, further) = (&documents[0], documents.get(1));
    let mut problems = ProblemList::of(document);
    let manifest = typed(kind, document, &mut problems);
    if let Some(manifest) = &manifest {
        rules(manifest, &mut problems);
    }
    if let Some(further) = further {
        let message = format!("a text holds one {}, and another document begins here", kind.name());
        problems.put(further.at, &at![], message);
    }
    (manifest, problems.found)
}

fn dags(documents: &[YamlNode], tools: Option<&[&str]>) -> (DagFile, Found) {
    let mut file = DagFile { documents: Vec::new(), notices: Vec::new() };
    let mut found = Vec::new();
    let mut names = HashSet::new();
    for (index, document) in documents.iter().enumerate() {
        let mut problems = ProblemList::of(document);
        if let Some(dag) = typed::<DagManifest>(ManifestKind::Dag, document, &mut problems) {
            dag::check(&dag, tools, &mut problems);
            match &dag.name {
                None if index > 0 => {
                    problems.add(&at![], "a further document needs a `name` that steps call it by");
                }
                Some(name) if !names.insert(name.clone()) => {
                    let message = format!("another document of this text is named `{name}`");
                    problems.add(&at!["name"], message);
                }
                _ => {}
            }
            if problems.is_empty() {
                file.notices.extend(dag::notices(&dag, document));
            }
            file.documents.push(dag);
        }
        found.extend(problems.found);
        if found.len() >= MAX_PROBLEMS {
            break;
        }
    }
    (file, found)
}

/// Document as its type, if its schema holds.
fn typed<T: DeserializeOwned>(
    kind: ManifestKind,
    document: &YamlNode,
    problems: &mut ProblemList<'_>,
) -> Option<T> {
    let value = document.to_value();
    schema_of(kind).check(&value, &at![], problems);
    if !problems.is_empty() {
        return None;
    }
    let manifest = serde_json::from_value(value);
    manifest.map_err(|error| problems.add(&at![], error.to_string())).ok()
}
