//! Entry points of images: what a call says are the arguments behind one.

use hivekeep_kernel::{CallCx, ToolError, ports::PlaceWorkspace};
use hivekeep_shell::{self as shell_line, Token, Word};

use crate::commands::{CommandService, below};

type Answer<T> = Result<T, ToolError>;

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
    ) -> Answer<(Vec<String>, String)> {
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
pub(crate) fn arguments(command: String, args: Option<Vec<String>>) -> Answer<Vec<String>> {
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
    use super::arguments;

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
