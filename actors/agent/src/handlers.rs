//! Handlers of an output as they are planned before an execution is begun: one whose agent, tool or machine is not
//! there, or not for the session that asks, is told at once and by its field.

use std::collections::BTreeSet;

use hivekeep_kernel::{CallCx, Layer, ToolError};
use hivekeep_ports::OutboundRequests;
use serde_json::json;

use crate::{
    codes,
    execution::plan::{
        ExecutionPlan,
        after::{AfterAction, AfterJob, AfterPlan},
    },
    tools::AgentService,
};

type Answer<T> = Result<T, ToolError>;

impl AgentService {
    /// Completes the jobs of a plan.
    ///
    /// # Errors
    /// `agent_field_unsupported`, `agent_machine_denied`, `handler_denied`, and those of an execution of the handler's agent;
    /// `details.field` names the field.
    pub(crate) async fn plan_after(&self, cx: &CallCx, plan: &mut ExecutionPlan) -> Answer<()> {
        for job in &mut plan.after.0 {
            let field = format!("spec.{}", job.field);
            self.plan_job(cx, job).await.map_err(|error| {
                let message = format!("`{field}` cannot be obeyed: {}", error.message);
                ToolError { message, ..error }.detail("field", field)
            })?;
        }
        Ok(())
    }

    async fn plan_job(&self, cx: &CallCx, job: &mut AfterJob) -> Answer<()> {
        let runs = job.transform.is_some() || matches!(job.action, AfterAction::Container { .. });
        let command = json!({ "workspace_id": "session", "command": "true" });
        if runs && !self.calls.allows(cx.session, &cx.view, "exec", &command) {
            let message =
                "this session may run no commands: `exec` is not allowed to it".to_owned();
            return Err(ToolError::new(Layer::Policy, codes::HANDLER_DENIED, message)
                .next("have somebody run the agent who may"));
        }
        match &mut job.action {
            AfterAction::Agent { agent, planned, .. } => {
                *planned = Some(Box::new(self.plan_judge(cx, agent).await?));
                Ok(())
            }
            AfterAction::Container { machine, .. } => self.may_have(cx, Some(machine)),
            AfterAction::Tool { name, .. } => {
                let asked = BTreeSet::from([name.clone()]);
                let known = self.shown(cx, &asked).pop_first();
                *name =
                    known.ok_or_else(|| unsupported(format!("there is no tool `{name:.80}`")))?;
                Ok(())
            }
            AfterAction::Request(_) if self.ports.find::<dyn OutboundRequests>().is_none() => {
                let why =
                    "the daemon makes no requests for agents; `web` is off, or for workspaces only";
                Err(unsupported(why.to_owned()))
            }
            AfterAction::Request(request) => {
                let asked = json!({ "url": request.url });
                if self.calls.allows(cx.session, &cx.view, "web.fetch", &asked) {
                    return Ok(());
                }
                let why = "this session may not fetch from there".to_owned();
                Err(ToolError::new(Layer::Policy, codes::HANDLER_DENIED, why)
                    .next("have somebody run the agent who may, or name another address"))
            }
            AfterAction::Mail(mail) => {
                let mailer = self.shared.mailer.as_ref();
                mailer.map_or(Ok(()), |mailer| mailer.options.admit(mail.to.all()))
            }
        }
    }
}

impl AfterPlan {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if another agent would have to be planned.
    pub(crate) fn names_agent(&self) -> bool {
        self.0.iter().any(|job| matches!(job.action, AfterAction::Agent { .. }))
    }

    /// Tools of its jobs.
    pub(crate) fn tools(&self) -> impl Iterator<Item = &String> {
        self.0.iter().filter_map(|job| match &job.action {
            AfterAction::Tool { name, .. } => Some(name),
            _ => None,
        })
    }
}

fn unsupported(why: String) -> ToolError {
    ToolError::new(Layer::Actor, codes::AGENT_FIELD_UNSUPPORTED, why)
        .next("deploy the agent with another handler, and a higher version")
}
