//! Programs that a call names otherwise than by their words: scripts of a user's library, put into the place's
//! workspace and run there by the interpreter that their first line names, and entry points of images, behind
//! which what a call says are the arguments.

use hivekeep_kernel::{CallCx, ToolError};
use hivekeep_ports::{PlaceWorkspace, ScriptLibrary, ScriptProgram};
use hivekeep_shell::{self as shell_line, Token, Word};

use crate::commands::{CommandResult, CommandService, below};

/// Beginning of a command that is a script's name, in calls and in the allow list.
pub(crate) const SCRIPT_PREFIX: &str = "script:";

/// Folder of a guest where programs of scripts are put. One file for each version that was run.
const FOLDER: &str = "/tmp/hivekeep-scripts";

impl CommandService {
    /// Version of a script that a command names.
    ///
    /// # Errors
    /// As the library.
    pub(crate) fn script(
        &self,
        cx: &CallCx,
        command: &str,
        version: Option<u64>,
    ) -> Result<Option<ScriptProgram>, ToolError> {
        let Some(name) = command.strip_prefix(SCRIPT_PREFIX) else {
            return match version {
                None => Ok(None),
                Some(_) => Err(ToolError::invalid(format!(
                    "`script_version` is for a command that is `{SCRIPT_PREFIX}` and a script's name"
                ))),
            };
        };
        let library = self.ports.need::<dyn ScriptLibrary>()?;
        library.program(cx.session, name, version).map(Some)
    }

    /// Puts a program where it is run, and makes the words that run it.
    ///
    /// # Errors
    /// As a write in the place.
    pub(crate) async fn put(
        &self,
        cx: &CallCx,
        place: &PlaceWorkspace,
        script: &ScriptProgram,
        args: Vec<String>,
    ) -> Result<Vec<String>, ToolError> {
        let path = format!("{FOLDER}/{}-{}", script.id, script.version);
        self.places()?.put_program(cx, place, &path, script.code.clone()).await?;
        let mut argv = interpreter(&script.code);
        argv.push(path);
        argv.extend(args);
        Ok(argv)
    }
}

/// Words before a program's path as a kernel takes them of its first line: an interpreter and all of the
/// rest as one argument. A program without is the shell's.
fn interpreter(code: &str) -> Vec<String> {
    let first = code.lines().next().unwrap_or_default();
    let named = first.strip_prefix("#!").map(str::trim).filter(|named| !named.is_empty());
    match named.map(|named| named.split_once([' ', '\t'])) {
        None => vec!["/bin/sh".to_owned()],
        Some(None) => vec![named.unwrap_or_default().to_owned()],
        Some(Some((program, argument))) => {
            vec![program.to_owned(), argument.trim_start().to_owned()]
        }
    }
}

impl CommandService {
    /// Line of the entry point of a place's image with a call's arguments, judged, and the folder that
    /// it runs in: what the call says, or else the image.
    ///
    /// # Errors
    /// `no_entry_point`, `command_not_allowed`, `invalid_path`.
    pub(crate) async fn entry_point(
        &self,
        cx: &CallCx,
        place: &PlaceWorkspace,
        args: Vec<String>,
        folder: Option<&str>,
    ) -> CommandResult<(Vec<String>, String)> {
        let mut entry = self.commands.entry_point(cx, place.workspace).await?;
        if folder.is_some() {
            entry.working_dir = below(&place.root, folder)?;
        }
        let workdir = entry.working_dir.clone();
        Ok((self.rules.program(entry.argv(args))?, workdir))
    }
}

/// Arguments of a call: `command` is the first, if it is not empty, or a line of all of them.
///
/// # Errors
/// `invalid_input` for a line that is more than words.
pub(crate) fn arguments(command: String, args: Option<Vec<String>>) -> CommandResult<Vec<String>> {
    let line = args.is_none() && command.contains(char::is_whitespace);
    if !line {
        let first = Some(command).filter(|first| !first.is_empty());
        return Ok(first.into_iter().chain(args.into_iter().flatten()).collect());
    }
    let parsed = shell_line::parse(&command).ok();
    let words = match parsed.as_deref() {
        Some([Token::Command(words)]) => words.iter().map(Word::literal).collect(),
        _ => None,
    };
    words.ok_or_else(|| {
        ToolError::invalid(
            "`command` is more than words, and an entry point is run without a shell",
        )
        .next("give the arguments in `args`")
    })
}

#[cfg(test)]
mod tests {
    use super::{arguments, interpreter};

    #[test]
    fn the_first_line_is_taken_as_kernels_take_it() {
        for (code, words) in [
            ("echo", &["/bin/sh"][..]),
            ("", &["/bin/sh"]),
            ("#!\necho", &["/bin/sh"]),
            ("#!/usr/bin/python3", &["/usr/bin/python3"]),
            ("#! /usr/bin/env  python3 \r\nx", &["/usr/bin/env", "python3"]),
            ("#!/usr/bin/env -S a -b\n", &["/usr/bin/env", "-S a -b"]),
            (" #!/bin/x", &["/bin/sh"]),
        ] {
            assert_eq!(interpreter(code), words, "{code:?}");
        }
    }

    #[test]
    fn a_call_says_arguments_as_words_or_as_a_line() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        for (command, args, all) in [
            ("", None, &[][..]),
            ("", Some(&["a"][..]), &["a"]),
            ("serve", None, &["serve"]),
            ("serve", Some(&["--port", "8 0"]), &["serve", "--port", "8 0"]),
            ("serve --at 'a b'", None, &["serve", "--at", "a b"]),
            ("a b", Some(&[]), &["a b"]),
        ] {
            let args = args.map(words);
            assert_eq!(arguments(command.to_owned(), args).expect(command), all, "{command}");
        }
        for line in ["a && b", "a $HOME", "a > b", "a *.rs"] {
            assert!(arguments(line.to_owned(), None).is_err(), "{line}");
        }
    }
}
