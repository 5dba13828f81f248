//! Room is counted three times: for the session, for its user over all sessions, and for the host
//! over all users.

use std::{path::Path, sync::Arc};

use hivekeep_kernel::{Layer, Resources, SessionId, ToolError};
use serde_json::{Value, json};

use super::{
    SessionShared, User,
    account::{Over, QuotaUsage},
    handle::SessionTable,
};
use crate::{HostOptions, codes};

/// Sessions that a refusal names.
const HOLDERS: usize = 5;

/// The quota that was not enough, and its usage.
struct Refused {
    whose: Whose,
    over: Over,
    usage: QuotaUsage,
}

enum Whose {
    Session,
    User(User),
    Host,
}

impl SessionTable {
    /// Takes all of it or nothing, from all three.
    pub(super) fn reserve(&self, shared: &SessionShared, what: Resources) -> Result<(), ToolError> {
        self.try_reserve(shared, what).map_err(|refused| self.refusal(&refused, what))
    }

    fn try_reserve(&self, shared: &SessionShared, what: Resources) -> Result<(), Refused> {
        // Always in this order.
        let mut own = shared.usage();
        let mut user = shared.account.usage();
        let mut host = self.host();
        let refused = |whose: Whose, usage: QuotaUsage| move |over| Refused { whose, over, usage };
        own.check(what).map_err(refused(Whose::Session, *own))?;
        user.check(what).map_err(refused(Whose::User(shared.account.user), *user))?;
        host.check(what).map_err(refused(Whose::Host, *host))?;
        own.add(what);
        user.add(what);
        host.add(what);
        Ok(())
    }

    /// Takes what another session holds and is about to give up. The user's limit is checked only
    /// when the other session is another user's, and the host's never: there it is counted already.
    pub(super) fn take_over(
        &self,
        shared: &SessionShared,
        from: Option<SessionId>,
        what: Resources,
    ) -> Result<(), ToolError> {
        let from = from.and_then(|id| self.get(id)).map(|shared| shared.account.user);
        let checked = {
            let (mut own, mut user) = (shared.usage(), shared.account.usage());
            let refused =
                |whose: Whose, usage: QuotaUsage| move |over| Refused { whose, over, usage };
            let other = from != Some(shared.account.user);
            let checked = own.check(what).map_err(refused(Whose::Session, *own)).and_then(|()| {
                let whose = Whose::User(shared.account.user);
                if other { user.check(what).map_err(refused(whose, *user)) } else { Ok(()) }
            });
            if checked.is_ok() {
                own.add(what);
                user.add(what);
                self.host().add(what);
            }
            checked
        };
        checked.map_err(|refused| self.refusal(&refused, what))
    }

    /// Counts what is there, limit or not; of a session that nobody knows for the host alone.
    pub(super) fn restore(&self, session: SessionId, what: Resources) {
        if let Some(shared) = self.get(session) {
            shared.usage().add(what);
            shared.account.usage().add(what);
        }
        self.host().add(what);
    }

    pub(super) fn release(&self, session: SessionId, what: Resources) {
        if let Some(shared) = self.get(session) {
            shared.usage().release(what);
            shared.account.usage().release(what);
        }
        self.host().release(what);
    }

    fn refusal(&self, refused: &Refused, what: Resources) -> ToolError {
        let Refused { whose, over: Over { name, wanted, limit }, usage } = refused;
        let json = |amount: Resources| serde_json::to_value(amount).expect("numbers serialise");
        let (code, of, message, next) = match whose {
            Whose::Session => (
                codes::QUOTA_EXCEEDED,
                "session",
                format!("the session would hold {wanted} {name} and may hold {limit}"),
                format!("destroy a workspace, ask for less, or raise registry.quota.max_{name}"),
            ),
            Whose::User(user) => (
                codes::QUOTA_EXCEEDED,
                "user",
                format!(
                    "all sessions of {user} together would hold {wanted} {name} and may hold {limit}"
                ),
                "destroy a workspace of one of the holders, ask for less, or raise \
                 registry.user.quota_factor"
                    .to_owned(),
            ),
            Whose::Host => (
                codes::HOST_FULL,
                "host",
                format!(
                    "all workspaces together would have {wanted} {name}, and this host takes {limit}"
                ),
                "destroy workspaces (the holders are the sessions with most of it), ask for less, \
                 or raise registry.host"
                    .to_owned(),
            ),
        };
        let error = ToolError::new(Layer::Quota, code, message)
            .next(next)
            .detail("of", of)
            .detail("exceeded", *name)
            .detail("used", json(usage.used()))
            .detail("wanted", json(what))
            .detail("allowed", json(usage.limit()));
        match whose {
            Whose::Session => error,
            Whose::User(user) => error.detail("holders", self.holders(name, Some(*user))),
            Whose::Host => error.detail("holders", self.holders(name, None)).retryable(),
        }
    }

    /// The sessions that hold most of something.
    fn holders(&self, name: &str, user: Option<User>) -> Vec<Value> {
        let amount = |shared: &Arc<SessionShared>| {
            let used = shared.usage().used();
            match name {
                "workspaces" => used.workspaces,
                "memory_mb" => used.memory_mb,
                _ => used.disk_gb,
            }
        };
        let all = self.all().into_iter();
        let mut holders: Vec<_> = all
            .filter(|shared| user.is_none_or(|user| user == shared.account.user))
            .map(|shared| (amount(&shared), shared))
            .filter(|(amount, _)| *amount > 0)
            .collect();
        holders.sort_by_key(|(amount, shared)| (std::cmp::Reverse(*amount), shared.id));
        let row = |(amount, shared): &(u64, Arc<SessionShared>)| json!({ "session": shared.id, "client": shared.about.client, "user": shared.account.user, name: amount });
        holders.iter().take(HOLDERS).map(row).collect()
    }
}

/// Room of this host for all workspaces together, whose disks lie in `disks`. A resource that
/// cannot be measured is unbounded.
pub fn host_room(options: &HostOptions, disks: &Path) -> Resources {
    let percent = |of: u64, percent: u32| of.saturating_mul(percent.into()) / 100;
    let memory = memory_mb().map(|all| {
        percent(all.saturating_sub(options.memory_reserve_mb), options.memory_percent.get())
    });
    let disk = rustix::fs::statvfs(disks).ok().map(|disk| {
        let bytes = disk.f_blocks.saturating_mul(disk.f_frsize);
        percent(bytes, options.disk_percent.get()) >> 30
    });
    if memory.is_none() || disk.is_none() {
        tracing::warn!(?memory, ?disk, "the host's room is not known, and not bounded");
    }
    Resources {
        workspaces: u64::MAX,
        memory_mb: memory.unwrap_or(u64::MAX),
        disk_gb: disk.unwrap_or(u64::MAX),
    }
}

fn memory_mb() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_memory_and_disk_and_a_reserve() {
        let options = HostOptions::default();
        let room = host_room(&options, Path::new("/"));
        assert!((1..u64::MAX).contains(&room.memory_mb) && (1..u64::MAX).contains(&room.disk_gb));
        let less = HostOptions { memory_reserve_mb: u64::MAX, ..options };
        let nothing = host_room(&less, Path::new("/not/there"));
        assert_eq!((nothing.memory_mb, nothing.disk_gb), (0, u64::MAX));
    }
}
