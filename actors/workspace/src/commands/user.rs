//! User of commands, the image's or the one that the call names, and the entry point of the image.

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_machine::{CapabilitySupport, Isolation};
use hivekeep_ports::{EntryPoint, MountSource};
use hivekeep_protocol::Argv;

use crate::{codes, ledger::Ledger, records::Planned};

const ROOT: &str = "root";
/// Working directory of an image that names none, as in containers.
const ROOT_DIR: &str = "/";

/// User that commands run as, and why it is not the image's, if it is not.
pub(crate) struct CommandUser {
    pub(crate) name: String,
    pub(crate) note: Option<String>,
}

impl CommandUser {
    /// `support` is what this host can do for new workspaces of the kind.
    pub(crate) fn of(ledger: &Ledger, support: Option<&CapabilitySupport>) -> Self {
        let user = images_user(ledger);
        if let (Some(user), false) = (user, has_users(&ledger.plan)) {
            let why = why_root_alone(&ledger.plan, support);
            let note = Some(format!("the image's user {user} is not taken on: {why}"));
            return Self { name: ROOT.to_owned(), note };
        }
        Self { name: user.unwrap_or(ROOT).to_owned(), note: None }
    }
}

fn images_user(ledger: &Ledger) -> Option<&str> {
    let image = ledger.defaults.as_ref().filter(|image| image.user_applies);
    image.and_then(|image| image.user.as_deref()).filter(|user| !is_root(user))
}

/// Whether a workspace has users besides root.
fn has_users(plan: &Planned) -> bool {
    plan.spec.isolation == Isolation::Vm || plan.several_users
}

fn why_root_alone(plan: &Planned, support: Option<&CapabilitySupport>) -> String {
    if plan.volumes.iter().any(|mount| matches!(mount.volume, MountSource::Place(_))) {
        return "a sandbox beside a folder of the host has root only".to_owned();
    }
    match support {
        Some(CapabilitySupport::No { why }) => format!("a sandbox has root only: {why}"),
        Some(CapabilitySupport::Yes) | None => "this sandbox was made with root only".to_owned(),
    }
}

fn is_root(user: &str) -> bool {
    matches!(user.split(':').next(), Some("root" | "0"))
}

/// User that is asked for, or else the image's; `None` for root.
///
/// # Errors
/// `invalid_input` for another user than root in a sandbox that has no other, and for an invalid user.
pub(crate) fn other_than_root(
    ledger: &Ledger,
    asked: Option<String>,
) -> Result<Option<String>, ToolError> {
    let user = asked.unwrap_or_else(|| CommandUser::of(ledger, None).name);
    if is_root(&user) {
        return Ok(None);
    }
    if !has_users(&ledger.plan) {
        return Err(ToolError::invalid(format!(
            "this sandbox has root only, not user {user:.80?}"
        ))
        .next("leave `user` out, or make the workspace with isolation vm"));
    }
    if user.is_empty() || user.len() > 256 || user.contains(['\0', '\n']) {
        return Err(ToolError::invalid("`user` is not a valid user"));
    }
    Ok(Some(user))
}

/// Command line that runs as [`other_than_root`] says.
///
/// # Errors
/// Those of [`other_than_root`].
pub(crate) fn as_user(
    ledger: &Ledger,
    asked: Option<String>,
    argv: Argv,
) -> Result<Argv, ToolError> {
    Ok(match other_than_root(ledger, asked)? {
        Some(user) => argv.as_user(&user),
        None => argv,
    })
}

