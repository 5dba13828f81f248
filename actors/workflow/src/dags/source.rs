//! Texts of DAGs: from the caller, or from a file of a place.

use std::time::Duration;

use hivekeep_kernel::{CallCx, Layer, RunId, ToolError, codes::NOT_FOUND};
use hivekeep_manifest::MAX_TEXT_BYTES;
use hivekeep_ports::PlaceFiles;
use hivekeep_runtime::OnBehalfOf;

use super::Answer;
use crate::{
    RunPlace, codes,
    dag_file::{base_of, name_of, path_of},
    place_text::place_text,
    service::WorkflowService,
};

/// Time that reading a file leaves to the rest of its call.
const MARGIN: Duration = Duration::from_secs(2);

/// Text of a DAG, with the name that it has without one of its own.
pub(super) struct DagText {
    pub(super) text: String,
    /// Text of defaults beside its file.
    pub(super) base: Option<String>,
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
                Ok(DagText { text, base: None, name: "dag".to_owned(), place, path: None })
            }
            (None, Some(file)) => {
                let place = self.located(cx, place.as_deref()).await?;
                let path = path_of(&file);
                let text = self.file_text(cx, &place, &path).await?;
                let base = match self.file_text(cx, &place, &base_of(&path)).await {
                    Ok(base) => Some(base),
                    Err(error) if error.is(NOT_FOUND) => None,
                    Err(error) => return Err(error),
                };
                Ok(DagText { text, base, name: name_of(&path), place, path: Some(path) })
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
        let (RunPlace::Folder(place) | RunPlace::Workspace(place)) = place else {
            return Err(ToolError::internal("a file of no place"));
        };
        let mut caller = OnBehalfOf::call(cx);
        caller.deadline -= MARGIN.min(cx.remaining() / 4);
        let file = (place.as_str(), path);
        let read = place_text(&self.tools, RunId::new(), &caller, file, MAX_TEXT_BYTES).await?;
        read.ok_or_else(|| {
            let message = format!("`{path:.80}` is larger than {MAX_TEXT_BYTES} bytes");
            ToolError::new(Layer::Actor, codes::DAG_INVALID, message)
                .next("have its steps call other DAGs")
        })
    }
}
