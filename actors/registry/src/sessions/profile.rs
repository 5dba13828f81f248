//! Profile of a session, and the toolsets that it has loaded: what changes while it lives.

use std::collections::BTreeSet;

use async_trait::async_trait;
use chrono::Utc;
use hivekeep_kernel::{SessionId, ToolError, session_ended};
use hivekeep_policy::SessionProfile;
use hivekeep_ports::SessionToolsets;
use hivekeep_runtime::log::{Decision, LogError};
use tokio::sync::oneshot;

use super::{SessionsHandle, handle::unknown, records::Record};

impl SessionsHandle {
    /// Profile of a session.
    ///
    /// # Errors
    /// `session_unknown`, `session_ended`.
    pub fn profile(&self, session: SessionId) -> Result<SessionProfile, ToolError> {
        self.standing_of(session).map(|(_, _, profile)| SessionProfile::clone(&profile))
    }

    /// Binds a session anew. It holds when this returns, and is durable.
    ///
    /// # Errors
    /// `session_unknown`, `session_ended`, `journal_failed`.
    pub async fn bind(
        &self,
        session: SessionId,
        change: impl FnOnce(&mut SessionProfile),
    ) -> Result<SessionProfile, ToolError> {
        let shared = self.0.get(session).ok_or_else(|| unknown(session))?;
        if shared.ended().is_some() {
            return Err(session_ended(session));
        }
        let (answer, durable) = oneshot::channel();
        let (told, mut bound) = (shared.clone(), SessionProfile::default());
        shared.log.decide_then::<LogError>(
            |state| {
                bound = state.map(|it| it.profile.clone()).unwrap_or_default();
                change(&mut bound);
                Ok(Decision::record(Record::Bound { profile: bound.clone(), at: Utc::now() }))
            },
            move |outcome| {
                if outcome.is_ok() {
                    let profile = told.log.view(|state| state.map(|it| it.profile.clone()));
                    told.bind(profile.unwrap_or_default());
                }
                let _gone = answer.send(outcome);
            },
        )?;
        durable.await.map_err(|_| ToolError::internal("the journal dropped a record"))??;
        Ok(bound)
    }
}

#[async_trait]
impl SessionToolsets for SessionsHandle {
    fn loaded(&self, session: SessionId) -> BTreeSet<String> {
        self.0.get(session).map(|shared| shared.toolsets.borrow().clone()).unwrap_or_default()
    }

    async fn load(
        &self,
        session: SessionId,
        toolsets: BTreeSet<String>,
    ) -> Result<BTreeSet<String>, ToolError> {
        let shared = self.0.get(session).ok_or_else(|| unknown(session))?;
        if shared.ended().is_some() {
            return Err(session_ended(session));
        }
        let (mut new, (answer, durable)) = (BTreeSet::new(), oneshot::channel());
        let (told, wanted) = (shared.clone(), toolsets.clone());
        shared.log.decide_then::<LogError>(
            |state| {
                let loaded = |name: &String| state.is_some_and(|it| it.toolsets.contains(name));
                new = toolsets.into_iter().filter(|name| !loaded(name)).collect();
                Ok(match new.is_empty() {
                    true => Decision::nothing(),
                    false => {
                        let (toolsets, at) = (new.iter().cloned().collect(), Utc::now());
                        Decision::record(Record::ToolsetsLoaded { toolsets, at })
                    }
                })
            },
            // Whoever waits: what is written is listed.
            move |outcome| {
                if outcome.is_ok() {
                    told.toolsets.send_if_modified(|loaded| {
                        let before = loaded.len();
                        loaded.extend(wanted);
                        loaded.len() > before
                    });
                }
                let _gone = answer.send(outcome);
            },
        )?;
        durable.await.map_err(|_| ToolError::internal("the journal dropped a record"))??;
        Ok(new)
    }
}
