//! `status` and `list`.

use futures::future::join_all;
use hivekeep_kernel::{CallCx, Reply, ToolError};

use super::Teams;
use crate::{
    group,
    shared::OnBehalfOf,
    team::{self, authorize, look_at_members},
    tools::team::{Team, TeamAction, TeamResult, TeamRow},
};

/// For a team to say what it is.
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
        let (house, cx) = (self.house.clone(), cx.clone());
        Ok(Reply::later(async move {
            let card = authorize(&house, &team, cx.session).await?;
            let members =
                look_at_members(&house, Some(&OnBehalfOf::call(&cx)), &card.state, &card.desks)
                    .await;
            let plan = card.plan();
            Ok(TeamResult {
                action: Some(TeamAction::Status),
                name: Some(plan.name.clone()),
                team_id: Some(plan.id),
                state: Some(card.state.word().to_owned()),
                max_vms: Some(plan.max_vms),
                created_at: Some(plan.at),
                members: Some(members),
                network: Some(group::told(&house, &card.state).await),
                cards: Some(card.cards.get()),
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
                        Ok(card) => TeamRow {
                            state: card.state.word().to_owned(),
                            owned: Some(card.state.owner == session),
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
