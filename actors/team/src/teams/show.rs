//! `status` and `list`.

use futures::future::join_all;
use hivekeep_kernel::{CallCx, Reply, ToolError};

use super::Teams;
use crate::{
    house::For,
    team::{self, authorize, look_at_members},
    tool::{Team, TeamAction, TeamResult, TeamRow},
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
            let members = look_at_members(&house, &For::call(&cx), &card.state).await;
            let plan = card.plan();
            Ok(TeamResult {
                action: Some(TeamAction::Status),
                name: Some(plan.name.clone()),
                team_id: Some(plan.id),
                state: Some(card.state.word().to_owned()),
                max_vms: Some(plan.max_vms),
                created_at: Some(plan.at),
                members: Some(members),
                parent_team,
                sub_teams: Some(sub_teams),
                ..TeamResult::default()
            })
        }))
    }

    pub(crate) fn list(&self, cx: &CallCx) -> Reply<TeamResult> {
        let places: Vec<_> = self
            .directory
            .all()
            .filter_map(|(id, entry)| {
                let parent = entry.parent.and_then(|id| self.directory.name(id));
                Some((self.places.get(&id)?.clone(), parent.map(str::to_owned)))
            })
            .collect();
        let session = cx.session;
        Reply::later(async move {
            let rows = places.into_iter().map(|(team, parent_team)| async move {
                // One that is going just now is not listed.
                let card = team.ask(PATIENCE, team::Msg::Look).await.ok()?;
                let plan = card.plan();
                Some(TeamRow {
                    name: plan.name.clone(),
                    team_id: plan.id,
                    state: card.state.word().to_owned(),
                    member_count: plan.members.len(),
                    max_vms: plan.max_vms,
                    created_at: plan.at,
                    parent_team,
                    owned: card.state.owner == session,
                })
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
