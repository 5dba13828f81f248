//! Policy and approvals over the control door: whoever runs the daemon looks, decides and changes rules.

use std::sync::Arc;

use hivekeep_door_server::{DaemonServices, codes};
use hivekeep_kernel::{ApprovalId, Door, GrantId, Layer, SessionId, ToolError, User};
use hivekeep_policy::{ApprovalAnswer, Approver, RuleOptions};
use hivekeep_registry::{DecisionRequest, ToolView};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Outlet;

/// Requests about rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum PolicyMethod {
    /// The verdict of each layer on a call, which is not made.
    Explain(ExplainedCall),
    /// The rules, in the order in which they are asked.
    Rules {},
    /// Adds a rule before all others.
    Add { rule: RuleOptions },
    /// Removes a rule that was added.
    Remove { name: String },
}

/// A call to be explained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExplainedCall {
    pub tool: String,
    /// The session that would call; none is an operator at the command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The input; without it, what depends on one is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Map<String, Value>>,
}

/// Requests about approvals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum ApprovalsMethod {
    /// Approvals that wait; all that are known if `all`.
    List {
        /// Include decided approvals.
        #[serde(default)]
        all: bool,
    },
    /// An approval, with all of its input that is kept.
    Show { id: ApprovalId },
    /// Each approval that waits, now and from now on, as items.
    Follow {},
    /// Decides an approval.
    Decide { id: ApprovalId, answer: ApprovalAnswer },
    /// Denies all that waits of a user.
    DenyAll {
        user: User,
        /// Why, for the callers and the records.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// Grants that hold.
    Grants {},
    /// Ends a grant.
    Revoke { id: GrantId },
}

fn by(uid: u32) -> Approver {
    Approver { user: User::Uid(uid), door: Door::Cli }
}

pub(super) async fn rules(
    core: &Arc<DaemonServices>,
    uid: u32,
    wanted: PolicyMethod,
) -> Result<Value, ToolError> {
    let policy = core.dispatcher.policy();
    match wanted {
        PolicyMethod::Explain(call) => explain(core, uid, call),
        PolicyMethod::Rules {} => Ok(json!(policy.rules())),
        PolicyMethod::Add { rule } => {
            policy.add_rule(rule, &by(uid).to_string()).await.map(|()| Value::Null)
        }
        PolicyMethod::Remove { name } => {
            policy.remove_rule(&name, &by(uid).to_string()).await.map(|()| Value::Null)
        }
    }
}

fn explain(core: &DaemonServices, uid: u32, call: ExplainedCall) -> Result<Value, ToolError> {
    let ExplainedCall { tool, session, args } = call;
    let catalogue = core.catalogue();
    let unknown = || {
        ToolError::not_found(Layer::Resolve, codes::UNKNOWN_TOOL, "tool", &tool)
            .detail("nearest", catalogue.nearest(&tool, &ToolView::operator()))
    };
    let entry = catalogue.find(&tool).ok_or_else(unknown)?;
    let view = if session.is_some() { core.usual_view() } else { ToolView::operator() };
    let respelled = |mut args| {
        entry.respell(&mut args);
        Value::Object(args)
    };
    let args = args.map(respelled);
    let request = DecisionRequest {
        session,
        user: User::Uid(uid),
        door: Door::Cli,
        view: &view,
        tool: entry,
        args: args.as_ref(),
    };
    Ok(json!(core.dispatcher.decision(&request)?))
}

pub(super) async fn approvals(
    core: &Arc<DaemonServices>,
    uid: u32,
    wanted: ApprovalsMethod,
    outlet: &Outlet,
) -> Result<Value, ToolError> {
    let approvals = core.dispatcher.policy().approvals();
    match wanted {
        ApprovalsMethod::List { all } => Ok(json!(approvals.list(all))),
        ApprovalsMethod::Decide { id, answer } => {
            Ok(json!(approvals.decide(id, &by(uid), answer).await?))
        }
        ApprovalsMethod::Show { id } => {
            let (code, name) = (codes::APPROVAL_NOT_FOUND, id.to_string());
            let none = || ToolError::not_found(Layer::Approval, code, "approval", &name);
            Ok(json!(approvals.get(id).ok_or_else(none)?))
        }
        ApprovalsMethod::DenyAll { user, why } => {
            Ok(json!(approvals.deny_all_of(user, &by(uid), why).await?))
        }
        ApprovalsMethod::Grants {} => Ok(json!(approvals.grants())),
        ApprovalsMethod::Revoke { id } => {
            approvals.revoke_grant(id, &by(uid)).await.map(|()| Value::Null)
        }
        ApprovalsMethod::Follow {} => {
            let mut told = std::collections::BTreeSet::new();
            let mut changes = approvals.changes();
            loop {
                changes.borrow_and_update();
                let pending = approvals.list(false);
                told.retain(|id| pending.iter().any(|one| one.id == *id));
                for one in pending {
                    if told.insert(one.id) {
                        outlet.item(json!(one)).await;
                    }
                }
                if changes.changed().await.is_err() {
                    return Ok(Value::Null);
                }
            }
        }
    }
}
