//! Directory of teams: their tree, and the limits on additions to it. Pure: a view of all teams at
//! one moment.
//!
//! A team's limit covers its own members and those of every team below it. A new team is counted
//! in every team above it at the moment it is admitted, so that no two plans take the same room.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{SessionId, TeamId, User};

use crate::Options;

/// A team, as far as others are concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TeamEntry {
    /// Name, unique among the teams.
    pub(crate) name: String,
    /// The session that planned it, and its user where that was recorded.
    pub(crate) owner: SessionId,
    pub(crate) user: Option<User>,
    /// The team it is below.
    pub(crate) parent: Option<TeamId>,
    /// Most members in it and below it.
    pub(crate) max_vms: u32,
    /// The team's own members.
    pub(crate) members: u32,
    /// Time of its planning.
    pub(crate) at: DateTime<Utc>,
}

/// The reason why a team is not admitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LimitReached {
    /// The parent has gone meanwhile.
    #[error("the parent team is gone")]
    ParentGone,
    /// The parent, or one above it, is being removed.
    #[error("the team `{0}` is being destroyed")]
    ParentClosing(String),
    /// The team would be too far below the topmost.
    #[error("it would be at depth {depth}; `team.max_nesting_depth` is {limit}")]
    TooDeep {
        /// The level that it would be at.
        depth: u32,
        /// The deepest.
        limit: u32,
    },
    /// More members than any team may have.
    #[error("{wanted} roles; `team.max_vms_per_team` is {limit}")]
    TooManyRoles {
        /// Members asked for.
        wanted: u32,
        /// The most.
        limit: u32,
    },
    /// A team's own limit, or that of one above it.
    #[error(
        "the team `{team}` may have {max_vms} members and has {used}: {wanted} more do not fit"
    )]
    Budget {
        /// The team whose limit it is.
        team: String,
        /// The limit.
        max_vms: u32,
        /// Taken of it, teams below included.
        used: u32,
        /// Asked for.
        wanted: u32,
    },
    /// The limit of all teams together.
    #[error(
        "all teams have {used} members, {wanted} more do not fit `team.max_total_vms` = {limit}"
    )]
    Total {
        /// Taken of it.
        used: u32,
        /// Asked for.
        wanted: u32,
        /// The limit.
        limit: u32,
    },
}

/// All teams.
pub(crate) struct Directory<'a>(BTreeMap<TeamId, &'a TeamEntry>);

impl<'a> FromIterator<(TeamId, &'a TeamEntry)> for Directory<'a> {
    fn from_iter<T: IntoIterator<Item = (TeamId, &'a TeamEntry)>>(teams: T) -> Self {
        Self(teams.into_iter().collect())
    }
}

impl Directory<'_> {
    /// Checks that every limit allows a new team. Nothing is put below a team that is closing.
    ///
    /// # Errors
    /// The first limit that does not.
    pub(crate) fn fits(
        &self,
        entry: &TeamEntry,
        options: &Options,
        closing: impl Fn(TeamId) -> bool,
    ) -> Result<(), LimitReached> {
        let wanted = entry.members;
        if wanted > options.max_vms_per_team {
            return Err(LimitReached::TooManyRoles { wanted, limit: options.max_vms_per_team });
        }
        if wanted > entry.max_vms {
            let (team, max_vms) = (entry.name.clone(), entry.max_vms);
            return Err(LimitReached::Budget { team, max_vms, used: 0, wanted });
        }
        let (mut depth, mut above) = (0, entry.parent);
        while let Some(id) = above {
            let team = self.0.get(&id).ok_or(LimitReached::ParentGone)?;
            if closing(id) {
                return Err(LimitReached::ParentClosing(team.name.clone()));
            }
            let (used, max_vms) = (self.used(id), team.max_vms);
            if used + wanted > max_vms {
                return Err(LimitReached::Budget {
                    team: team.name.clone(),
                    max_vms,
                    used,
                    wanted,
                });
            }
            depth += 1;
            above = team.parent;
        }
        let limit = options.max_nesting_depth;
        if depth > limit {
            return Err(LimitReached::TooDeep { depth, limit });
        }
        let (used, limit) = (self.0.values().map(|team| team.members).sum(), options.max_total_vms);
        if used + wanted > limit {
            Err(LimitReached::Total { used, wanted, limit })
        } else {
            Ok(())
        }
    }

    /// Members of a team and of every team below it.
    pub(crate) fn used(&self, id: TeamId) -> u32 {
        let below = self.cascade(id);
        below.iter().filter_map(|id| self.0.get(id)).map(|team| team.members).sum()
    }

    /// A team and every team below it, each after those below it.
    pub(crate) fn cascade(&self, id: TeamId) -> Vec<TeamId> {
        let mut order = vec![id];
        let mut next = 0;
        while let Some(above) = order.get(next).copied() {
            let below = self.0.iter().filter(|(_, team)| team.parent == Some(above));
            order.extend(below.map(|(id, _)| *id));
            next += 1;
        }
        order.reverse();
        order
    }
}

#[cfg(test)]
mod tests;
