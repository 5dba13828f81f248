//! The tool `team`.

use std::sync::Arc;

use hivekeep_kernel::{CallCx, RateClass, Reply, SessionId, ToolError, ToolInfo, tools};
use serde_json::Value;

use crate::{
    api::{Team, TeamResult},
    shared::TeamShared,
    teams::Teams,
};

/// A call that says no time limit may take this long: members are made by it.
const TIMEOUT_SECS: u64 = 900;

/// Sending has buckets of its own, by sender; what is refused before has one by session.
fn tokens(input: &Value) -> u32 {
    u32::from(input.get("action").and_then(Value::as_str) != Some("message"))
}

/// Making members is as dear as making workspaces.
fn rate_of(input: &Value) -> Option<RateClass> {
    (input.get("action")?.as_str()? == "create").then_some(RateClass::Create)
}

fn limit(input: &Value) -> Option<u64> {
    match input.get("action")?.as_str()? {
        "create" | "destroy" => None,
        "receive" => {
            Some(input.get("wait_secs").and_then(Value::as_u64).unwrap_or(0).saturating_add(30))
        }
        _ => Some(60),
    }
}

tools! { pub FAMILY: "teams" for Teams, singleton teams;
    team: Team => TeamResult = Teams::on_team {
        title: "Teams and their messages", effect: Destroy, risk: Risk::High,
        timeout_secs: TIMEOUT_SECS, limit_secs: limit, weight: tokens,
        rate_of: rate_of,
    };
}

/// Every tool of this crate.
pub fn catalogue() -> Vec<&'static ToolInfo> {
    FAMILY.rows.iter().map(|row| &row.0).collect()
}

/// Counts a message that is refused, now or later.
fn counted(
    shared: &Arc<TeamShared>,
    session: SessionId,
    sent: Result<Reply<TeamResult>, ToolError>,
) -> Result<Reply<TeamResult>, ToolError> {
    match sent.inspect_err(|error| shared.rejections.count(session, error))? {
        Reply::Now(sent) => Ok(Reply::Now(sent)),
        Reply::Later(work) => {
            let shared = shared.clone();
            let counts = move |error: &ToolError| shared.rejections.count(session, error);
            Ok(Reply::later(async move { work.await.inspect_err(counts) }))
        }
    }
}

impl Teams {
    fn on_team(&mut self, cx: &CallCx, input: Team) -> Result<Reply<TeamResult>, ToolError> {
        match input {
            Team::Create(input) => self.create(cx, input),
            Team::Destroy { name } => self.destroy(cx, &name),
            Team::Status { name } => self.status(cx, &name),
            Team::List => Ok(self.list(cx)),
            Team::Message(input) => {
                self.shared.rejections.pass(cx.session)?;
                let sent = self.message(cx, input);
                counted(&self.shared, cx.session, sent)
            }
            Team::Receive(input) => self.receive(cx, input),
        }
    }
}

#[cfg(test)]
mod tests {
    use hivekeep_kernel::Tool;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_making_a_team_is_as_dear_as_making_workspaces() {
        let class = |action: &str| Team::SPEC.class(&json!({ "action": action, "name": "crew" }));
        assert_eq!(class("create"), RateClass::Create);
        for other in ["destroy", "status", "list", "message", "receive"] {
            assert_eq!(class(other), RateClass::Default, "{other}");
        }
        assert_eq!(Team::SPEC.class(&json!({})), RateClass::Default);
    }

    #[test]
    fn a_wait_of_any_length_is_a_time_limit() {
        let limit =
            |wait: u64| (Team::SPEC.limit_secs)(&json!({ "action": "receive", "wait_secs": wait }));
        assert_eq!((limit(0), limit(300), limit(u64::MAX)), (Some(30), Some(330), Some(u64::MAX)));
    }
}
