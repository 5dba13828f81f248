//! Scripts of a user's library as commands: the program is put into the place's workspace and run there
//! by the interpreter that its first line names.

use hivekeep_kernel::{
    CallCx, ToolError,
    ports::{PlaceWorkspace, ScriptLibrary, ScriptProgram},
};

use crate::commands::CommandService;

/// Beginning of a command that is a script's name, in calls and in the allow list.
pub(crate) const PREFIX: &str = "script:";

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
        let Some(name) = command.strip_prefix(PREFIX) else {
            return match version {
                None => Ok(None),
                Some(_) => Err(ToolError::invalid(format!(
                    "`script_version` is for a command that is `{PREFIX}` and a script's name"
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

#[cfg(test)]
mod tests {
    use super::interpreter;

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
}
