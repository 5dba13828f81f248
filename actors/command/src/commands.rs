//! Service of commands: each call finds its place, is judged, and runs there. Its output is text that is never
//! cut inside of a character, and what is left out is counted.

use std::{collections::BTreeMap, sync::Arc};

use hivekeep_kernel::{CallCx, Layer, ToolError};
use hivekeep_ports::{CommandRunner, CommandSpec, CommandStream, PlaceWorkspace, Places, Tools};
use hivekeep_runtime::{Daemon, Ports, Redact};
use hivekeep_store::Journal;

use crate::{Options, codes, options::Rules};

pub(crate) type CommandResult<T> = Result<T, ToolError>;

/// Commands and processes of all sessions.
pub(crate) struct CommandService {
    pub(crate) options: Options,
    pub(crate) rules: Rules,
    pub(crate) commands: Arc<dyn CommandRunner>,
    pub(crate) ports: Ports,
    /// Tools that are called on a session's behalf.
    pub(crate) daemon_tools: Arc<dyn Tools>,
    pub(crate) journal: Journal,
    pub(crate) redact: Redact,
}

impl CommandService {
    pub(crate) fn new(daemon: &Daemon, options: Options) -> CommandResult<Self> {
        Ok(Self {
            rules: Rules::new(&options),
            options,
            commands: daemon.ports.need::<dyn CommandRunner>()?,
            ports: daemon.ports.clone(),
            daemon_tools: daemon.tools.clone(),
            journal: daemon.journal.clone(),
            redact: daemon.redact.clone(),
        })
    }

    pub(crate) fn places(&self) -> CommandResult<Arc<dyn Places>> {
        self.ports.need::<dyn Places>()
    }

    pub(crate) async fn place(
        &self,
        cx: &CallCx,
        place: Option<&str>,
    ) -> CommandResult<PlaceWorkspace> {
        self.places()?.workspace(cx, place).await
    }

    /// Terms of a command. Beside an allow list it has no variables but those that the operator names.
    ///
    /// # Errors
    /// `command_not_allowed`.
    pub(crate) fn spec(
        &self,
        place: &PlaceWorkspace,
        argv: Vec<String>,
        workdir: String,
        env: BTreeMap<String, String>,
    ) -> CommandResult<CommandSpec> {
        let Options { allow, allow_variables, workspace_variables, .. } = &self.options;
        let listed = !allow.is_empty();
        let inherit = if listed { allow_variables } else { workspace_variables }.clone();
        let spec = CommandSpec { argv, workdir, env, inherit, user: place.user.clone() };
        match spec.env.keys().find(|name| listed && !spec.inherits(name)) {
            None => Ok(spec),
            Some(name) => Err(variable_not_allowed(name)),
        }
    }

    /// A program with its arguments, judged.
    pub(crate) fn program(&self, command: String, args: Vec<String>) -> CommandResult<Vec<String>> {
        if command.is_empty() {
            return Err(ToolError::invalid("`command` is empty")
                .next("name a program, or set `entrypoint` to run the image's entry point"));
        }
        self.rules.program([command].into_iter().chain(args).collect())
    }
}

fn variable_not_allowed(name: &str) -> ToolError {
    let shown: String = name.chars().take(80).collect();
    let message =
        format!("`{shown}` is not among the variables that allowed commands may be given");
    ToolError::new(Layer::Policy, codes::COMMAND_NOT_ALLOWED, message)
        .next("leave it out; the operator names variables in `command.allow_variables`")
}

/// A folder of a place: relative to its root, or absolute and below it.
///
/// # Errors
/// `invalid_path` for one that leaves the root by its name.
pub(crate) fn below(root: &str, folder: Option<&str>) -> CommandResult<String> {
    let Some(folder) = folder else { return Ok(root.to_owned()) };
    let root = root.trim_end_matches('/');
    let rest = match folder.strip_prefix('/') {
        None => Some(folder),
        Some("") => Some(""),
        Some(_) => {
            folder.strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with('/'))
        }
    };
    let inside =
        rest.filter(|rest| !rest.split('/').any(|part| part == "..") && !rest.contains('\0'));
    let rest = inside.ok_or_else(|| {
        let shown: String = folder.chars().take(80).collect();
        ToolError::new(
            Layer::Actor,
            codes::INVALID_PATH,
            format!("`{shown}` is not a folder below the place's root `{root}`"),
        )
        .next("name it relative to the root, without `..`")
    })?;
    Ok(match rest.trim_matches('/') {
        "" if root.is_empty() => "/".to_owned(),
        "" => root.to_owned(),
        rest => format!("{root}/{rest}"),
    })
}

/// The end of a stream, and the number of bytes that are left out before it.
pub(crate) fn tail(stream: &CommandStream) -> (String, u64) {
    let cut = stream.total_bytes > stream.bytes.len() as u64;
    // Not the rest of a character whose beginning is gone.
    let rest = stream.bytes.iter().take(3).take_while(|byte| cut && **byte & 0xc0 == 0x80).count();
    let shown = &stream.bytes[rest..];
    let omitted = stream.total_bytes.saturating_sub(shown.len() as u64);
    (String::from_utf8_lossy(shown).into_owned(), omitted)
}

/// The first characters of a stream, with a notice when there is more.
pub(crate) fn head(stream: &CommandStream, most_chars: usize) -> (String, bool) {
    let bytes = &stream.bytes;
    let more = stream.total_bytes > bytes.len() as u64;
    // A character that the cut of the bytes goes through is left out.
    let whole = match std::str::from_utf8(bytes) {
        Err(error) if more && error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    };
    let text = String::from_utf8_lossy(&bytes[..whole]);
    let end = text.char_indices().nth(most_chars).map_or(text.len(), |(at, _)| at);
    if !more && end == text.len() {
        return (text.into_owned(), false);
    }
    let total = stream.total_bytes;
    let shown = text[..end].chars().count();
    (
        format!(
            "{}\n[output truncated: the first {shown} characters of {total} bytes]",
            &text[..end]
        ),
        true,
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn both_ends_of_a_text_are_parts_of_it(text in "\\PC{0,60}", most in 0_usize..80) {
            let bytes = text.as_bytes();
            let total_bytes = bytes.len() as u64;
            let last = bytes[bytes.len().saturating_sub(most)..].to_vec();
            let (end, omitted) = tail(&CommandStream { bytes: last, total_bytes });
            prop_assert!(text.ends_with(&end));
            prop_assert_eq!(omitted + end.len() as u64, total_bytes);
            prop_assert!(most.min(bytes.len()) - end.len() < 4, "at most one character is lost");

            let first = bytes[..most.min(bytes.len())].to_vec();
            let (begin, cut) = head(&CommandStream { bytes: first, total_bytes }, most / 2);
            prop_assert_eq!(cut, text.chars().count() > most / 2 || bytes.len() > most);
            let shown = begin.rsplit_once("\n[output").filter(|_| cut).map_or(&*begin, |(text, _)| text);
            prop_assert!(text.starts_with(shown) && shown.chars().count() <= most / 2);
        }
    }
}
