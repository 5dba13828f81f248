//! Directory of teams: their names, their tree, and the limits on additions. Pure.
//!
//! A team's limit covers its own members and those of every team below it. A new team is counted
//! in every team above it at the moment it is admitted, so that no two plans take the same room.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use hivekeep_kernel::TeamId;

/// Limits on all teams.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Teams at a time.
    pub teams: usize,
    /// Members of all teams together.
    pub total_vms: u32,
    /// Members of one team.
    pub vms_per_team: u32,
    /// Deepest level of a team; a team without a parent is at level 0.
    pub depth: u32,
}

/// A team, as far as others are concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Unique.
    pub name: String,
    /// The team it is below.
    pub parent: Option<TeamId>,
    /// Most members in it and below it.
    pub max_vms: u32,
    /// The team's own members.
    pub members: u32,
    /// True while the team is being removed: nothing is put below it any more.
    pub closing: bool,
    /// Time of its planning.
    pub at: DateTime<Utc>,
}

/// The reason why a team is not admitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is a team of this name.
    #[error("there is a team `{0}` already")]
    NameTaken(String),
    /// There are as many teams as allowed.
    #[error("there are {0} teams, as many as `team.max_teams` allows")]
    TooManyTeams(usize),
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
#[derive(Debug, Clone)]
pub struct Directory {
    limits: Limits,
    teams: BTreeMap<TeamId, Entry>,
}

impl Directory {
    /// An empty one.
    pub fn new(limits: Limits) -> Self {
        Self { limits, teams: BTreeMap::new() }
    }

    /// Takes a new team in, if every limit allows it; otherwise changes nothing.
    ///
    /// # Errors
    /// The first limit that does not.
    pub fn admit(&mut self, id: TeamId, entry: Entry) -> Result<(), Refused> {
        let (limits, wanted) = (self.limits, entry.members);
        if self.find(&entry.name).is_some() {
            return Err(Refused::NameTaken(entry.name));
        }
        if self.teams.len() >= limits.teams {
            return Err(Refused::TooManyTeams(limits.teams));
        }
        if wanted > limits.vms_per_team {
            return Err(Refused::TooManyRoles { wanted, limit: limits.vms_per_team });
        }
        if wanted > entry.max_vms {
            let Entry { name: team, max_vms, .. } = entry;
            return Err(Refused::Budget { team, max_vms, used: 0, wanted });
        }
        self.fits_above(&entry)?;
        let used = self.teams.values().map(|team| team.members).sum();
        if used + wanted > limits.total_vms {
            return Err(Refused::Total { used, wanted, limit: limits.total_vms });
        }
        self.teams.insert(id, entry);
        Ok(())
    }

    fn fits_above(&self, entry: &Entry) -> Result<(), Refused> {
        let (mut depth, mut above) = (0, entry.parent);
        while let Some(id) = above {
            let team = self.teams.get(&id).ok_or(Refused::ParentGone)?;
            if team.closing {
                return Err(Refused::ParentClosing(team.name.clone()));
            }
            let (used, wanted, max_vms) = (self.used(id), entry.members, team.max_vms);
            if used + wanted > max_vms {
                return Err(Refused::Budget { team: team.name.clone(), max_vms, used, wanted });
            }
            depth += 1;
            above = team.parent;
        }
        let limit = self.limits.depth;
        if depth > limit { Err(Refused::TooDeep { depth, limit }) } else { Ok(()) }
    }

    /// Takes in what is recorded, whatever the limits are by now.
    pub fn restore(&mut self, id: TeamId, entry: Entry) {
        self.teams.insert(id, entry);
    }

    /// A team is no more.
    pub fn release(&mut self, id: TeamId) {
        self.teams.remove(&id);
    }

    /// These are being removed, or are not after all.
    pub fn close(&mut self, ids: &[TeamId], closing: bool) {
        for id in ids {
            if let Some(team) = self.teams.get_mut(id) {
                team.closing = closing;
            }
        }
    }

    /// The team of a name or an id.
    pub fn find(&self, name: &str) -> Option<(TeamId, &Entry)> {
        let by_name = self.teams.iter().find(|(_, team)| team.name == name);
        let by_id = || name.parse().ok().and_then(|id: TeamId| self.teams.get_key_value(&id));
        by_name.or_else(by_id).map(|(id, team)| (*id, team))
    }

    /// All teams, the oldest first.
    pub fn all(&self) -> impl Iterator<Item = (TeamId, &Entry)> {
        self.teams.iter().map(|(id, team)| (*id, team))
    }

    /// A team's name.
    pub fn name(&self, id: TeamId) -> Option<&str> {
        self.teams.get(&id).map(|team| team.name.as_str())
    }

    /// Members of a team and of every team below it.
    pub fn used(&self, id: TeamId) -> u32 {
        let below = self.cascade(id);
        below.iter().filter_map(|id| self.teams.get(id)).map(|team| team.members).sum()
    }

    /// A team and every team below it, each after those below it.
    pub fn cascade(&self, id: TeamId) -> Vec<TeamId> {
        let mut order = vec![id];
        let mut next = 0;
        while let Some(above) = order.get(next).copied() {
            let below = self.teams.iter().filter(|(_, team)| team.parent == Some(above));
            order.extend(below.map(|(id, _)| *id));
            next += 1;
        }
        order.reverse();
        order
    }
}

#[cfg(test)]
mod tests;
