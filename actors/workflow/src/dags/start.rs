//! Beginning of a run by a caller.

use std::sync::Arc;

use hivekeep_kernel::{CallCx, RunId, ToolError};
use hivekeep_manifest::dag::NoticeClass;
use hivekeep_runtime::runs::RunQueue;

use super::{
    Answer,
    source::DagText,
    types::{DagStart, DagStarted},
};
use crate::{
    RunRequest, RunTrigger,
    dag_file::{SCRATCH, checked},
    service::WorkflowService,
};

impl WorkflowService {
    pub(super) async fn dag_start(
        self: Arc<Self>,
        cx: CallCx,
        input: DagStart,
    ) -> Answer<DagStarted> {
        let DagStart { yaml, base, file, name: called, place, params, queue, priority } = input;
        let DagText { text, base: beside, name, place, path } =
            self.dag_text(&cx, yaml, file, place).await?;
        let base = beside.or(base);
        let mut checked = checked(base.clone(), text, Some(self.callable(&cx))).await?;
        if let Some(path) = path {
            self.add_called(&cx, &mut checked, (&place, base), &path).await?;
        }
        let first = checked.documents.first();
        let named = first.and_then(|dag| dag.name.clone());
        let queue = queue.or_else(|| first.and_then(|dag| dag.queue.clone()));
        if queue.is_none() && priority != 0 {
            return Err(ToolError::invalid("`priority` is without a queue")
                .next("give `queue`, too, or leave `priority` out"));
        }
        let request = RunRequest {
            id: RunId::new(),
            user: self.sessions.caller(cx.session)?,
            session: cx.session,
            documents: checked.documents,
            name: named.or(called).unwrap_or(name),
            given: params.unwrap_or_default(),
            place,
            scratch: SCRATCH.to_owned(),
            trigger: RunTrigger::Start,
            queue: queue.map(|name| RunQueue { name, priority }),
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
