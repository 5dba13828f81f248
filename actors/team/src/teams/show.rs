//! `status` and `list`.

use futures::future::join_all;
use hivekeep_kernel::{CallCx, Reply, ToolError};

use super::Teams;
use crate::{
    api::{Team, TeamAction, TeamResult, TeamRow},
    group,
    shared::OnBehalfOf,
    status,
    team::{self, operate},
};

/// Time limit of a team's answer about itself.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

impl Teams {
    pub(crate) fn status(
        &mut self,
        cx: &CallCx,
        input: Team,
    ) -> Result<Reply<TeamResult>, ToolError> {
        let (id, team) = self.find(input.name.as_deref())?;
        let below = self.directory.all().filter(|(_, team)| team.parent == Some(id));
        let sub_teams = below.map(|(_, team)| team.name.clone()).collect();
        let parent = self.directory.all().find(|(this, _)| *this == id);
        let parent = parent.and_then(|(_, team)| team.parent);
        let parent_team = parent.and_then(|id| self.directory.name(id)).map(str::to_owned);
        let (shared, cx) = (self.shared.clone(), cx.clone());
        Ok(Reply::later(async move {
            let view = operate(&team, cx.session).await?;
            let members = status::members(&shared, Some(&OnBehalfOf::call(&cx)), &view.state).await;
            // As they are after that look; a team that is being started again does not say.
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

    pub(crate) fn list(&self, cx: &CallCx) -> Reply<TeamResult> {
        let teams: Vec<_> = self
            .directory
            .all()
            .map(|(id, entry)| {
                let parent = entry.parent.and_then(|id| self.directory.name(id));
                let row = TeamRow {
                    name: entry.name.clone(),
                    team_id: id,
                    state: "unavailable".to_owned(),
                    member_count: entry.members as usize,
                    max_vms: entry.max_vms,
                    created_at: entry.at,
                    parent_team: parent.map(str::to_owned),
                    owned: None,
                };
                (row, self.places.get(&id).cloned())
            })
            .collect();
        let session = cx.session;
        Reply::later(async move {
            let rows = teams.into_iter().map(|(row, team)| async move {
                match team {
                    None => TeamRow { state: "creating".to_owned(), ..row },
                    Some(team) => match team.ask(PATIENCE, team::Msg::Look).await {
                        Ok(view) => TeamRow {
                            state: view.state.word().to_owned(),
                            owned: Some(view.state.owner == session),
                            ..row
                        },
                        // It is being started again, or is just gone.
                        Err(_) => row,
                    },
                }
            });
            let teams: Vec<_> = join_all(rows).await;
            Ok(TeamResult {
                action: Some(TeamAction::List),
                count: Some(teams.len()),
                teams: Some(teams),
                ..TeamResult::default()
            })
        })
    }
}
