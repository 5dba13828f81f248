//! Child sessions: opened for work that runs by itself, never above the session that began it, and called
//! through the dispatcher like any other.
//!
//! A child is a session with a name, so it does not end by itself and makes no room for another. Its profile
//! is decided once, when it is opened: it has none of the tools that its parent may not call, and none that
//! its parent may call only with an approval and it would call without one. Input is judged by the child's
//! own profile at each call.

use std::{
    collections::BTreeSet,
    iter::successors,
    sync::{Arc, LazyLock, OnceLock},
};

use async_trait::async_trait;
use hivekeep_kernel::{Door, Layer, ReceiptPad, SessionId, ToolError, User};
use hivekeep_policy::{PolicyDecision, SessionProfile};
use hivekeep_ports::{
    ALL_TOOLS, ChildAnswer, ChildCall, ChildSession, ChildSessions, ChildTool, Tools,
};

use crate::{
    ApprovalRoute, CallRequest, Dispatcher, NameStyle, OpenSession, SessionRow, SessionsHandle,
    ToolEntry, ToolView, codes, mcp_tool,
};

/// Most sessions above a child, one above the other.
const MAX_DEPTH: usize = 3;

/// Most sessions that are looked at, from one upwards: a door may open further ones below a child.
const MOST_ABOVE: usize = 64;

/// Tools that a child may be shown, by names that models take. None are for operators, whoever began it.
static VIEW: LazyLock<Arc<ToolView>> =
    LazyLock::new(|| Arc::new(ToolView { names: NameStyle::Underscored, ..ToolView::default() }));

/// Child sessions over a dispatcher, which is there once the families are mounted. Actors start before.
pub struct DispatchedChildren {
    sessions: SessionsHandle,
    dispatcher: OnceLock<Dispatcher>,
}

impl DispatchedChildren {
    /// Child sessions among these sessions.
    pub fn new(sessions: SessionsHandle) -> Self {
        Self { sessions, dispatcher: OnceLock::new() }
    }

    /// Wires the dispatcher of their calls. A second one has no effect.
    pub fn wire(&self, dispatcher: Dispatcher) {
        let _the_first_stays = self.dispatcher.set(dispatcher);
    }

    fn dispatcher(&self) -> Result<&Dispatcher, ToolError> {
        self.dispatcher.get().ok_or_else(ToolError::daemon_starting)
    }

    /// Refuses a child below too many sessions. One that is forgotten has nothing above it.
    fn check_depth(&self, parent: SessionId) -> Result<(), ToolError> {
        let next = |id: &SessionId| self.sessions.row(*id).and_then(|row| row.profile.parent);
        let depth = successors(Some(parent), next).take(MAX_DEPTH + 1).count();
        if depth <= MAX_DEPTH {
            return Ok(());
        }
        let message = format!("the session {parent} has {MAX_DEPTH} sessions above it already");
        Err(ToolError::new(Layer::Session, codes::CHILD_TOO_DEEP, message)
            .next("have it begun by a session further up")
            .detail("max_depth", MAX_DEPTH))
    }
}

/// A parent, as the policy knows it.
struct Parent {
    session: SessionId,
    user: User,
    door: Door,
    profile: Arc<SessionProfile>,
}

impl Parent {
    /// Profile of a child.
    ///
    /// # Errors
    /// `invalid_input`, `denied`.
    fn narrowed(
        &self,
        dispatcher: &Dispatcher,
        child: ChildSession,
    ) -> Result<SessionProfile, ToolError> {
        let catalogue = dispatcher.catalogue().now();
        let takes_all = child.tools.contains(ALL_TOOLS);
        let asked: Vec<&Arc<ToolEntry>> = match takes_all {
            true => catalogue.entries().collect(),
            false => child.tools.iter().filter_map(|name| catalogue.find(name)).collect(),
        };
        let mut profile = SessionProfile {
            agent: child.agent.or_else(|| self.profile.agent.clone()),
            context: self.context(dispatcher, child.context)?,
            parent: Some(self.session),
            tools: Some(asked.iter().map(|entry| entry.name().to_owned()).collect()),
            conversation: self.profile.conversation.clone(),
        };
        let mut tools = BTreeSet::new();
        for entry in asked {
            let of_parent =
                dispatcher.rules_on((self.session, self.user, self.door), &self.profile, entry);
            if of_parent == PolicyDecision::Denied {
                continue;
            }
            let caller = (SessionId::new(), self.user, Door::Agent);
            let of_child = dispatcher.rules_on(caller, &profile, entry);
            if (of_parent, of_child) == (PolicyDecision::Asks, PolicyDecision::Allowed) {
                if takes_all {
                    continue;
                }
                return Err(self.unapproved(entry, &profile));
            }
            tools.insert(entry.name().to_owned());
        }
        profile.tools = Some(tools);
        Ok(profile)
    }

    /// Context of a child. Two contexts cannot be compared, so one that limits the parent limits the child.
    fn context(
        &self,
        dispatcher: &Dispatcher,
        asked: Option<String>,
    ) -> Result<Option<String>, ToolError> {
        let Some(asked) = asked else { return Ok(self.profile.context.clone()) };
        let options = dispatcher.policy().options();
        if !options.contexts.contains_key(&asked) {
            let why = format!("there is no security context `{asked}`");
            return Err(ToolError::invalid(why).next("name one of `policy.contexts`, or none"));
        }
        match options.context_of(self.user, &self.profile) {
            Some(own) if *own != asked => {
                let why = format!(
                    "the session {} is in the context `{own}`, and nothing below it in `{asked}`",
                    self.session
                );
                Err(above(why).next(format!("ask for `{own}`, or for no context")))
            }
            _ => Ok(Some(asked)),
        }
    }

