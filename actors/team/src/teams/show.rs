//! `status` and `list`.

use futures::future::join_all;
use hivekeep_kernel::{CallCx, Reply, Tier, ToolError};

use super::Teams;
use crate::{
    api::{TeamAction, TeamResult, TeamRow},
    directory::TeamEntry,
    group,
    shared::OnBehalfOf,
    status,
    team::{self, TeamView, operate},
};

/// Time limit of a team's answer about itself.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

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
                network: Some(group::told(&shared, &view.state).await),
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
