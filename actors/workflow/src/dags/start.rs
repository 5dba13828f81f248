//! Beginning of a run by a caller.

use std::sync::Arc;

use hivekeep_kernel::{CallCx, RunId};
use hivekeep_manifest::dag::NoticeClass;

use super::{
    Answer,
    source::{DagText, checked},
    types::{DagStart, DagStarted},
};
use crate::{RunRequest, RunTrigger, service::WorkflowService};

/// Folder of guests that each run has a folder of its own in.
const SCRATCH: &str = "/tmp/hivekeep-runs";

impl WorkflowService {
    pub(super) async fn dag_start(
        self: Arc<Self>,
        cx: CallCx,
        input: DagStart,
    ) -> Answer<DagStarted> {
        let DagStart { yaml, file, place, params } = input;
        let DagText { text, name, place, path } = self.dag_text(&cx, yaml, file, place).await?;
        let mut checked = checked(text, self.callable(&cx)).await?;
        if let Some(path) = path {
            self.add_called(&cx, &mut checked, &place, &path).await?;
        }
        let named = checked.documents.first().and_then(|dag| dag.name.clone());
        let request = RunRequest {
            id: RunId::new(),
            user: self.sessions.caller(cx.session)?,
            session: cx.session,
            documents: checked.documents,
            name: named.unwrap_or(name),
            given: params.unwrap_or_default(),
            place,
            scratch: SCRATCH.to_owned(),
            trigger: RunTrigger::Start,
        };
        let (run_id, name) = (request.id, request.name.clone());
        self.runs.begin(request).await?;
        let told = checked.notices.iter().filter(|notice| notice.class == NoticeClass::Defect);
        let notices = told.map(|notice| notice.told.to_string()).collect();
        Ok(DagStarted { run_id, name, status: "started", notices })
    }

    /// Names of the tools that a session may call.
    pub(super) fn callable(&self, cx: &CallCx) -> Vec<&'static str> {
        let all = self.catalogue.tools();
        let may = |spec| cx.view.shows(spec) && self.calls.may_call(cx.session, &cx.view, spec);
        all.iter().map(|tool| tool.spec).filter(|spec| may(spec)).map(|spec| spec.name).collect()
    }
}