    fn unapproved(&self, entry: &ToolEntry, profile: &SessionProfile) -> ToolError {
        let (name, agent) = (entry.name(), profile.agent.as_deref());
        let agent = agent.map(|agent| format!(" of the agent `{agent}`")).unwrap_or_default();
        let why = format!(
            "a person approves `{name}` in the session {}, and nobody would in one{agent} below it",
            self.session
        );
        above(why).next(format!("leave `{name}` out, or have the operator rule alike on both"))
    }
}

/// The refusal of a child that could do what its parent cannot.
fn above(why: String) -> ToolError {
    ToolError::new(Layer::Policy, codes::DENIED, why).detail("reason_code", "session_denied")
}

#[async_trait]
impl ChildSessions for DispatchedChildren {
    async fn open(&self, child: ChildSession) -> Result<SessionId, ToolError> {
        let dispatcher = self.dispatcher()?;
        let name = format!("{}/{}", child.parent, child.name);
        if let Some(known) = self.sessions.named(&name) {
            return Ok(known);
        }
        let session = child.parent;
        let (user, door, profile) = self.sessions.standing_of(session)?;
        self.check_depth(session)?;
        let profile = Parent { session, user, door, profile }.narrowed(dispatcher, child)?;
        let client = profile.agent.as_deref().map(|agent| format!("agent {agent}"));
        let client = client.unwrap_or_else(|| "agent".to_owned());
        let request = OpenSession { door: Door::Agent, client, user, resume: None, profile };
        Ok(self.sessions.open_named(&name, request).await?.session)
    }

    async fn open_for(&self, user: User, name: &str) -> Result<SessionId, ToolError> {
        // Whoever it is for finds all tools then.
        self.dispatcher()?;
        let (client, profile) = ("schedule".to_owned(), SessionProfile::default());
        let request = OpenSession { door: Door::Agent, client, user, resume: None, profile };
        Ok(self.sessions.open_named(&format!("{user}/{name}"), request).await?.session)
    }

    fn tools(&self, child: SessionId) -> Result<Vec<ChildTool>, ToolError> {
        let dispatcher = self.dispatcher()?;
        let (_, _, profile) = self.sessions.standing_of(child)?;
        let given = |name| profile.tools.as_ref().is_some_and(|tools| tools.contains(name));
        let may = |entry: &&Arc<ToolEntry>| {
            given(entry.name()) && dispatcher.may_call(child, &VIEW, entry.spec)
        };
        let tool = |entry: &Arc<ToolEntry>| {
            let mut listed = mcp_tool(entry, &VIEW);
            ChildTool {
                name: VIEW.name(entry.spec).into_owned(),
                declared: entry.name(),
                description: listed["description"].as_str().unwrap_or_default().to_owned(),
                input_schema: listed["inputSchema"].take(),
                effect: entry.spec.effect,
                concurrency_safe: entry.spec.concurrency_safe,
            }
        };
        Ok(dispatcher.catalogue().now().visible(&VIEW).filter(may).map(tool).collect())
    }

    async fn call(&self, call: ChildCall) -> Result<ChildAnswer, ToolError> {
        let ChildCall { session, tool, args, timeout, cancel, progress, effect } = call;
        let dispatcher = self.dispatcher()?;
        if effect.as_ref().is_some_and(|effect| effect.again) {
            let entry = dispatcher.catalogue().now().resolve(&tool, &VIEW);
            if !entry.is_ok_and(|entry| entry.spec.keyed) {
                return Err(ToolError::effect_unknown(Layer::Resolve));
            }
        }
        let request = CallRequest {
            session,
            door: Door::Agent,
            tool,
            args,
            progress,
            cancel,
            timeout,
            view: VIEW.clone(),
            trace: None,
            effect,
            // Nobody at a client is asked: an agent does not approve for itself.
            approval: ApprovalRoute::waiting(),
        };
        let outcome = dispatcher.call(request).await;
        outcome.receipt.into_iter().for_each(ReceiptPad::sign);
        Ok(ChildAnswer { value: outcome.result?, from_source: outcome.from_source })
    }

    fn agents_above(&self, session: SessionId) -> Vec<SessionId> {
        let row = |id: SessionId| self.sessions.row(id);
        let above = |of: &SessionRow| of.profile.parent.and_then(row);
        let all = successors(row(session.principal()), above).take(MOST_ABOVE);
        all.filter(|it| it.door == Door::Agent).map(|it| it.session).collect()
    }

    fn awaiting_approval(&self) -> BTreeSet<SessionId> {
        let Some(dispatcher) = self.dispatcher.get() else { return BTreeSet::new() };
        let pending = dispatcher.policy().approvals().list(false).into_iter();
        pending.filter(|one| one.waits).map(|one| one.call.session).collect()
    }

    async fn end(&self, child: SessionId) -> Result<(), ToolError> {
        match self.sessions.end(child).await {
            Err(error) if error.is(codes::SESSION_UNKNOWN) => Ok(()),
            ended => ended,
        }
    }
}

#[cfg(test)]
mod tests;
