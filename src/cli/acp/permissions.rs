//! Approvals that calls of a chat wait for, as requests to the editor: its answer is the approval.
//!
//! The editor's person is the user whose agent it is, and decides by the control door, which no machine of an agent
//! reaches (docs/decisions/0108-a-budget-pauses.md).

use std::{collections::BTreeMap, sync::mpsc::TryRecvError};

use hivekeep_agent::acp::schema::{
    CLIENT_METHOD_NAMES, Error, PermissionOption, PermissionOptionKind, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, ToolCall, ToolCallStatus, ToolCallUpdate,
    ToolCallUpdateFields,
};
use hivekeep_kernel::{ApprovalId, SessionId};
use hivekeep_policy::{Approval, ApprovalAnswer, Remember};
use serde_json::Value;

use super::{
    editor::{Editor, EditorRequest},
    link::DaemonLink,
    updates,
};
use crate::control::{ApprovalsMethod, ControlMethod};

const ALLOW: &str = "allow";
const ALLOW_ALWAYS: &str = "allow_always";
const REJECT: &str = "reject";

/// See the module. Those of one prompt.
pub(super) struct AskedPermissions<'d> {
    pub(super) daemon: &'d DaemonLink,
    pub(super) editor: &'d Editor,
    /// Session of the editor.
    pub(super) id: &'d str,
    /// Requests to the editor; `None` once it has said something.
    asked: BTreeMap<ApprovalId, Option<EditorRequest>>,
}

impl<'d> AskedPermissions<'d> {
    pub(super) fn new(daemon: &'d DaemonLink, editor: &'d Editor, id: &'d str) -> Self {
        Self { daemon, editor, id, asked: BTreeMap::new() }
    }

    /// Asks for what waits in the execution's session, and hands on what the editor answered.
    pub(super) fn look(
        &mut self,
        session: Option<SessionId>,
        waits: bool,
        open: &[ToolCall],
    ) -> Result<(), Error> {
        let pending = match waits {
            true => self.pending(session)?,
            false => Vec::new(),
        };
        // Decided elsewhere, or its call is over.
        self.asked.retain(|id, request| {
            let waits = pending.iter().any(|one| one.id == *id);
            if let Some(request) = request.as_ref().filter(|_| !waits) {
                self.editor.take_back(request.id);
            }
            waits
        });
        for one in pending {
            if !self.asked.contains_key(&one.id) {
                let request = RequestPermissionRequest::new(
                    self.id.to_owned(),
                    subject(&one, open),
                    options(),
                );
                let method = CLIENT_METHOD_NAMES.session_request_permission;
                let asked = self.editor.ask(method, request);
                self.asked.insert(one.id, Some(asked));
            }
            let request = self.asked.get_mut(&one.id).and_then(Option::as_mut);
            let answer = request.map(|request| request.answer.try_recv());
            let Some(Ok(answer)) = answer.filter(|it| *it != Err(TryRecvError::Empty)) else {
                continue;
            };
            self.asked.insert(one.id, None);
            // An editor that cannot ask leaves it to others.
            if let Ok(answer) = answer {
                self.decide(one.id, answer);
            }
        }
        Ok(())
    }

    fn pending(&self, session: Option<SessionId>) -> Result<Vec<Approval>, Error> {
        let method = ControlMethod::Approvals(ApprovalsMethod::List { all: false });
        let all: Vec<Approval> = serde_json::from_value(self.daemon.ask(&method)?)?;
        let own = |one: &Approval| Some(one.call.session) == session && one.question.is_none();
        Ok(all.into_iter().filter(own).collect())
    }

    fn decide(&self, id: ApprovalId, answer: Value) {
        let outcome = serde_json::from_value::<RequestPermissionResponse>(answer);
        let option = outcome.ok().and_then(|it| match it.outcome {
            RequestPermissionOutcome::Selected(selected) => Some(selected.option_id.0),
            _ => None,
        });
        let remember = match option.as_deref() {
            Some(ALLOW_ALWAYS) => Remember::Session,
            _ => Remember::Once,
        };
        let approved = matches!(option.as_deref(), Some(ALLOW | ALLOW_ALWAYS));
        let answer = ApprovalAnswer { approved, why: None, remember, reply: None };
        let method = ControlMethod::Approvals(ApprovalsMethod::Decide { id, answer });
        // An approval that is over meanwhile is gone at the next look.
        if let Err(error) = self.daemon.ask(&method) {
            eprintln!("hivekeep: {error}");
        }
    }
}

impl Drop for AskedPermissions<'_> {
    fn drop(&mut self) {
        for request in self.asked.values().flatten() {
            self.editor.take_back(request.id);
        }
    }
}

fn options() -> Vec<PermissionOption> {
    vec![
        PermissionOption::new(ALLOW, "Allow", PermissionOptionKind::AllowOnce),
        PermissionOption::new(
            ALLOW_ALWAYS,
            "Allow this tool in this session",
            PermissionOptionKind::AllowAlways,
        ),
        PermissionOption::new(REJECT, "Reject", PermissionOptionKind::RejectOnce),
    ]
}

/// Call that an approval is for: the first of its tool that has no result, if possible with its input.
fn subject(one: &Approval, open: &[ToolCall]) -> ToolCallUpdate {
    let plain = |name: &str| name.replace('.', "_");
    let (tool, text) = (plain(&one.call.tool), &*one.call.input);
    let input = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    let of_tool =
        |call: &&ToolCall| plain(call.title.split(' ').next().unwrap_or_default()) == tool;
    let same = open.iter().filter(of_tool).find(|call| call.raw_input.as_ref() == Some(&input));
    let id = same.or_else(|| open.iter().find(of_tool)).map(|call| call.tool_call_id.clone());
    let id = id.unwrap_or_else(|| one.id.to_string().into());
    let fields = ToolCallUpdateFields::new()
        .title(updates::title(&one.call.tool, &input))
        .kind(updates::kind(&one.call.tool))
        .status(ToolCallStatus::Pending)
        .content(vec![one.why.clone().into()])
        .raw_input(input);
    ToolCallUpdate::new(id, fields)
}