/// Finds the entry point.
///
/// # Errors
/// `no_entry_point`, which says what there is instead.
pub(crate) fn entry_point(ledger: &Ledger) -> Result<EntryPoint, ToolError> {
    let image = &ledger.plan.spec.image;
    let refused = |why: String, next: &str| {
        Err(ToolError::new(Layer::Actor, codes::NO_ENTRY_POINT, why).next(next.to_owned()))
    };
    let Some(defaults) = &ledger.defaults else {
        let why = format!(
            "no entry point of image {image} is recorded: it is not a container image, or the disk was \
             made by an earlier version"
        );
        let next = "name the program in `command`, or make a workspace from a container image";
        return refused(why, next);
    };
    if defaults.entrypoint.is_empty() {
        let instead = match defaults.command.join(" ") {
            none if none.is_empty() => String::new(),
            words => format!("; its command is {words:.200?}"),
        };
        let why = format!("image {image} has no entry point{instead}");
        return refused(why, "name the program in `command`, and leave `entrypoint` out");
    }
    Ok(EntryPoint {
        program: defaults.entrypoint.clone(),
        default_args: defaults.command.clone(),
        working_dir: defaults.working_dir.clone().unwrap_or_else(|| ROOT_DIR.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use hivekeep_image::ImageDefaults;
    use hivekeep_kernel::{SessionId, WorkspaceId};
    use hivekeep_ports::AttachedVolume;

    use super::*;
    use crate::{name::WorkspaceName, records::WorkspaceSpec};

    fn ledger(isolation: Isolation, change: impl Fn(&mut Planned)) -> Ledger {
        let (id, image) = (WorkspaceId::new(), "i".to_owned());
        let spec = WorkspaceSpec { image, isolation, vcpus: 1, memory_mb: 256, disk_gb: 1 };
        let name = WorkspaceName::default_for(id);
        let mut plan = Planned::new(id, name, SessionId::new(), spec).expect("randomness");
        change(&mut plan);
        let user = Some("app".to_owned());
        let image = ImageDefaults { user, user_applies: true, ..ImageDefaults::default() };
        Ledger { defaults: Some(image), ..Ledger::new(plan) }
    }

    fn runs_as(ledger: &Ledger, asked: Option<&str>) -> Result<Argv, String> {
        let argv = Argv::Shell("id".to_owned());
        as_user(ledger, asked.map(str::to_owned), argv).map_err(|error| error.code.into_owned())
    }

    fn become_it(user: &str) -> Result<Argv, String> {
        let words = ["/proc/self/exe", "as", user, "/bin/sh", "-c", "id"];
        Ok(Argv::Direct(words.map(str::to_owned).to_vec()))
    }

    #[test]
    fn who_has_users_takes_the_images_on() {
        let several = |plan: &mut Planned| plan.several_users = true;
        for ledger in [ledger(Isolation::Vm, |_| {}), ledger(Isolation::Sandbox, several)] {
            let user = CommandUser::of(&ledger, None);
            assert_eq!((user.name.as_str(), user.note), ("app", None));
            assert_eq!(runs_as(&ledger, None), become_it("app"));
            assert_eq!(runs_as(&ledger, Some("44:media")), become_it("44:media"));
            let owner = runs_as(&ledger, Some(Argv::REPOSITORY_OWNER));
            assert_eq!(owner, Err("invalid_input".to_owned()), "no user of a call");
            assert_eq!(runs_as(&ledger, Some("root")), Ok(Argv::Shell("id".to_owned())));
        }
    }

    #[test]
    fn a_sandbox_with_root_alone_says_why() {
        let no = CapabilitySupport::no("ids are ada's");
        let place = AttachedVolume {
            volume: MountSource::Place("notes".to_owned()),
            path: "/work".to_owned(),
            read_only: false,
        };
        let beside = |plan: &mut Planned| plan.volumes = vec![place.clone()];
        for (ledger, support, why) in [
            // Ledger as earlier versions recorded it.
            (ledger(Isolation::Sandbox, |_| {}), CapabilitySupport::Yes, "made with root only"),
            (ledger(Isolation::Sandbox, |_| {}), no, "ids are ada's"),
            (ledger(Isolation::Sandbox, beside), CapabilitySupport::Yes, "folder of the host"),
        ] {
            let CommandUser { name, note } = CommandUser::of(&ledger, Some(&support));
            assert!(name == "root" && note.as_ref().is_some_and(|it| it.contains(why)), "{note:?}");
            assert_eq!(runs_as(&ledger, None), Ok(Argv::Shell("id".to_owned())));
            assert_eq!(runs_as(&ledger, Some("app")), Err("invalid_input".to_owned()));
        }
    }
}
