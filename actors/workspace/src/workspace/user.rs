//! User of commands: the image's, or whom the call names.

use hivekeep_kernel::{ToolError, ports::MountSource};
use hivekeep_machine::{CapabilitySupport, Isolation};
use hivekeep_protocol::Argv;

use crate::{ledger::Ledger, records::Planned};

/// The guest's daemon, as what it starts sees it; its role `as` becomes a user.
const GUEST: &str = "/proc/self/exe";
const ROOT: &str = "root";

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
        Some(CapabilitySupport::Yes) | None => {
            "this sandbox was made when sandboxes had root only".to_owned()
        }
    }
}

fn is_root(user: &str) -> bool {
    matches!(user.split(':').next(), Some("root" | "0"))
}

/// Command line that runs as the user that is asked for, or else as the image's.
///
/// # Errors
/// `invalid_input` for another user than root in a sandbox that has no other, and for what is no user.
pub(crate) fn as_user(
    ledger: &Ledger,
    asked: Option<String>,
    argv: Argv,
) -> Result<Argv, ToolError> {
    let user = asked.unwrap_or_else(|| CommandUser::of(ledger, None).name);
    if is_root(&user) {
        return Ok(argv);
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
    let program = match argv {
        Argv::Shell(line) => vec!["/bin/sh".to_owned(), "-c".to_owned(), line],
        Argv::Direct(words) => words,
    };
    let become_it = [GUEST.to_owned(), "as".to_owned(), user];
    Ok(Argv::Direct(become_it.into_iter().chain(program).collect()))
}
