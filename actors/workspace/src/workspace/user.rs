//! User of commands: the image's, or whom the call names.

use hivekeep_kernel::ToolError;
use hivekeep_machine::Isolation;
use hivekeep_protocol::Argv;

use crate::ledger::Ledger;

/// The guest's daemon, as what it starts sees it; its role `as` becomes a user.
const GUEST: &str = "/proc/self/exe";
const ROOT: &str = "root";

/// User that commands run as, and why it is not the image's, if it is not.
pub(crate) struct CommandUser {
    pub(crate) name: String,
    pub(crate) note: Option<String>,
}

impl CommandUser {
    pub(crate) fn of(ledger: &Ledger) -> Self {
        let image = ledger.defaults.as_ref().filter(|image| image.user_applies);
        let user = image.and_then(|image| image.user.clone()).filter(|user| !is_root(user));
        match (user, ledger.plan.spec.isolation) {
            (Some(name), Isolation::Vm) => Self { name, note: None },
            (Some(user), Isolation::Sandbox) => {
                let note =
                    format!("the image's user {user} is not taken on: a sandbox has root only");
                Self { name: ROOT.to_owned(), note: Some(note) }
            }
            (None, _) => Self { name: ROOT.to_owned(), note: None },
        }
    }
}

fn is_root(user: &str) -> bool {
    matches!(user.split(':').next(), Some("root" | "0"))
}

/// Command line that runs as the user that is asked for, or else as the image's.
///
/// # Errors
/// `invalid_input` for another user than root in a sandbox, and for what is no user.
pub(crate) fn as_user(
    ledger: &Ledger,
    asked: Option<String>,
    argv: Argv,
) -> Result<Argv, ToolError> {
    let user = asked.unwrap_or_else(|| CommandUser::of(ledger).name);
    if is_root(&user) {
        return Ok(argv);
    }
    if ledger.plan.spec.isolation == Isolation::Sandbox {
        return Err(ToolError::invalid(format!("a sandbox has root only, not user {user:.80?}"))
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
