//! Files of DAGs: their names, and their texts checked.

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_manifest::{DagFile, read_dag};
use hivekeep_ports::ManifestProblem;
use serde_json::json;

use crate::codes;

/// Folder of the files that are named by a name alone, or watched.
pub(crate) const DAG_FOLDER: &str = "dags";
/// Ending of those.
const ENDING: &str = ".yaml";
/// Folder of guests that each run has a folder of its own in.
pub(crate) const SCRATCH: &str = "/tmp/hivekeep-runs";

/// Checks a text off the threads that serve, with the names of all tools where they are known.
///
/// # Errors
/// `dag_invalid`, with its problems in `details`.
pub(crate) async fn checked(
    text: String,
    tools: Option<Vec<&'static str>>,
) -> Result<DagFile, ToolError> {
    let read = tokio::task::spawn_blocking(move || read_dag(&text, tools.as_deref())).await;
    let read = read.map_err(|panic| ToolError::internal(panic.to_string()))?;
    read.map_err(|problems| invalid(&problems))
}

fn invalid(problems: &[ManifestProblem]) -> ToolError {
    let first = problems.first().map(ToString::to_string).unwrap_or_default();
    let message = match problems.len() {
        0 | 1 => first,
        more => format!("{first}; and {} more", more - 1),
    };
    ToolError::new(Layer::Actor, codes::DAG_INVALID, message)
        .next("mend what `details.problems` names; `hivekeep dag validate` checks a file")
        .detail("problems", json!(problems))
}

/// Path of a file that is named by a path, or by a name alone.
pub(crate) fn path_of(file: &str) -> String {
    match file.contains(['/', '.']) {
        true => file.to_owned(),
        false => format!("{DAG_FOLDER}/{file}{ENDING}"),
    }
}

/// Name of a file without its folder and its ending.
pub(crate) fn name_of(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let name = name.strip_suffix(ENDING).or_else(|| name.strip_suffix(".yml")).unwrap_or(name);
    name.to_owned()
}
