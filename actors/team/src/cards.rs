//! Cards: what a member is, as a file in the vault for people and agents: `teams/<team>/cards/<member>.json`.
//!
//! Cards are beside the truth, never in its way: a team works without a vault, and says what
//! became of its cards. They are written before the team is ready, kept current by a worker
//! ([`keep`]), and removed before its records, so that a removal that was cut short removes them
//! again. What a daemon without a working vault left behind is removed at a start.

pub(crate) mod keep;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use hivekeep_kernel::{TeamId, ToolError, WorkspaceId, fault_point};
use serde::{Deserialize, Serialize};

use crate::{
    api::{TeamCards, TeamMember},
    codes,
    records::{MemberPlan, Plan, State},
    shared::{OnBehalfOf, TeamShared},
    status,
    tasks::Load,
};

/// Time limit of the first cards, before the team is ready.
const AT_CREATION: Duration = Duration::from_secs(10);

/// A member's card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemberCard {
    name: String,
    role: String,
    description: Option<String>,
    skills: Vec<String>,
    team: String,
    pub(crate) team_id: TeamId,
    parent_team: Option<String>,
    workspace_id: Option<WorkspaceId>,
    workspace_name: String,
    /// Status of the member, as in its `agent_status`.
    status: String,
    reason: Option<String>,
    workspace_state: Option<String>,
    endpoints: Endpoints,
    updated_at: DateTime<Utc>,
}

/// Ways to reach the member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Endpoints {
    /// Address in the network of its team.
    ip: Option<String>,
    message: Message,
}

/// The call that puts a message into its inbox; `agent` and `content` are the sender's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Message {
    tool: String,
    action: String,
    name: String,
    to: String,
}

impl MemberCard {
    fn of(plan: &Plan, number: usize, seen: TeamMember) -> Self {
        let member = &plan.members[number];
        Self {
            name: member.name.clone(),
            role: member.role.clone(),
            description: member.description.clone(),
            skills: member.skills.clone(),
            team: plan.name.clone(),
            team_id: plan.id,
            parent_team: plan.parent_name.clone(),
            workspace_id: seen.workspace_id,
            workspace_name: seen.workspace_name,
            status: seen.agent_status.unwrap_or_else(|| "unknown".to_owned()),
            reason: seen.reason,
            workspace_state: seen.workspace_state,
            endpoints: Endpoints {
                ip: seen.ip,
                message: Message {
                    tool: "team".to_owned(),
                    action: "message".to_owned(),
                    name: plan.name.clone(),
                    to: member.name.clone(),
                },
            },
            updated_at: Utc::now(),
        }
    }

    /// True when another card has the same content, whatever its time.
    fn says(&self, other: &Self) -> bool {
        *self == Self { updated_at: self.updated_at, ..other.clone() }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("plain data");
        bytes.push(b'\n');
        bytes
    }
}

/// Path of a member's card in the vault.
pub(crate) fn path(team: &str, member: &str) -> String {
    format!("teams/{team}/cards/{member}.json")
}

/// Asks for the loads of a team's members, by the number of the member.
pub(crate) type Loads = dyn Fn() -> BoxFuture<'static, Vec<Option<Load>>> + Send + Sync;

/// Last known members of a team and their cards, by the number of the member.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Members as they were seen last, their tasks left out.
    seen: Vec<TeamMember>,
    /// The cards that the vault holds.
    cards: Vec<Option<MemberCard>>,
}

impl Known {
    /// True when members are on their way to another state.
    pub(crate) fn moving(&self) -> bool {
        let settled = |state: &str| {
            matches!(state, "running" | "stopped" | "paused" | "parked" | "crashed" | "failed")
        };
        self.seen.iter().any(|member| {
            member.agent_status.as_deref() == Some("initializing")
                || member.workspace_state.as_deref().is_some_and(|state| !settled(state))
        })
    }
}

