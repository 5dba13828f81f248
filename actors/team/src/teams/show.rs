//! `status` and `list`, and the snapshot of a team for the operator of the daemon, whichever session
//! the team belongs to.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use hivekeep_kernel::{Address, CallCx, MessageId, Reply, TeamId, Tier, ToolError};
use serde::{Deserialize, Serialize};

use super::{Inner, Msg, Teams};
use crate::{
    api::{TeamAction, TeamMember, TeamResult, TeamRow},
    directory::TeamEntry,
    shared::{OnBehalfOf, TeamShared},
    status,
    team::{self, TeamView, operate},
};

/// Time limit of an actor's answer about itself.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time limit of the operator's look at all members.
const LOOK: Duration = Duration::from_secs(30);

impl Teams {
    pub(crate) fn status(
        &mut self,
        cx: &CallCx,
        name: &str,
    ) -> Result<Reply<TeamResult>, ToolError> {
        let (id, team) = self.find(name)?;
        let below = self.teams.iter().filter(|(_, team)| team.parent == Some(id));
        let sub_teams = below.map(|(_, team)| team.name.clone()).collect();
        let parent_team = self.teams.get(id).and_then(|team| self.parent(team));
        let (shared, cx) = (self.shared.clone(), cx.clone());
        Ok(Reply::later(async move {
            let view = operate(&team, cx.session).await?;
            let members = status::members(&shared, Some(&OnBehalfOf::call(&cx)), &view.state).await;
            // Loads after that look; a team that is being started again has none.
            let loads = team.ask(PATIENCE, team::Msg::Look).await.map(|view| view.loads);
            let members = status::with_loads(members, loads.unwrap_or_default());
            let plan = &view.state.plan;
            Ok(TeamResult {
                action: Some(TeamAction::Status),
                name: Some(plan.name.clone()),
                team_id: Some(plan.id),
                state: Some(view.state.word().to_owned()),
                max_vms: Some(plan.max_vms),
                created_at: Some(plan.at),
                members: Some(members),
                network: Some(status::network(&shared, &view.state).await),
                cards: Some(view.cards.get()),
                parent_team,
                sub_teams: Some(sub_teams),
                ..TeamResult::default()
            })
        }))
    }

    fn parent(&self, team: &TeamEntry) -> Option<String> {
        Some(self.teams.get(team.parent?)?.name.clone())
    }

    pub(crate) fn list(&self, cx: &CallCx) -> Reply<TeamResult> {
        let teams: Vec<_> = self
            .teams
            .iter()
            .map(|(id, entry)| {
                let team = self.teams.address(id).cloned();
                let planned = team.is_none() && self.teams.given_up(id).is_none();
                let row = TeamRow {
                    name: entry.name.clone(),
                    team_id: id,
                    state: if planned { "creating" } else { "unavailable" }.to_owned(),
                    member_count: entry.members as usize,
                    max_vms: entry.max_vms,
                    created_at: entry.at,
                    parent_team: self.parent(entry),
                    owned: None,
                };
                (row, team, entry.owner, entry.user)
            })
            .collect();
        let (shared, cx) = (self.shared.clone(), cx.clone());
        Reply::later(async move {
            let is_shown = |owner, user| {
                let sessions = &shared.sessions;
                let of_user = || sessions.is_of_user(cx.session, user, Some(owner));
                cx.view.reaches(Tier::Operator) || of_user()
            };
            let rows = teams.into_iter().map(|(row, team, owner, user)| async move {
                let view = match team {
                    Some(team) => team.ask(PATIENCE, team::Msg::Look).await.ok(),
                    None => None,
                };
                match view {
                    Some(TeamView { state, .. }) => is_shown(state.owner, state.user).then(|| {
                        let owned = Some(state.owner == cx.session);
                        TeamRow { state: state.word().to_owned(), owned, ..row }
                    }),
                    // The team is planned, is being started again, or is just gone.
                    None => is_shown(owner, user).then_some(row),
                }
            });
            let teams: Vec<_> = join_all(rows).await.into_iter().flatten().collect();
            Ok(TeamResult {
                action: Some(TeamAction::List),
                count: Some(teams.len()),
                teams: Some(teams),
                ..TeamResult::default()
            })
        })
    }
}

/// A team at one moment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Picture {
    /// The team's name.
    pub name: String,
    /// The team's id, the subject of its events.
    pub team_id: TeamId,
    /// `creating`, `ready` or `destroying`.
    pub state: String,
    /// The team's members, in the order of its plan.
    pub members: Vec<Seen>,
}

/// A member of a [`Picture`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Seen {
    /// The member, as `status` shows it.
    pub member: TeamMember,
    /// The messages in its inbox, the oldest first; absent when the inbox could not be asked, or
    /// is not made.
    pub inbox: Option<Vec<MessageId>>,
}

/// Looks at teams without being a session. Cheap to clone.
#[derive(Clone)]
pub struct TeamsHandle {
    pub(crate) address: Address<Msg>,
    pub(crate) shared: Arc<TeamShared>,
}

impl TeamsHandle {
    /// A handle on the manager at this address.
    pub fn new(address: Address<Msg>, shared: Arc<TeamShared>) -> Self {
        Self { address, shared }
    }

    /// The team of a name, as it is now. With `machines` its members' workspaces are looked at, by
    /// a call for each in the name of the team's owner; without, what they would tell is absent.
    ///
    /// # Errors
    /// `team_not_found`; `team_state` while it is only a plan; when its actor does not answer.
    pub async fn picture(&self, name: &str, machines: bool) -> Result<Picture, ToolError> {
        let find = |reply| Msg(Inner::Find(name.to_owned(), reply));
        let team = self.address.ask(PATIENCE, find).await??;
        let view = team.ask(PATIENCE, team::Msg::Look).await?;
        let caller = machines.then(|| OnBehalfOf::own(view.state.owner, LOOK));
        let members = status::members(&self.shared, caller.as_ref(), &view.state).await;
        // While it is being started again nothing is known of them.
        let (inboxes, now) = futures::join!(
            team.ask(PATIENCE, team::Msg::Inboxes),
            team.ask(PATIENCE, team::Msg::Look)
        );
        let loads = now.map(|view| view.loads).unwrap_or_default();
        let members = status::with_loads(members, loads);
        let mut inboxes = inboxes.unwrap_or_default().into_iter();
        let seen = |member| Seen { member, inbox: inboxes.next().flatten() };
        Ok(Picture {
            name: view.state.plan.name.clone(),
            team_id: view.state.plan.id,
            state: view.state.word().to_owned(),
            members: members.into_iter().map(seen).collect(),
        })
    }
}
