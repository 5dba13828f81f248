//! Users of the host that programs of the operator's run as.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::Daemon;

/// Number of ids in a range.
const IDS: u64 = 65_536;
/// First of the ids that programs with a name have.
const NAMED: u64 = 16;
/// The host's `nobody`.
const NOBODY: u32 = 65_534;

/// Users of the host that programs run as. A family that knows which ids are nobody's offers it as a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostUsers {
    /// The daemon's user, which is an ordinary one.
    Daemon,
    /// A user for each program, of 65,536 ids from `first` on.
    Apart {
        /// The first id.
        first: u32,
    },
    /// `nobody` for all programs: ids of their own are not to be had.
    Shared,
}

/// A program that has a user of its own.
#[derive(Debug, Clone, Copy, Hash)]
pub enum HostProgram<'a> {
    /// All browsers.
    Browser,
    /// All readers of files.
    Reader,
    /// A source of this name.
    Source(&'a str),
    /// The server of a model provider of this name.
    Model(&'a str),
}

impl HostUsers {
    /// Users of a daemon's programs.
    pub fn of(daemon: &Daemon) -> Self {
        daemon.ports.find::<Self>().map_or_else(|| Self::from_first(None), |users| *users)
    }

    /// Users by the first of the ids that they may have, where there are any.
    pub fn from_first(first: Option<u32>) -> Self {
        match (rustix::process::geteuid().is_root(), first) {
            (false, _) => Self::Daemon,
            (true, Some(first)) => Self::Apart { first },
            (true, None) => Self::Shared,
        }
    }

    /// Number of a program's user; `None` for the daemon's own.
    pub fn uid(self, program: HostProgram<'_>) -> Option<u32> {
        let number = match program {
            HostProgram::Browser => 0,
            HostProgram::Reader => 1,
            named => {
                let mut hasher = DefaultHasher::new();
                named.hash(&mut hasher);
                NAMED + hasher.finish() % (IDS - NAMED)
            }
        };
        match self {
            Self::Daemon => None,
            Self::Apart { first } => Some(first + u32::try_from(number).unwrap_or_default()),
            Self::Shared => Some(NOBODY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_has_a_user_of_its_own() {
        let users = HostUsers::Apart { first: 1_000_000 };
        let programs = [
            HostProgram::Browser,
            HostProgram::Reader,
            HostProgram::Source("a"),
            HostProgram::Source("b"),
            HostProgram::Model("a"),
        ];
        let ids: std::collections::BTreeSet<_> =
            programs.iter().filter_map(|program| users.uid(*program)).collect();
        assert_eq!(ids.len(), programs.len());
        assert!(ids.iter().all(|id| (1_000_000..1_065_536).contains(id)), "{ids:?}");
        assert_eq!(users.uid(programs[2]), users.uid(HostProgram::Source("a")));
        assert_eq!(HostUsers::Daemon.uid(programs[2]), None);
    }
}
