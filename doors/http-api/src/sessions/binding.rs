//! Binding of a new session: whose it is, the agent and context that it is under, and what a child has
//! of its parent. It never has more.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use hivekeep_door_server::{codes, http::caller::HttpCaller};
use hivekeep_kernel::{Layer, ToolError, User};
use hivekeep_policy::SessionProfile;
use hivekeep_registry::{SessionRow, SessionState};

use super::{
    super::{error::ApiError, published::ToolReason, state::Api},
    OpenSessionBody,
};

/// Characters of an agent's name.
const NAME_CHARS: usize = 120;
/// Tools that a session is narrowed to.
const TOOLS: usize = 1_000;

impl Api {
    /// The user and the profile of a session that a caller wants.
    ///
    /// # Errors
    /// When the caller, or the parent, has less than is asked for.
    pub(super) fn bound(
        &self,
        caller: &HttpCaller,
        body: &OpenSessionBody,
    ) -> Result<(User, SessionProfile), ApiError> {
        let parent = body.parent_session_id.as_deref();
        let parent = parent.map(|id| self.session(caller, id)).transpose()?;
        if parent.as_ref().is_some_and(|row| row.state == SessionState::Ended) {
            return Err(ApiError::plain(StatusCode::CONFLICT, "the parent session is over"));
        }
        let of_parent = parent.as_ref().map(|row| row.profile.clone()).unwrap_or_default();
        let binds = body.credential.is_some()
            || differs(&body.agent_name, &of_parent.agent)
            || differs(&body.context, &of_parent.context);
        if binds && !caller.is_operator() {
            let why =
                "only an operator binds a session to an agent, a context or another credential";
            return Err(ApiError::Scope(why));
        }
        let profile = SessionProfile {
            agent: body.agent_name.clone().or(of_parent.agent),
            context: body.context.clone().or(of_parent.context),
            parent: parent.as_ref().map(|row| row.session),
            tools: self.narrowed(body.tools.as_deref(), parent.as_ref())?,
            conversation: of_parent.conversation,
        };
        self.check(&profile)?;
        Ok((self.user(caller, body, parent.as_ref())?, profile))
    }

    fn user(
        &self,
        caller: &HttpCaller,
        body: &OpenSessionBody,
        parent: Option<&SessionRow>,
    ) -> Result<User, ApiError> {
        let Some(name) = &body.credential else {
            return Ok(parent.and_then(|row| row.user).unwrap_or(caller.user));
        };
        let all = self.core.credentials.list();
        let found = all.iter().find(|row| row.name == *name);
        found.map(|row| row.user()).ok_or_else(|| ApiError::not_there("credential", name))
    }

    fn check(&self, profile: &SessionProfile) -> Result<(), ApiError> {
        let invalid = |why: String| Err(ApiError::invalid(ToolReason::SchemaInvalid, why));
        let good = |name: &str| {
            let length = name.chars().count();
            (1..=NAME_CHARS).contains(&length) && !name.chars().any(char::is_control)
        };
        if profile.agent.as_deref().is_some_and(|name| !good(name)) {
            return invalid(format!("`agent_name` should have 1 to {NAME_CHARS} characters"));
        }
        let contexts = &self.core.dispatcher.policy().options().contexts;
        match &profile.context {
            Some(name) if !contexts.contains_key(name) => {
                invalid("`context` is none of `policy.contexts`".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Declared names of the tools that are asked for, all of them within the parent's.
    fn narrowed(
        &self,
        asked: Option<&[String]>,
        parent: Option<&SessionRow>,
    ) -> Result<Option<BTreeSet<String>>, ApiError> {
        let Some(asked) = asked else { return Ok(None) };
        if asked.len() > TOOLS {
            let why = format!("`tools` has more than {TOOLS} ids");
            return Err(ApiError::invalid(ToolReason::SchemaInvalid, why));
        }
        let names = asked.iter().map(|id| self.entry(id).map(|entry| entry.name().to_owned()));
        let names: BTreeSet<String> = names.collect::<Result<_, _>>()?;
        let Some(parent) = parent else { return Ok(Some(names)) };
        let whole = parent.profile.parent.is_none() && parent.profile.tools.is_none();
        let none = BTreeSet::new();
        let has = parent.profile.tools.as_ref().unwrap_or(&none);
        match names.iter().find(|name| !whole && !has.contains(*name)) {
            None => Ok(Some(names)),
            Some(name) => {
                let why = format!("the parent session does not have `{name}` itself");
                let error = ToolError::new(Layer::Policy, codes::DENIED, why)
                    .next("leave it out")
                    .detail("reason_code", "session_denied");
                Err(ApiError::of_call(error, &name.replace('.', "_")))
            }
        }
    }
}

/// True for a request that is not what the parent has anyway.
fn differs(asked: &Option<String>, of_parent: &Option<String>) -> bool {
    asked.is_some() && asked != of_parent
}
