//! Start of a sandbox: bubblewrap's command line, as a pure function of the plan, and the user on the host.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::ids::{RLIMITS, SandboxIds};
use super::overlay_dir;
use super::subordinates::Within;
use crate::Error;
use crate::host_env::HostEnv;
use crate::options::MachineUser;
use crate::plan::MachinePlan;

/// Parameters of the command line besides the plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sandbox<'a> {
    pub(super) guest: &'a Path,
    pub(super) tree: &'a Path,
    pub(super) overlay: &'a Path,
    /// Bound socket that the guest daemon serves.
    pub(super) link_fd: RawFd,
    /// Pipe to which bubblewrap reports the pid of process 1.
    pub(super) info_fd: RawFd,
    /// Pipe to which the guest daemon writes once it is confined.
    pub(super) console_fd: RawFd,
    /// Uid of the daemon where bubblewrap is started; the guest daemon translates it into its
    /// namespace.
    pub(super) peer_uid: u32,
    /// Limit of processes and threads.
    pub(super) max_processes: u32,
    /// Limit of inotify instances; `None` where the sandbox has a user of its own and the host's
    /// limit applies.
    pub(super) inotify_instances: Option<u32>,
}

const NAMESPACES: [&str; 5] =
    ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"];

/// Builds the whole command line, without the program.
pub(super) fn command_line(plan: &MachinePlan, sandbox: &Sandbox<'_>) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |more: &[&dyn AsRef<std::ffi::OsStr>]| {
        words.extend(more.iter().map(|word| word.as_ref().to_owned()));
    };
    // Bubblewrap maps one user. With several it is started as root of a namespace that has them.
    if !plan.several_users {
        add(&[&"--unshare-user", &"--uid", &"0", &"--gid", &"0"]);
    }
    NAMESPACES.iter().for_each(|word| add(&[word]));
    add(&[&"--hostname", &plan.hostname]);
    // The guest daemon is process 1, may mount, and gives up what a contained root does not need.
    add(&[&"--as-pid-1", &"--new-session", &"--cap-add", &"ALL"]);
    add(&[&"--clearenv", &"--setenv", &"PATH", &"/usr/sbin:/usr/bin:/sbin:/bin"]);
    add(&[&"--setenv", &crate::sweep::TAG_VARIABLE, &plan.tag()]);
    add(&[&"--ro-bind", &sandbox.tree, &"/lower"]);
    add(&[&"--bind", &sandbox.overlay, &"/overlay"]);
    add(&[&"--ro-bind", &sandbox.guest, &"/hivekeep-guest"]);
    for (n, volume) in plan.volumes.iter().enumerate() {
        let bind = if volume.read_only { "--ro-bind" } else { "--bind" };
        add(&[&bind, &format!("{}/{n}", super::layout::VOLUMES), &format!("/volumes/{n}")]);
    }
    add(&[&"--proc", &"/proc", &"--dev", &"/dev", &"--chdir", &"/"]);
    add(&[&"--info-fd", &sandbox.info_fd.to_string(), &"--"]);
    add(&[&"/hivekeep-guest", &"sandbox", &"--lower", &"/lower"]);
    add(&[&"--upper", &"/overlay/upper", &"--work", &"/overlay/work"]);
    add(&[&"--unix-fd", &sandbox.link_fd.to_string()]);
    add(&[&"--token-hash", &plan.token_hash_hex, &"--peer-uid", &sandbox.peer_uid.to_string()]);
    add(&[&"--machine-id", &plan.uuid.simple().to_string()]);
    // Needed where the sandbox's user is not the daemon's and the daemon is not root: it cannot
    // read the environment then.
    add(&[&"--tag", &plan.tag()]);
    add(&[&"--console-fd", &sandbox.console_fd.to_string()]);
    // Two tmpfs mounts: together no more than the workspace's memory.
    add(&[&"--tmpfs-mb", &(plan.memory_mb / 2).to_string()]);
    for (name, value) in RLIMITS.into_iter().chain([("nproc", sandbox.max_processes.into())]) {
        add(&[&"--rlimit", &format!("{name}={value}")]);
    }
    if plan.volumes.iter().any(|volume| volume.owner.is_some()) {
        add(&[&"--no-set-id"]);
    }
    for (n, volume) in plan.volumes.iter().enumerate() {
        add(&[&"--volume", &format!("/volumes/{n}"), &volume.path]);
    }
    if let Some(most) = sandbox.inotify_instances {
        add(&[&"--inotify-instances", &most.to_string()]);
    }
    words
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_bound_and_named_to_the_guest() {
        let mut plan = crate::fake::plan("ws_golden", Path::new("/r"));
        let volume = |path: &str, read_only| crate::VolumeMount {
            folder: "/v".into(),
            path: path.into(),
            read_only,
            owner: None,
        };
        plan.volumes = vec![volume("/a b", false), volume("/c", true)];
        let line = command_line(&plan, &sandbox());
        let line: Vec<_> = line.iter().map(|word| word.to_str().unwrap()).collect();
        for words in [
            ["--bind", "/run/volumes/0", "/volumes/0"],
            ["--ro-bind", "/run/volumes/1", "/volumes/1"],
            ["--volume", "/volumes/0", "/a b"],
            ["--volume", "/volumes/1", "/c"],
        ] {
            assert!(line.windows(3).any(|at| at == words), "{words:?}");
        }
        assert!(!line.contains(&"--no-set-id"));
        plan.volumes[1].owner = Some((1000, 1000));
        assert!(command_line(&plan, &sandbox()).contains(&"--no-set-id".into()));
    }

    fn sandbox() -> Sandbox<'static> {
        Sandbox {
            guest: Path::new("/g"),
            tree: Path::new("/t"),
            overlay: Path::new("/r/disk/ws_golden/overlay"),
            link_fd: 8,
            info_fd: 9,
            console_fd: 10,
            peer_uid: 0,
            max_processes: 2048,
            inotify_instances: Some(32),
        }
    }

    #[test]
    fn with_several_users_bubblewrap_makes_no_user_namespace() {
        let mut plan = crate::fake::plan("ws_golden", Path::new("/r"));
        let alone = command_line(&plan, &sandbox());
        plan.several_users = true;
        let several = command_line(&plan, &sandbox());
        assert_eq!(alone[..5], ["--unshare-user", "--uid", "0", "--gid", "0"].map(OsString::from));
        assert_eq!(alone[5..], several);
    }

    #[test]
    fn the_sandbox_to_the_letter() {
        let plan = crate::fake::plan("ws_golden", Path::new("/r"));
        let line = command_line(&plan, &sandbox());
        let line: Vec<_> = line.iter().map(|word| word.to_str().unwrap()).collect();
        let expected = include_str!("args.golden").replace('\n', " ");
        assert_eq!(line.join(" "), expected.trim_end());
    }
}
