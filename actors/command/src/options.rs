//! Section `[command]`, and the allow list of programs that it sets: it judges every command of a line, and gives
//! back what was judged.

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_runtime::FamilyOptions;
use hivekeep_shell::{self as shell_line, Token, Unclear, Word};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::codes;

/// Longest grace period between the two signals of a stop.
pub(crate) const MAX_GRACE_SECS: u64 = 300;

/// Commands that sessions may run in their places.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Commands that may be run, by their first words: "cargo test" allows that with any arguments
    /// behind it, "python3" every use of python3. A program that takes commands from files or from its
    /// arguments runs those, too. Empty allows all. Programs are compared as written,
    /// so that "rm" is not "/bin/rm". "script:NAME" allows a script of that name, whatever its user writes
    /// into it. It binds the tools of this section, and not `exec`.
    pub allow: Vec<String>,
    /// Whether `cmd.run` may use a shell for a line. With an allow list every command of the line is
    /// judged, and a line that cannot be judged is refused; `bash` needs this too then.
    pub shell: bool,
    /// Variables that calls may give to the commands of `allow`, themselves or by `set_env`: names, or
    /// beginnings that end with `*`. Many a program runs what a variable says. Without `allow` calls may
    /// give any.
    pub allow_variables: Vec<String>,
    /// Variables of `set_env` that commands get without `allow`: names, or beginnings that end with `*`.
    pub workspace_variables: Vec<String>,
    /// Seconds between SIGTERM and SIGKILL in `process_stop`.
    #[schemars(range(max = MAX_GRACE_SECS))]
    pub stop_grace_secs: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            shell: false,
            allow_variables: Vec::new(),
            workspace_variables: vec!["*".to_owned()],
            stop_grace_secs: 10,
        }
    }
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        for rule in &self.allow {
            let program = rule.split_ascii_whitespace().next().unwrap_or_default();
            if program.is_empty() || program.contains('/') && !program.starts_with('/') {
                let why = format!("{rule:?} begins with no program by its name or absolute path");
                problems.push(("allow", why));
            }
        }
        problems
    }
}

type Answer<T> = Result<T, ToolError>;

/// Commands that may be run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    /// First words of the commands that may be run; none allow all.
    allowed: Vec<Vec<String>>,
    /// A shell may be used.
    shell: bool,
}

/// Command of a line, as it is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Runnable {
    /// A program with its arguments.
    Program(Vec<String>),
    /// A line for a shell.
    Script(String),
}

impl Rules {
    pub(crate) fn new(options: &Options) -> Self {
        let words = |rule: &String| rule.split_ascii_whitespace().map(str::to_owned).collect();
        Self { allowed: options.allow.iter().map(words).collect(), shell: options.shell }
    }

    /// Judges a program with its arguments.
    ///
    /// # Errors
    /// `command_not_allowed`.
    pub(crate) fn program(&self, argv: Vec<String>) -> Answer<Vec<String>> {
        let words: Vec<_> = argv.iter().map(|word| Some(word.as_str())).collect();
        if self.allows(&words) { Ok(argv) } else { Err(not_allowed(&argv[0])) }
    }

    /// Judges a line that is one program with its arguments or, where a shell is granted, more.
    ///
    /// # Errors
    /// `command_not_allowed`, `command_not_judged`, `command_needs_shell`.
    pub(crate) fn line(&self, line: &str) -> Answer<Runnable> {
        if self.shell && self.allowed.is_empty() {
            return Ok(Runnable::Script(line.to_owned()));
        }
        let parsed = shell_line::parse(line).map_err(|what| self.unclear(&what))?;
        if let [Token::Command(words)] = &parsed[..]
            && let Some(argv) = words.iter().map(Word::literal).collect()
        {
            return self.program(argv).map(Runnable::Program);
        }
        if !self.shell {
            return Err(needs_shell("operators, redirections and patterns are a shell's"));
        }
        self.judge(&parsed).map(|()| Runnable::Script(shell_line::render(&parsed)))
    }

    /// Judges a line of a tool that always uses a shell.
    ///
    /// # Errors
    /// See [`Self::line`]; an allow list without a grant of a shell refuses all.
    pub(crate) fn script(&self, line: &str) -> Answer<String> {
        if self.allowed.is_empty() {
            return Ok(line.to_owned());
        }
        if !self.shell {
            return Err(needs_shell("the allow list leaves no shell"));
        }
        let parsed = shell_line::parse(line).map_err(|what| self.unclear(&what))?;
        self.judge(&parsed).map(|()| shell_line::render(&parsed))
    }

    fn judge(&self, line: &[Token]) -> Answer<()> {
        for token in line {
            let Token::Command(words) = token else { continue };
            let literal: Vec<_> = words.iter().map(Word::literal).collect();
            let words: Vec<_> = literal.iter().map(Option::as_deref).collect();
            if !self.allows(&words) {
                return Err(not_allowed(words.first().copied().flatten().unwrap_or("a pattern")));
            }
        }
        Ok(())
    }

    /// Whether some rule is the beginning of these words; `None` is one that only a shell knows.
    fn allows(&self, words: &[Option<&str>]) -> bool {
        let begins = |rule: &Vec<String>| {
            rule.len() <= words.len()
                && rule.iter().zip(words).all(|(rule, word)| *word == Some(rule.as_str()))
        };
        self.allowed.is_empty() || self.allowed.iter().any(begins)
    }

    fn unclear(&self, what: &Unclear) -> ToolError {
        let Unclear(what) = what;
        match self.shell {
            true => {
                let message = format!("the line has {what}, which cannot be judged");
                ToolError::new(Layer::Policy, codes::COMMAND_NOT_JUDGED, message)
                    .next("write plain commands, or give one program with `args`")
            }
            false => needs_shell(&format!("the line has {what}")),
        }
    }
}

fn needs_shell(why: &str) -> ToolError {
    ToolError::new(Layer::Policy, codes::COMMAND_NEEDS_SHELL, format!("{why}; no shell is granted"))
        .next("give one program in `command` and its arguments in `args`")
}

fn not_allowed(program: &str) -> ToolError {
    let shown: String = program.chars().take(80).collect();
    let message = format!("`{shown}` with these arguments is not on the list of allowed commands");
    ToolError::new(Layer::Policy, codes::COMMAND_NOT_ALLOWED, message)
        .next("the operator sets the list with `command.allow`")
}
