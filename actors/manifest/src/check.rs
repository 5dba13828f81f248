//! Check of a text: syntax, schema and rules in one pass, which tells each problem with its place.

use hivekeep_kernel::ports::ManifestProblem;
use serde::de::DeserializeOwned;

use crate::agent::{self, AgentManifest};
use crate::dag::{self, DagManifest};
use crate::kind::ManifestKind;
use crate::path::at;
use crate::problems::{MAX_PROBLEMS, ProblemList, problem};
use crate::workflow::{self, WorkflowManifest};
use crate::yaml::{self, TextPosition, YamlNode};
use crate::{misfit, schema};

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