/// Looks at the members, in somebody's name; without one only at their tasks. Writes the cards that
/// do not say what they are. True if tasks are without a result.
///
/// # Errors
/// The first card's that is not written; the others are all the same.
pub(crate) async fn refresh(
    shared: &Arc<TeamShared>,
    caller: Option<&OnBehalfOf>,
    state: &State,
    loads: &Loads,
    known: &mut Known,
) -> Result<bool, ToolError> {
    let plan = &state.plan;
    if caller.is_some() {
        known.seen = status::members(shared, caller, state).await;
    }
    let seen = status::with_loads(known.seen.clone(), loads().await);
    let busy = seen.iter().any(|member| member.pending_tasks.is_some_and(|tasks| tasks > 0));
    known.cards.resize(plan.members.len(), None);
    let held = known.cards.clone();
    let cards = seen.into_iter().zip(held).enumerate().map(|(number, (seen, held))| {
        let card = MemberCard::of(plan, number, seen);
        async move { (number, put(shared, card, held).await) }
    });
    let mut outcomes = stream::iter(cards).buffer_unordered(shared.options.max_parallel);
    let mut first = None;
    while let Some((number, outcome)) = outcomes.next().await {
        match outcome {
            Ok(card) => known.cards[number] = Some(card),
            Err(error) => {
                known.cards[number] = None;
                first.get_or_insert(error);
            }
        }
    }
    first.map_or(Ok(busy), Err)
}

/// Writes a card, unless the vault holds one that says the same.
async fn put(
    shared: &Arc<TeamShared>,
    card: MemberCard,
    known: Option<MemberCard>,
) -> Result<MemberCard, ToolError> {
    let path = path(&card.team, &card.name);
    let there = match known {
        Some(known) => Some(known),
        // A file that is no card is replaced.
        None => shared
            .vault
            .read(&path)
            .await?
            .and_then(|bytes| serde_json::from_slice::<MemberCard>(&bytes).ok()),
    };
    match there {
        Some(there) if card.says(&there) => Ok(there),
        _ => {
            shared.vault.write(&path, card.bytes()).await?;
            fault_point!("team.after_card");
            Ok(card)
        }
    }
}

/// Writes the first cards of a team, without keeping it waiting for long.
pub(crate) async fn first(
    shared: &Arc<TeamShared>,
    caller: &OnBehalfOf,
    state: &State,
    known: &mut Known,
) -> TeamCards {
    let unknown = || async { Vec::new() }.boxed();
    let written = refresh(shared, Some(caller), state, &unknown, known);
    match tokio::time::timeout(AT_CREATION, written).await {
        Ok(done) => outcome(&done),
        Err(_) => TeamCards::Error(format!("not written within {} s", AT_CREATION.as_secs())),
    }
}

/// Status of the cards after a write, for answers.
pub(crate) fn outcome<T>(outcome: &Result<T, ToolError>) -> TeamCards {
    match outcome {
        Ok(_) => TeamCards::Written,
        Err(error) => TeamCards::Error(error.to_text()),
    }
}

/// Status of the cards after a failed removal. A vault that was not there holds nothing to report.
pub(crate) fn left(error: &ToolError) -> Option<TeamCards> {
    (!error.is(codes::VAULT_DISABLED)).then(|| TeamCards::Error(error.to_text()))
}

/// Removes a team's cards.
///
/// # Errors
/// The first that is not removed; the others are all the same.
pub(crate) async fn remove(shared: &Arc<TeamShared>, plan: &Plan) -> Result<(), ToolError> {
    let path = |member: &MemberPlan| path(&plan.name, &member.name);
    let paths: Vec<_> = plan.members.iter().map(path).collect();
    let removes = paths.into_iter().map(|path| async move { shared.vault.remove(&path).await });
    let removes = stream::iter(removes).buffer_unordered(shared.options.max_parallel);
    let outcomes: Vec<_> = removes.collect().await;
    outcomes.into_iter().find_map(Result::err).map_or(Ok(()), Err)
}

/// Removes cards of teams that are no more and were planned before `born`, which a daemon without
/// a working vault left. Files that are no cards stay.
///
/// # Errors
/// When the vault cannot be read or written.
pub(crate) async fn sweep(
    shared: &Arc<TeamShared>,
    teams: &BTreeSet<TeamId>,
    born: TeamId,
) -> Result<(), ToolError> {
    let all = shared.vault.list("teams").await?;
    for path in all.iter().filter(|path| path.ends_with(".json")) {
        if path.split('/').nth(2) != Some("cards") {
            continue;
        }
        let bytes = shared.vault.read(path).await?.unwrap_or_default();
        let Ok(card) = serde_json::from_slice::<MemberCard>(&bytes) else { continue };
        if card.team_id < born && !teams.contains(&card.team_id) {
            tracing::info!(%path, "the card of a team that is gone is removed");
            shared.vault.remove(path).await?;
        }
    }
    Ok(())
}
