//! Facts of an input: the commands that it runs, the paths and the hosts that it names.
//!
//! They are read by the names of parameters, which are the same in all families. A command line is
//! taken apart by a shell's grammar ([`hivekeep_shell`]): what is judged are words, not text.

use std::sync::OnceLock;

use hivekeep_shell::{Token, Word};
use serde_json::Value;

use crate::condition::{VARIABLES, Variable};

/// Parameters, at any depth of an input, that are a path or a list of paths. A test of the catalogue
/// keeps the list closed.
pub const PATH_PARAMETERS: [&str; 13] = [
    "path",
    "paths",
    "file_path",
    "new_path",
    "oldPath",
    "newPath",
    "path_prefix",
    "host_path",
    "guest_path",
    "workdir",
    "cwd",
    "dir",
    "sparse_paths",
];
/// Parameters that are an address.
const ADDRESSES: [&str; 3] = ["url", "git_url", "repo_url"];
/// Parameters that are a command line, or a list of such.
const LINES: [&str; 3] = ["command", "commands", "setup_commands"];
/// Beginning of a command that names a script of a user's library.
const SCRIPT: &str = "script:";
/// Type of a message whose content is a task, as JSON.
const TASK: &str = "task_assignment";
/// Programs that run what their arguments say: the words behind them are another command.
const WRAPPERS: [&str; 30] = [
    ".", "ash", "bash", "builtin", "chroot", "command", "dash", "doas", "env", "eval", "exec",
    "ksh", "nice", "nohup", "nsenter", "parallel", "setsid", "sh", "source", "ssh", "stdbuf", "su",
    "sudo", "time", "timeout", "trap", "unshare", "watch", "xargs", "zsh",
];

/// Commands of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallCommands {
    /// The words of each command, in order; none for a call that runs none.
    Clear(Vec<Vec<String>>),
    /// What cannot be judged.
    Unclear(String),
}

/// Facts of one call's input, each read when it is first asked for.
#[derive(Debug, Default)]
pub(crate) struct CallFacts<'a> {
    args: Option<&'a Value>,
    commands: OnceLock<CallCommands>,
    /// Variables of conditions, each made once for all rules.
    variables: [OnceLock<Variable>; VARIABLES.len()],
}

impl<'a> CallFacts<'a> {
    /// Facts of an input.
    pub(crate) fn of(args: Option<&'a Value>) -> Self {
        Self { args, ..Self::default() }
    }

    /// Commands that the call runs.
    pub(crate) fn commands(&self) -> &CallCommands {
        self.commands.get_or_init(|| self.args.map_or(CallCommands::Clear(Vec::new()), commands))
    }

    /// Variable of conditions at a place.
    pub(crate) fn variable(&self, at: usize, make: impl FnOnce() -> Variable) -> &Variable {
        self.variables[at].get_or_init(make)
    }

    /// Paths that the call names, as they are written.
    pub(crate) fn paths(&self) -> Vec<&'a str> {
        self.texts(&PATH_PARAMETERS)
    }

    /// Hosts that the call names, in small letters; `Err` is an address without one.
    pub(crate) fn hosts(&self) -> Vec<Result<String, &'a str>> {
        self.texts(&ADDRESSES).into_iter().map(|address| host(address).ok_or(address)).collect()
    }

    fn texts(&self, names: &[&str]) -> Vec<&'a str> {
        let mut found = Vec::new();
        if let Some(args) = self.args {
            named(args, names, &mut found);
        }
        found
    }
}

