//! Commands of an input: the words of each, and whether these say what runs.

use hivekeep_runtime::json_text;
use hivekeep_shell::{Token, Word};
use serde_json::Value;

use super::named;

/// Parameters that are a command line, or a list of such.
const LINES: [&str; 3] = ["command", "commands", "setup_commands"];
/// Beginning of a command that names a script of a user's library.
const SCRIPT: &str = "script:";
/// Type of a message whose content is a task, as JSON.
const TASK: &str = "task_assignment";
/// Programs that run what their arguments or their input say, by their names without a version.
const WRAPPERS: &str = ". alias ash at awk bash batch bind builtin busybox bwrap chroot chrt command coproc csh \
    dash deno doas enable env eval exec expect fakeroot fc fish flock gawk gdb gmake gosu \
    hash ionice ksh linux ltrace lua luajit make mapfile mawk nawk nice node nodejs nohup \
    nsenter parallel perl php pkexec pypy python rbash readarray ruby runcon runuser script \
    setarch setpriv setsid sg sh source ssh start-stop-daemon stdbuf strace su sudo \
    systemd-run taskset tcsh time timeout toybox trap tsx unshare valgrind watch x86_64 \
    xargs xonsh zsh";
/// Words of the shell's own, where the grammar took one for a program.
const RESERVED: &str =
    "! [[ ]] { } case do done elif else esac fi for function if in select then until while";
/// Program that runs another one only where its arguments begin like this.
const FIND: (&str, [&str; 2]) = ("find", ["-exec", "-ok"]);

/// Commands of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallCommands {
    /// Each command, in order; none for a call that runs none.
    Clear(Vec<CallCommand>),
    /// Construct that keeps the input from being taken apart.
    Unclear(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallCommand {
    /// Words of the command; `*` for one that a pattern stands for.
    pub(crate) words: Vec<String>,
    /// Construct that keeps the words from saying what runs. A list that admits commands by their first words
    /// ignores it.
    pub(crate) hides: Option<String>,
}

impl CallCommands {
    /// Words of each command, for rules that look for some of them.
    ///
    /// # Errors
    /// What cannot be judged.
    pub(crate) fn judged(&self) -> Result<Vec<&[String]>, &str> {
        match self {
            Self::Unclear(what) => Err(what),
            Self::Clear(commands) => commands
                .iter()
                .map(|command| command.hides.as_deref().map_or(Ok(&command.words[..]), Err))
                .collect(),
        }
    }

    /// True if some program is named by a path.
    pub(crate) fn have_paths(&self) -> bool {
        let path = |it: &CallCommand| it.words.first().is_some_and(|word| word.contains('/'));
        matches!(self, Self::Clear(commands) if commands.iter().any(path))
    }
}

impl CallCommand {
    fn new(words: Vec<Option<String>>) -> Self {
        let hides = hidden(&words);
        let words = words.into_iter().map(|word| word.unwrap_or_else(|| "*".to_owned())).collect();
        Self { words, hides }
    }
}

/// Last part of a program's path.
pub(crate) fn program_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or_default()
}

pub(super) fn of(args: &Value) -> CallCommands {
    match found(args) {
        Ok(commands) => CallCommands::Clear(commands),
        Err(what) => CallCommands::Unclear(what),
    }
}

fn found(args: &Value) -> Result<Vec<CallCommand>, String> {
    if args.get("entrypoint") == Some(&Value::Bool(true)) {
        return Err("the entry point of an image".to_owned());
    }
    // The programs of a library have names, and are kept and not run.
    if args.get("code").is_some_and(|code| code != "") && args.get("name").is_none() {
        return Err("the code of a program".to_owned());
    }
    if args.get("message_type").and_then(Value::as_str) == Some(TASK) {
        let content = args.get("content").and_then(Value::as_str).unwrap_or_default();
        let task: Value = json_text::from_str(content).map_err(|_| "a task that is not JSON")?;
        return found(&task);
    }
    let arguments = args.get("args").and_then(Value::as_array);
    let (mut lines, mut commands) = (Vec::new(), Vec::new());
    named(args, &LINES, &mut lines);
    for line in lines {
        match arguments {
            // With arguments beside it, a command is one program, and no shell reads it.
            Some(arguments) => {
                let words = arguments.iter().filter_map(Value::as_str);
                let words = std::iter::once(line).chain(words).map(|word| Some(word.to_owned()));
                commands.push(CallCommand::new(words.collect()));
            }
            None => commands.extend(of_line(line)?),
        }
    }
    Ok(commands)
}

