//! A call of the daemon's own for a session: resolved, validated, admitted, told as an event.
//!
//! It passes no policies, for the call that it is part of has passed them, and takes no tokens,
//! for that call paid. Quota is reserved by the actor, as always, out of what the call brings if it
//! brings any.

use std::sync::Arc;

use async_trait::async_trait;
use hivekeep_kernel::{Door, Receipt, SessionId, ToolError, ToolSpec, User};
use hivekeep_policy::PolicyDecision;
use hivekeep_ports::{InternalCall, Tools};
use serde_json::Value;
use tokio::time::Instant;

use super::{DecisionRequest, Dispatcher, audit::Trail, limit, route};
use crate::ToolView;

#[async_trait]
impl Tools for Dispatcher {
    async fn call(
        &self,
        internal: InternalCall,
        tool: &'static str,
        args: Value,
    ) -> Result<Value, ToolError> {
        let session = internal.session.principal();
        let mut trail = Trail::of(self.0.records.clone(), session, Door::Internal, tool);
        let result = self.run(internal, tool, args, &mut trail).await;
        trail.finish(result.map_err(|error| self.0.redactor.error(error))).result
    }

    fn may_call(&self, session: SessionId, view: &ToolView, tool: &'static ToolSpec) -> bool {
        self.ruling(session, view, tool.name, None).is_some_and(|it| it != PolicyDecision::Denied)
    }

    fn allows(&self, session: SessionId, view: &ToolView, tool: &str, args: &Value) -> bool {
        self.ruling(session, view, tool, Some(args)) == Some(PolicyDecision::Allowed)
    }
}

impl Dispatcher {
    /// Decision on a call of a session; `None` for a tool or a session that is not there.
    fn ruling(
        &self,
        session: SessionId,
        view: &ToolView,
        tool: &str,
        args: Option<&Value>,
    ) -> Option<PolicyDecision> {
        let entry = self.0.catalogue.now().find(tool).cloned()?;
        // Door and user are the session's own.
        let (user, door, session) = (User::Nobody, Door::Internal, Some(session));
        let request = DecisionRequest { session, user, door, view, tool: &entry, args };
        self.decision(&request).ok().map(|found| found.outcome)
    }

    async fn run(
        &self,
        internal: InternalCall,
        tool: &'static str,
        mut args: Value,
        trail: &mut Trail,
    ) -> Result<Value, ToolError> {
        let inner = &*self.0;
        let InternalCall { session, deadline, cancel, progress, reserved } = internal;
        let view = Arc::<ToolView>::default();
        let entry = &*inner.catalogue.now().resolve(tool, &view)?;
        if let Value::Object(args) = &mut args {
            entry.respell(args);
            trail.input(args);
        }
        trail.tool(entry);
        entry.check(&args)?;
        // A session that has ended is not kept from being tidied up after.
        let principal = session.principal();
        let live = inner.sessions.begin_call(principal).ok();
        let user = live.as_ref().map(|live| live.shared().account.user);
        let (call, shown) = (trail.call(), view.clone());
        let (pad, receipt) = Receipt::pair();
        let order = route::Order {
            entry,
            user: None,
            door: Door::Internal,
            view,
            args,
            progress,
            cancel,
            timeout: Some(deadline.saturating_duration_since(Instant::now())),
            caller: route::Caller::Daemon(session, live),
            receipt,
            reserved,
            trace: None,
            effect: None,
            client: None,
        };
        let value = route::deliver(inner, order, trail).await?;
        let owner =
            limit::ResultOwner { user, session: principal, call, view: &shown, most_bytes: None };
        let value = limit::enforce(inner, entry, owner, value).await?;
        pad.sign();
        Ok(value)
    }
}