/// Texts of the parameters of these names, at any depth.
fn named<'a>(value: &'a Value, names: &[&str], found: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            for (name, below) in map {
                if names.contains(&name.as_str()) {
                    found.extend(texts(below));
                }
                named(below, names, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|below| named(below, names, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A text, or the texts of a list.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
        value => value.as_str().into_iter().collect(),
    }
}

fn commands(args: &Value) -> CallCommands {
    match found_commands(args) {
        Ok(commands) => CallCommands::Clear(commands),
        Err(what) => CallCommands::Unclear(what),
    }
}

fn found_commands(args: &Value) -> Result<Vec<Vec<String>>, String> {
    if args.get("entrypoint") == Some(&Value::Bool(true)) {
        return Err("the entry point of an image".to_owned());
    }
    // The programs of a library have names, and are kept and not run.
    if args.get("code").is_some_and(|code| code != "") && args.get("name").is_none() {
        return Err("the code of a program".to_owned());
    }
    if args.get("message_type").and_then(Value::as_str) == Some(TASK) {
        let content = args.get("content").and_then(Value::as_str).unwrap_or_default();
        let task: Value = serde_json::from_str(content).map_err(|_| "a task that is not JSON")?;
        return found_commands(&task);
    }
    let arguments = args.get("args").and_then(Value::as_array);
    let (mut lines, mut found) = (Vec::new(), Vec::new());
    named(args, &LINES, &mut lines);
    for line in lines {
        // With arguments beside it, a command is one program, and no shell reads it.
        let commands = match arguments {
            Some(arguments) => {
                let words = arguments.iter().filter_map(Value::as_str).map(str::to_owned);
                vec![std::iter::once(line.to_owned()).chain(words).collect()]
            }
            None => words(line)?,
        };
        found.extend(bare(commands)?);
    }
    Ok(found)
}

/// The commands of a line.
fn words(line: &str) -> Result<Vec<Vec<String>>, String> {
    let tokens = hivekeep_shell::parse(line).map_err(|unclear| unclear.0)?;
    let commands = tokens.iter().filter_map(|token| match token {
        Token::Command(words) => Some(words),
        Token::Operator(_) | Token::Redirect(..) => None,
    });
    commands
        .map(|words| {
            let literal: Option<Vec<_>> = words.iter().map(Word::literal).collect();
            match (literal, words.first().and_then(Word::literal)) {
                (Some(words), _) => Ok(words),
                // Names that a pattern stands for are arguments, and stay what they are.
                (None, Some(_)) => Ok(words
                    .iter()
                    .map(|word| word.literal().unwrap_or_else(|| "*".to_owned()))
                    .collect()),
                (None, None) => Err("a program that a pattern stands for".to_owned()),
            }
        })
        .collect()
}

/// Refuses commands whose words hide another one.
fn bare(commands: Vec<Vec<String>>) -> Result<Vec<Vec<String>>, String> {
    for words in &commands {
        let program = words[0].rsplit('/').next().unwrap_or_default();
        if WRAPPERS.binary_search(&program).is_ok() && words.len() > 1 {
            return Err(format!("`{program}`, which runs what its arguments say"));
        }
        if words[0].starts_with(SCRIPT) {
            return Err("a script of the library".to_owned());
        }
        if words[0].contains('=') {
            return Err("an assignment".to_owned());
        }
    }
    Ok(commands)
}

/// Host of an address: of a URL, or of `user@host:path` as git has it.
fn host(address: &str) -> Option<String> {
    let behind = |text: &str| match text.split_once("://") {
        Some((_, rest)) => rest.split(['/', '?', '#']).next().map(str::to_owned),
        None => text.split_once(':').map(|(host, _)| host.to_owned()),
    };
    let authority = behind(address)?;
    let host = authority.rsplit('@').next()?;
    let host = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next()?,
        None => host.split(':').next()?,
    };
    (!host.is_empty()).then(|| host.trim_end_matches('.').to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn clear(args: Value) -> Vec<Vec<String>> {
        match commands(&args) {
            CallCommands::Clear(commands) => commands,
            CallCommands::Unclear(what) => panic!("{args}: {what}"),
        }
    }

    #[test]
    fn every_command_of_a_line_is_found() {
        let line = json!({ "command": "cd /x && git push origin main | tee 'a b'; rm -rf *" });
        let words = [
            &["cd", "/x"][..],
            &["git", "push", "origin", "main"],
            &["tee", "a b"],
            &["rm", "-rf", "*"],
        ];
        assert_eq!(clear(line), words);
        let argv = json!({ "command": "git", "args": ["push", "a && b"] });
        assert_eq!(clear(argv), [["git", "push", "a && b"]]);
        let tasks =
            json!({ "tasks": [{ "name": "a", "command": "make" }, { "command": "ls; pwd" }] });
        assert_eq!(clear(tasks), [["make"], ["ls"], ["pwd"]]);
        let content = json!({ "task_id": "1", "command": "git push" }).to_string();
        let sent = json!({ "message_type": "task_assignment", "content": content });
        assert_eq!(clear(sent), [["git", "push"]]);
        assert_eq!(clear(json!({ "path": "x", "content": content })), Vec::<Vec<String>>::new());
        let deep = json!({ "tasks": [{ "workdir": "/w" }], "volumes": [{ "path": "/v" }], "newPath": "/n" });
        let mut paths = CallFacts::of(Some(&deep)).paths();
        paths.sort_unstable();
        assert_eq!(paths, ["/n", "/v", "/w"]);
    }

    #[test]
    fn what_hides_a_command_is_unclear() {
        assert!(WRAPPERS.is_sorted());
        for line in [
            "sh -c 'rm x'",
            "/usr/bin/env rm x",
            "sudo rm x",
            "$(rm x)",
            "X=1 rm x",
            "rm x `pwd`",
            "f() { rm x; }",
            "xargs rm",
            "r* x",
            "echo \"$HOME\"",
            "a <<E\nE",
            "timeout 5 rm x",
        ] {
            assert!(
                matches!(commands(&json!({ "command": line })), CallCommands::Unclear(_)),
                "{line}"
            );
        }
        for args in [
            json!({ "command": "bash", "args": ["-c", "rm x"] }),
            json!({ "command": "script:tidy" }),
            json!({ "command": "x", "entrypoint": true }),
            json!({ "message_type": "task_assignment", "content": "rm x" }),
            json!({ "message_type": "task_assignment", "content": "{\"command\": \"sh -c 'rm x'\"}" }),
        ] {
            assert!(matches!(commands(&args), CallCommands::Unclear(_)), "{args}");
        }
    }

    #[test]
    fn hosts_are_those_that_are_asked() {
        for (address, expected) in [
            ("https://Example.org:8443/x", Some("example.org")),
            ("https://good.org@evil.org/", Some("evil.org")),
            ("https://good.org:x@evil.org:1/", Some("evil.org")),
            ("git@github.com:a/b.git", Some("github.com")),
            ("http://[::1]:80/", Some("::1")),
            ("https://example.org.?x", Some("example.org")),
            ("https:///x", None),
            ("nothing", None),
        ] {
            assert_eq!(host(address).as_deref(), expected, "{address}");
        }
    }
}
