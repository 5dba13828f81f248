//! User of a sandbox on the host.

use std::os::unix::fs::MetadataExt;

use super::ids::SandboxIds;
use super::overlay_dir;
use super::subordinates::Within;
use crate::host_env::HostEnv;
use crate::options::MachineUser;
use crate::{Error, MachinePlan};

/// A user of the host.
#[derive(Debug, Clone)]
pub(super) struct User {
    pub(super) host: MachineUser,
    /// Form inside the namespace, where the user is a subordinate of the daemon's.
    pub(super) within: Option<Within>,
    /// Set where the sandbox has users besides root, who is this one.
    pub(super) several: Option<SandboxIds>,
}

/// Returns the machine's own user where the daemon may give it one: by number when it is root, else
/// a subordinate. A sandbox whose files have an owner already keeps that user.
///
/// # Errors
/// When its files are those of a user that the daemon has no longer.
pub(super) fn of(host_env: &HostEnv, plan: &MachinePlan) -> Result<User, Error> {
    if plan.several_users {
        return with_others(host_env, plan);
    }
    let own = host_env.options.machine_user(plan.slot)?;
    let shared = User { host: own, within: None, several: None };
    if own.switch {
        return Ok(shared);
    }
    let overlay = overlay_dir(plan);
    let owner = std::fs::metadata(&overlay).ok().map(|meta| meta.uid());
    let subordinates = host_env.subordinates.as_ref();
    let given = match owner {
        // The files were made when the daemon had no other users.
        Some(owner) if owner == own.uid && overlay.join("upper").exists() => return Ok(shared),
        Some(owner) if owner != own.uid => match subordinates.map(|users| users.user_of(owner)) {
            Ok(Some(user)) => user,
            Ok(None) | Err(_) => {
                let why = format!(
                    "the sandbox's files are user {owner}'s, who is not, or no \
                    longer, a subordinate of the daemon's user: see /etc/subuid"
                );
                return Err(Error::NoSubordinate(why));
            }
        },
        _ => match subordinates.map(|users| users.user(plan.slot)) {
            Ok(Some(user)) => user,
            Ok(None) => {
                let slot = plan.slot;
                return Err(Error::NoSubordinate(format!(
                    "slot {slot} is beyond the range in /etc/subuid"
                )));
            }
            Err(_) => return Ok(shared),
        },
    };
    let within = subordinates.ok().and_then(|users| users.within(given));
    Ok(User { host: given, within, several: None })
}

/// Root of a sandbox that has other users too.
fn with_others(host_env: &HostEnv, plan: &MachinePlan) -> Result<User, Error> {
    let ids = host_env.sandbox_ids.clone().map_err(Error::NoIds)?;
    let slot = plan.slot;
    let root = ids.root(slot);
    let root = root.ok_or_else(|| Error::NoIds(format!("slot {slot} is beyond the ranges")))?;
    match std::fs::metadata(overlay_dir(plan)).map(|meta| meta.uid()) {
        Ok(owner) if owner != root.uid => Err(Error::NoIds(format!(
            "the sandbox's files are user {owner}'s, and its root is {} now",
            root.uid
        ))),
        _ => Ok(User { host: root, within: None, several: Some(ids) }),
    }
}