/// The commands of a line.
fn of_line(line: &str) -> Result<Vec<CallCommand>, String> {
    let tokens = hivekeep_shell::parse(line).map_err(|unclear| unclear.0)?;
    let command = |token: &Token| match token {
        Token::Command(words) => Some(CallCommand::new(words.iter().map(Word::literal).collect())),
        Token::Operator(_) | Token::Redirect(..) => None,
    };
    Ok(tokens.iter().filter_map(command).collect())
}

/// Construct that keeps words from saying what runs. `None` among the words is one that a pattern stands
/// for, which may be any.
fn hidden(words: &[Option<String>]) -> Option<String> {
    let literal: Option<Vec<&str>> = words.iter().map(Option::as_deref).collect();
    let (first, rest) = match literal.as_deref() {
        Some([first, rest @ ..]) => (*first, rest),
        _ => return Some("a word that a pattern stands for".to_owned()),
    };
    let program = program_name(first);
    let unversioned = program.trim_end_matches(|c: char| c.is_ascii_digit() || ".-".contains(c));
    let wraps = WRAPPERS.split(' ').any(|name| name == program || name == unversioned);
    let reserved = RESERVED.split(' ').any(|word| word == first);
    let (find, runs) = FIND;
    let finds =
        program == find && rest.iter().any(|word| runs.iter().any(|it| word.starts_with(it)));
    if wraps || finds || reserved {
        return Some(format!("`{program}`, which runs what it is told"));
    }
    if first.starts_with(SCRIPT) {
        return Some("a script of the library".to_owned());
    }
    first.contains('=').then(|| "an assignment".to_owned())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, os::unix::fs::PermissionsExt, path::Path, process::Command};

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn clear(args: Value) -> Vec<Vec<String>> {
        let commands = of(&args);
        let judged = commands.judged().unwrap_or_else(|what| panic!("{args}: {what}"));
        judged.into_iter().map(<[String]>::to_vec).collect()
    }

    #[test]
    fn every_command_of_a_line_is_found() {
        let line = json!({ "command": "cd /x && git push origin main | tee 'a b'; rm -rf x" });
        let words = [
            &["cd", "/x"][..],
            &["git", "push", "origin", "main"],
            &["tee", "a b"],
            &["rm", "-rf", "x"],
        ];
        assert_eq!(clear(line), words);
        for line in ["git \\\n  push", "git\\\n push", "git \\\npush", "git push # \\\n"] {
            assert_eq!(clear(json!({ "command": line })), [["git", "push"]], "{line:?}");
        }
        assert_eq!(clear(json!({ "command": "a 'b\\\nc'" })), [["a", "b\\\nc"]]);
        let argv = json!({ "command": "git", "args": ["push", "a && b"] });
        assert_eq!(clear(argv), [["git", "push", "a && b"]]);
        let tasks =
            json!({ "tasks": [{ "name": "a", "command": "cargo" }, { "command": "ls; pwd" }] });
        assert_eq!(clear(tasks), [["cargo"], ["ls"], ["pwd"]]);
        let content = json!({ "task_id": "1", "command": "git push" }).to_string();
        let sent = json!({ "message_type": "task_assignment", "content": content });
        assert_eq!(clear(sent), [["git", "push"]]);
        assert_eq!(clear(json!({ "path": "x", "content": content })), Vec::<Vec<String>>::new());
        assert_eq!(clear(json!({ "command": "find . -name x" }))[0][0], "find");
    }

    #[test]
    fn what_hides_a_command_is_unclear() {
        for line in [
            "sh -c 'rm x'",
            "echo 'rm x' | sh",
            "/usr/bin/env rm x",
            "sudo rm x",
            "$(rm x)",
            "X=1 rm x",
            "rm x `pwd`",
            "f() { rm x; }",
            "xargs rm",
            "r* x",
            "touch push; git pus?",
            "git [p]ush",
            "echo \"$HOME\"",
            "a <<E\nE",
            "timeout 5 rm x",
            "busybox sh -c 'git push'",
            "find . -exec git push {} +",
            "python3.11 -c x",
            "lua5.4 x",
            "awk 'BEGIN { system(\"x\") }'",
            "make push",
            "! ! git push",
            "dd of=~/x",
            "git ''\\push",
            "git pu\\\nsh",
            "gi\\\nt push",
            "git \"pu\\\nsh\"",
            "git push \\ ",
            "ok\n\\\nok",
            "true;\\\n\\\ngit push",
        ] {
            let commands = of(&json!({ "command": line }));
            assert!(commands.judged().is_err(), "{line}: {commands:?}");
        }
        for args in [
            json!({ "command": "bash", "args": ["-c", "rm x"] }),
            json!({ "command": "script:tidy" }),
            json!({ "command": "x", "entrypoint": true }),
            json!({ "message_type": "task_assignment", "content": "rm x" }),
            json!({ "message_type": "task_assignment", "content": "{\"command\": \"sh -c 'rm x'\"}" }),
        ] {
            assert!(of(&args).judged().is_err(), "{args}");
        }
    }

    /// What a shell runs for a line, of programs that say their name and first argument.
    fn runs(shell: &str, line: &str) -> BTreeSet<String> {
        let folder = tempfile::tempdir().expect("a folder");
        let (bin, log) = (folder.path().join("bin"), folder.path().join("log"));
        std::fs::create_dir(&bin).expect("made");
        std::fs::write(&log, "").expect("written");
        for program in ["ok", "bad"] {
            let script = "#!/bin/sh\nprintf '%s %s\\000' \"${0##*/}\" \"$1\" >> \"$LOG\"\n";
            std::fs::write(bin.join(program), script).expect("written");
            let mode = PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(bin.join(program), mode).expect("set");
        }
        let mut command = Command::new(shell);
        command.arg("-c").arg(line).current_dir(folder.path()).stdin(std::process::Stdio::null());
        command.env_clear().env("PATH", &bin).env("LOG", &log);
        let _whatever = command.output().expect("the shell runs");
        let log = std::fs::read_to_string(log).expect("a log");
        log.split_terminator('\0').map(str::to_owned).collect()
    }

    /// Pieces of lines, most of them meant to be read otherwise than a shell reads them.
    fn piece() -> impl Strategy<Value = String> {
        let plain = prop::sample::select(vec![
            "ok", "ok", "bad", "o", "k", "x", "'a b'", "\"c\"", "b\\ad", "''", "{}", "-n", "'",
            "\"", "\\", "\\\n", "\\\n", "\\\n", "\\\\\n", "=", "#", "*", "~", "!",
        ]);
        let joined = prop::sample::select(vec![
            ";", "&&", "||", "|", "&", "\n", "(", ")", "{", "}", "\"", "$", "<", ">", "<<E\n",
            "E\n",
        ]);
        let tricks = prop::sample::select(vec![
            "$(bad)",
            "`bad`",
            "<(bad)",
            "$'\\'; bad #'",
            "> out bad",
            "2>&1 bad",
            "A=1 bad",
            "eval bad",
            "exec bad",
            "command bad",
            "coproc bad",
            "alias ok=bad\n",
            "trap bad EXIT",
            "# it's\n",
            "time bad",
            "b'a'd",
            "ok() { bad; }",
            "if ok; then bad; fi",
            "\rbad",
            "\u{a0}bad",
            "!bad",
        ]);
        prop_oneof![4 => plain, 2 => joined, 1 => tricks].prop_map(str::to_owned)
    }

    fn line() -> impl Strategy<Value = String> {
        let gap = prop::sample::select(vec!["", "", " ", " ", "\n"]);
        prop::collection::vec((piece(), gap), 1..9)
            .prop_map(|pieces| pieces.into_iter().map(|(piece, gap)| piece + gap).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn a_line_that_is_judged_runs_what_it_was_judged_by(line in line()) {
            let commands = of(&json!({ "command": line }));
            let Ok(judged) = commands.judged() else { return Ok(()) };
            let first = |words: &[String]| {
                let argument = words.get(1).map_or("", String::as_str);
                format!("{} {argument}", program_name(&words[0]))
            };
            let judged: BTreeSet<_> = judged.into_iter().map(first).collect();
            for shell in ["/bin/sh", "/bin/bash"].into_iter().filter(|it| Path::new(it).exists()) {
                for ran in runs(shell, &line) {
                    prop_assert!(judged.contains(&ran), "{line:?} runs {ran:?} in {shell}: {judged:?}");
                }
            }
        }
    }
}
