//! Script of a step for `/bin/sh` in a guest: a folder of its own, the shell that the step wants, its lines.

use std::fmt::Write;

use hivekeep_manifest::dag::{DagManifest, OneOrMore};
use hivekeep_plan::lower::StepLines;
use serde_json::Value;

/// Program of the guest, whose role `as` becomes a user: a file of each sandbox, and of a virtual machine the first
/// process.
pub(crate) const GUEST: &str =
    "$([ -x /run/hivekeep/guest ] && echo /run/hivekeep/guest || echo /proc/1/exe)";
/// Exit status of a step whose folders or shell cannot be used.
pub(crate) const NOT_STARTED: i32 = 125;
/// Shells with the notation of POSIX.
const UNIX_SHELLS: [&str; 6] = ["sh", "bash", "zsh", "ksh", "ash", "dash"];

/// Whether a program is a shell with the notation of POSIX, by its name.
pub(crate) fn is_shell(program: &str) -> bool {
    UNIX_SHELLS.contains(&program.rsplit('/').next().unwrap_or_default())
}

/// Shell of a step with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StepShell {
    program: String,
    args: Vec<String>,
    /// True if the step itself names it.
    is_own: bool,
}

impl StepShell {
    /// Shell that a step names in its settings, or else that of the DAG, or else `/bin/sh`. Settings are resolved;
    /// `resolve` does that for texts of the DAG.
    pub(super) fn of(
        with: &serde_json::Map<String, Value>,
        root: &DagManifest,
        resolve: &dyn Fn(&str) -> String,
    ) -> Self {
        let words = |value: &Value| match value {
            Value::Array(words) => {
                words.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            one => one
                .as_str()
                .map(|text| text.split_whitespace().map(str::to_owned).collect())
                .unwrap_or_default(),
        };
        let own: Vec<String> = with.get("shell").map(words).unwrap_or_default();
        let more = with.get("shell_args").map(words).unwrap_or_default();
        let of_root = || {
            let texts: Vec<String> = match &root.shell {
                Some(OneOrMore::One(text)) => text.split_whitespace().map(str::to_owned).collect(),
                Some(OneOrMore::More(words)) => words.clone(),
                None => vec!["/bin/sh".to_owned()],
            };
            let words = [texts, root.shell_args.clone().unwrap_or_default()].concat();
            words.iter().map(|word| resolve(word)).collect::<Vec<_>>()
        };
        let is_own = !own.is_empty();
        let mut words = if is_own { [own, more].concat() } else { of_root() }.into_iter();
        let program = words.next().unwrap_or_else(|| "/bin/sh".to_owned());
        Self { program, args: words.collect(), is_own }
    }

    /// Words before a line or a file: a Unix shell that the step does not name stops at what fails.
    fn words(&self) -> Vec<&str> {
        let stops = !self.is_own && is_shell(&self.program);
        let stops = stops && !self.args.iter().any(|word| word == "-e");
        let args = self.args.iter().map(String::as_str).filter(|word| *word != "-c");
        [self.program.as_str()].into_iter().chain(args).chain(stops.then_some("-e")).collect()
    }
}

/// Command of a step.
pub(super) enum StepCommand<'c> {
    Lines(&'c StepLines, StepShell),
    Program { program: &'c str, args: &'c [String], stdin: Option<&'c str> },
}

/// Where a step works.
pub(super) struct StepFolders<'f> {
    /// Folder of the try, for its script and its outputs.
    pub(super) own: &'f str,
    /// Working directory; made where it is the run's own.
    pub(super) work: &'f str,
    pub(super) makes_work: bool,
    /// True if the step declares outputs.
    pub(super) declares: bool,
    /// Files that take the streams.
    pub(super) stdout: Option<&'f str>,
    pub(super) stderr: Option<&'f str>,
    /// Further folders that are made.
    pub(super) more: &'f [String],
    /// User of the guest that the command runs as; root without one.
    pub(super) user: Option<&'f str>,
}

/// File that the declared outputs of a try are written to, in its folder.
pub(super) fn output_file(own: &str) -> String {
    format!("{own}/output")
}

/// Script that runs a command.
pub(super) fn script(command: &StepCommand<'_>, folders: &StepFolders<'_>) -> String {
    let own = quoted(folders.own);
    let work = quoted(folders.work);
    let more = folders.more.iter().map(String::as_str);
    let made = more.chain(folders.makes_work.then_some(folders.work));
    let made: String = made.map(|folder| format!(" {}", quoted(folder))).collect();
    let mut text = format!("mkdir -p {own}{made} && : >{own}/output");
    if folders.user.is_some() {
        // The folders are root's, and what another user writes there is that one's.
        let _infallible = write!(text, " && chmod 777 {own}{made} && chmod 666 {own}/output");
    }
    let _infallible = writeln!(text, " && cd {work} || exit {NOT_STARTED}");
    let user = as_user(folders.user);
    let (mut before, mut after) = (String::new(), String::new());
    if folders.stdout.is_some() || folders.stderr.is_some() {
        // The streams are seen when the step is over.
        let to = |file: Option<&str>, stream: &str, shown: &str| {
            let Some(file) = file.map(quoted) else { return (String::new(), String::new()) };
            (format!(" {stream}>{file}"), format!("cat {file}{shown}\n"))
        };
        let (out, show_out) = to(folders.stdout, "1", "");
        let (err, show_err) = to(folders.stderr, "2", " >&2");
        before.push_str("(\n");
        let _infallible =
            write!(after, "){out}{err}\nstatus=$?\n{show_out}{show_err}exit $status\n");
    }
    text.push_str(&before);
    match command {
        StepCommand::Program { program, args, stdin } => {
            let words = args.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
            if let Some(stdin) = stdin {
                let _infallible = write!(text, "printf %s {} | ", quoted(stdin));
            }
            let _infallible = writeln!(text, "{user}{} {words}", quoted(program));
        }
        StepCommand::Lines(StepLines::Commands(lines), shell) => {
            let words = shell.words().into_iter().map(quoted).collect::<Vec<_>>().join(" ");
            for line in lines {
                let _infallible = writeln!(text, "{user}{words} -c {} || exit $?", quoted(line));
            }
        }
        StepCommand::Lines(StepLines::Script(lines), shell) => {
            let _infallible =
                writeln!(text, "printf %s {} >{own}/script || exit {NOT_STARTED}", quoted(lines));
            let interpreter = interpreter(lines).filter(|_| !shell.is_own);
            let words = match &interpreter {
                Some(words) => words.iter().map(|word| quoted(word)).collect::<Vec<_>>(),
                None => shell.words().into_iter().map(quoted).collect(),
            };
            let _infallible = writeln!(text, "{user}{} {own}/script", words.join(" "));
        }
    }
    if !folders.declares {
        let told = quoted(
            "DAGU_OUTPUT_FILE has an output that the step does not declare: add it to `outputs`",
        );
        let _infallible = writeln!(
            text,
            "status=$?\n[ ! -s {own}/output ] || {{ echo {told} >&2; exit {NOT_STARTED}; }}\n(exit $status)"
        );
    }
    text.push_str(&after);
    text
}

/// Words before a program that runs as a user of the guest.
pub(crate) fn as_user(user: Option<&str>) -> String {
    user.map(|user| format!("{GUEST} as {} ", quoted(user))).unwrap_or_default()
}

/// Words of the first line of a script that names an interpreter.
fn interpreter(script: &str) -> Option<Vec<String>> {
    let line = script.lines().next()?.strip_prefix("#!")?;
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    (!words.is_empty()).then_some(words)
}

/// Word that a shell reads as this text.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
