//! Files of DAGs: their names, and their texts checked.

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_manifest::{BASE_FILE, DagFile, read_dag_over};
use hivekeep_plan::lower::expand_actions;
use hivekeep_ports::ManifestProblem;
use serde_json::json;

use crate::codes;

/// Folder of the files that are named by a name alone, or watched.
pub(crate) const DAG_FOLDER: &str = "dags";
/// Ending of those.
const ENDING: &str = ".yaml";
/// Folder of guests that each run has a folder of its own in.
pub(crate) const SCRATCH: &str = "/tmp/hivekeep-runs";

/// Checks a text off the threads that serve, with the names of all tools where they are known. Steps that call actions
/// of the file are those that the actions make. `base` is the text of defaults beside it.
///
/// # Errors
/// `dag_invalid`, with its problems in `details`.
pub(crate) async fn checked(
    base: Option<String>,
    text: String,
    tools: Option<Vec<&'static str>>,
) -> Result<DagFile, ToolError> {
    let read = move || {
        let mut file = read_dag_over(base.as_deref(), &text, tools.as_deref())
            .map_err(|problems| invalid(&problems))?;
        for dag in &mut file.documents {
            expand_actions(dag).map_err(|why| {
                ToolError::new(Layer::Actor, codes::DAG_INVALID, why)
                    .next("mend the call, or the action under `actions`")
            })?;
        }
        Ok(file)
    };
    let read = tokio::task::spawn_blocking(read).await;
    read.map_err(|panic| ToolError::internal(panic.to_string()))?
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

/// Path of the defaults of a file.
pub(crate) fn base_of(path: &str) -> String {
    match path.rsplit_once('/') {
        Some((folder, _)) => format!("{folder}/{BASE_FILE}"),
        None => BASE_FILE.to_owned(),
    }
}

/// Name of a file without its folder and its ending.
pub(crate) fn name_of(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let name = name.strip_suffix(ENDING).or_else(|| name.strip_suffix(".yml")).unwrap_or(name);
    name.to_owned()
}
