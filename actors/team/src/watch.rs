//! Snapshot of a team for the operator of the daemon, whichever session the team belongs to.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{Address, MessageId, TeamId, ToolError};
use serde::{Deserialize, Serialize};

use crate::{
    api::TeamMember,
    shared::{OnBehalfOf, TeamShared},
    status, team,
    teams::{Inner, Msg},
};

/// Time limit of an actor's answer about itself.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time limit of a look at all members.
const LOOK: Duration = Duration::from_secs(30);

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
