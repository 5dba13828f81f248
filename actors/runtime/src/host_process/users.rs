//! Users of the host that programs of the operator's run as, and the trial of what they run in, for
//! `hivekeep check`.

use std::{
    fs::{self, DirBuilder},
    hash::{DefaultHasher, Hash, Hasher},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{io::AsyncReadExt, time::timeout};

use super::{ETC, HostBounds, HostChild, HostSandbox};
use crate::{Daemon, Finding};

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

const LIMIT: Duration = Duration::from_secs(10);
const SCRIPT: &str = "if test -w /proc/sys/kernel/core_pattern; then exit 9; fi
    echo own > made || exit 8";
/// Exit code of a program that could write the kernel's settings.
const WRITES: i32 = 9;
/// Exit code of a program that cannot write its home.
const HOMELESS: i32 = 8;

/// Runs a program as readers are run, with a home where the daemon's state is, and says as whom.
pub async fn tried(users: HostUsers, state: &Path) -> Finding {
    let what = "programs on the host";
    let tried = timeout(LIMIT, trial(users, state)).await;
    let remedy = "see `user namespaces`; sources, browsers and readers of PDFs do not run without";
    match tried.unwrap_or_else(|_| Err(format!("no end within {} s", LIMIT.as_secs()))) {
        Err(why) => Finding::bad(what, why, remedy),
        Ok(homes) => match users {
            HostUsers::Daemon => Finding::good(what, "run as the daemon's user, in namespaces"),
            HostUsers::Apart { first } => {
                let own = format!("run as users of their own, from {first} on");
                Finding::good(what, format!("{own}{}", homes.told(state)))
            }
            HostUsers::Shared => Finding::bad(
                what,
                "all run as `nobody`: they can end and read each other's processes",
                "see `users in sandboxes`, or workspace.driver.sandbox_first_id",
            ),
        },
    }
    .optional()
}

/// Owner of the programs' homes on the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HomesOf {
    Daemon,
    /// The programs' users: the file system maps no ids.
    Programs,
}

impl HomesOf {
    fn told(self, state: &Path) -> String {
        match self {
            Self::Daemon => String::new(),
            Self::Programs => format!(
                "; the file system of {} maps no ids, so homes belong to those users, and so must what is \
                 named in `folders` on such a file system",
                state.display()
            ),
        }
    }
}

/// Home of a program that is tried, until it is dropped.
struct TrialHome(PathBuf);

impl TrialHome {
    fn new(state: &Path) -> io::Result<Self> {
        let name = format!(".hivekeep-check-{}", std::process::id());
        let make = |parent: &Path| {
            let home = parent.join(&name);
            DirBuilder::new().mode(0o700).create(&home).map(|()| Self(home))
        };
        // Before a first start there is no state, and not everybody who checks may write it.
        make(state).or_else(|_| make(&std::env::temp_dir()))
    }
}

impl Drop for TrialHome {
    fn drop(&mut self) {
        // The home has one file, which `SCRIPT` made.
        let _left = fs::remove_file(self.0.join("made"));
        let _left = fs::remove_dir(&self.0);
    }
}

async fn trial(users: HostUsers, state: &Path) -> Result<HomesOf, String> {
    let home = TrialHome::new(state).map_err(|error| format!("no home can be made: {error}"))?;
    let uid = users.uid(HostProgram::Reader);
    let sandbox = HostSandbox {
        hostname: "check",
        uid,
        home: (&home.0, "/srv/check"),
        network: false,
        etc: ETC,
        folders: &[],
        tmp_mb: Some(1),
        nests: false,
        bounds: HostBounds { memory_mb: None, processes: 16 },
    };
    let mut command = sandbox.command().await?;
    command.args(["sh", "-c", SCRIPT]).env_clear().env("PATH", super::PROGRAM_PATH);
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = HostChild::spawn(command, &home.0)?;
    let mut said = String::new();
    if let Some(stderr) = child.stderr() {
        // The output is for people; the exit status counts.
        let _ = stderr.take(4096).read_to_string(&mut said).await;
    }
    let status = child.wait().await.map_err(|error| error.to_string())?;
    match status.code() {
        Some(0) => {
            let owner = fs::metadata(&home.0).map_err(|error| error.to_string())?.uid();
            Ok(if Some(owner) == uid { HomesOf::Programs } else { HomesOf::Daemon })
        }
        Some(HOMELESS) => Err("they cannot write their homes".to_owned()),
        Some(WRITES) => Err("they can write the kernel's settings (/proc/sys)".to_owned()),
        _ => Err(format!("{status}: {}", said.trim())),
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
