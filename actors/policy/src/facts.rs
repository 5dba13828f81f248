//! Facts of an input: the commands that it runs, the paths and the hosts that it names.
//!
//! They are read by the names of parameters, which are the same in all families. A command line is
//! taken apart by a shell's grammar ([`hivekeep_shell`]): what is judged are words, not text.

use std::sync::OnceLock;

use hivekeep_runtime::json_text;
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
/// Parameter that is a place: `[USER@]WORKSPACE[:FOLDER]`.
const PLACE: &str = "place";
/// Parameters that are a command line, or a list of such.
const COMMAND_LINES: [&str; 3] = ["command", "commands", "setup_commands"];
/// Beginning of a command that names a script of a user's library.
const SCRIPT_PREFIX: &str = "script:";
/// Type of a message whose content is a task, as JSON.
const TASK_MESSAGE: &str = "task_assignment";
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
const FIND_PROGRAM: (&str, [&str; 2]) = ("find", ["-exec", "-ok"]);

/// Facts of one call's input, each read when it is first asked for.
#[derive(Debug, Default)]
pub(crate) struct CallFacts<'a> {
    args: Option<&'a Value>,
    commands: OnceLock<CallCommands>,
    /// Variables of conditions, each made once for all rules; behind them the commands by the names of their
    /// programs.
    variables: [OnceLock<Variable>; VARIABLES.len() + 1],
}

impl<'a> CallFacts<'a> {
    /// Facts of an input.
    pub(crate) fn of(args: Option<&'a Value>) -> Self {
        Self { args, ..Self::default() }
    }

    /// Commands that the call runs.
    pub(crate) fn commands(&self) -> &CallCommands {
        let none = CallCommands::Clear(Vec::new());
        self.commands.get_or_init(|| self.args.map_or(none, commands_of))
    }

    /// Variable of conditions at a place.
    pub(crate) fn variable(&self, at: usize, make: impl FnOnce() -> Variable) -> &Variable {
        self.variables[at].get_or_init(make)
    }

    /// Paths that the call names, as they are written; relative ones from the folder that its place names,
    /// which is one of them.
    pub(crate) fn paths(&self) -> Vec<String> {
        let folder = |place: &'a str| place.split_once(':').map(|(_, folder)| folder);
        let absolute = |folder: &&str| folder.starts_with(['/', '~']);
        let roots = self.texts(&[PLACE]).into_iter().filter_map(folder).filter(absolute);
        let mut paths: Vec<String> = roots.map(str::to_owned).collect();
        let root = paths.first().cloned().unwrap_or_default();
        let from_root = |path: &str| match path.starts_with('/') {
            true => path.to_owned(),
            false => format!("{root}/{path}"),
        };
        paths.extend(self.texts(&PATH_PARAMETERS).into_iter().map(from_root));
        paths
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

fn commands_of(args: &Value) -> CallCommands {
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
    if args.get("message_type").and_then(Value::as_str) == Some(TASK_MESSAGE) {
        let content = args.get("content").and_then(Value::as_str).unwrap_or_default();
        let task: Value = json_text::from_str(content).map_err(|_| "a task that is not JSON")?;
        return found(&task);
    }
    let arguments = args.get("args").and_then(Value::as_array);
    let (mut lines, mut commands) = (Vec::new(), Vec::new());
    named(args, &COMMAND_LINES, &mut lines);
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
    let (find, runs) = FIND_PROGRAM;
    let finds =
        program == find && rest.iter().any(|word| runs.iter().any(|it| word.starts_with(it)));
    if wraps || finds || reserved {
        return Some(format!("`{program}`, which runs what it is told"));
    }
    if first.starts_with(SCRIPT_PREFIX) {
        return Some("a script of the library".to_owned());
    }
    first.contains('=').then(|| "an assignment".to_owned())
}

#[cfg(test)]
mod tests;
