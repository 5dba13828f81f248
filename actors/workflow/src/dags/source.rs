//! Texts of DAGs: from the caller, or from a file of a place.

use std::time::Duration;

use hivekeep_kernel::{CallCx, Layer, RunId, ToolError};
use hivekeep_manifest::{DagFile, MAX_TEXT_BYTES, read_dag};
use hivekeep_ports::{ManifestProblem, PlaceFiles};
use hivekeep_runtime::OnBehalfOf;
use serde::Deserialize;
use serde_json::json;

use super::Answer;
use crate::{RunPlace, codes, service::WorkflowService};

/// Folder of the files that are named by a name alone, or watched.
pub(crate) const DAG_FOLDER: &str = "dags";
/// Ending of those.
const ENDING: &str = ".yaml";
/// Time that reading a file leaves to the rest of its call.
const MARGIN: Duration = Duration::from_secs(2);

/// Text of a DAG, with the name that it has without one of its own.
pub(super) struct DagText {
    pub(super) text: String,
    pub(super) name: String,
    pub(super) place: RunPlace,
    /// Path of its file, if it is of one.
    pub(super) path: Option<String>,
}

impl WorkflowService {
    /// Reads the text that a caller names.
    ///
    /// # Errors
    /// `invalid_input`; `place_unknown` and what else reading a file may come to.
    pub(super) async fn dag_text(
        &self,
        cx: &CallCx,
        yaml: Option<String>,
        file: Option<String>,
        place: Option<String>,
    ) -> Answer<DagText> {
        match (yaml, file) {
            (Some(text), None) => {
                let place = match place {
                    None => RunPlace::Own,
                    some => self.located(cx, some.as_deref()).await?,
                };
                Ok(DagText { text, name: "dag".to_owned(), place, path: None })
            }
            (None, Some(file)) => {
                let place = self.located(cx, place.as_deref()).await?;
                let path = path_of(&file);
                let text = self.file_text(cx, &place, &path).await?;
                Ok(DagText { text, name: name_of(&path), place, path: Some(path) })
            }
            _ => Err(ToolError::invalid("neither `yaml` nor `file`, or both")
                .next("give the text of the DAG as `yaml`, or the path of its file as `file`")),
        }
    }

    /// Place by the name that lasts.
    async fn located(&self, cx: &CallCx, place: Option<&str>) -> Answer<RunPlace> {
        let files = self.daemon.ports.need::<dyn PlaceFiles>()?;
        let found = files.locate(cx, place).await?;
        Ok(match found.folder.is_some() || found.id.starts_with("volume:") {
            true => RunPlace::Folder(found.id),
            false => RunPlace::Workspace(found.id),
        })
    }

    /// Text of a file of a place.
    ///
    /// # Errors
    /// Those of `fs.read`; `dag_invalid` for one that is too large.
    pub(super) async fn file_text(
        &self,
        cx: &CallCx,
        place: &RunPlace,
        path: &str,
    ) -> Answer<String> {
        #[derive(Deserialize)]
        struct Content {
            content: String,
            #[serde(default)]
            next_offset: Option<u64>,
        }
        let (RunPlace::Folder(place) | RunPlace::Workspace(place)) = place else {
            return Err(ToolError::internal("a file of no place"));
        };
        let mut caller = OnBehalfOf::call(cx);
        caller.deadline -= MARGIN.min(cx.remaining() / 4);
        let args = json!({ "place": place, "path": path, "limit": MAX_TEXT_BYTES });
        let read = self.tools.call_idempotent(RunId::new(), &caller, "fs.read", args).await;
        match read? {
            Content { next_offset: Some(_), .. } => {
                let message = format!("`{path:.80}` is larger than {MAX_TEXT_BYTES} bytes");
                Err(ToolError::new(Layer::Actor, codes::DAG_INVALID, message)
                    .next("have its steps call other DAGs"))
            }
            Content { content, .. } => Ok(content),
        }
    }
}

/// Checks a text off the threads that serve, with the names of all tools where they are known.
///
/// # Errors
/// `dag_invalid`, with its problems in `details`.
pub(crate) async fn checked(text: String, tools: Option<Vec<&'static str>>) -> Answer<DagFile> {
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
pub(super) fn path_of(file: &str) -> String {
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
