//! Runner: executes the guest's git once.

use std::time::Duration;

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_link::{CallTerms, ExecOutput, Link, LinkError, link_error};
use hivekeep_protocol::{Argv, Credential, ExecAsking, Exit, GuestCode, RunCommand};

use crate::codes;

pub use hivekeep_link::AuthenticationRecord;

/// Time beyond git's own limit that the guest's answer is awaited.
const ANSWER_MARGIN: Duration = Duration::from_secs(10);

/// Default variables, which a caller's environment may override.
const USUAL: [(&str, &str); 5] = [
    ("GIT_EDITOR", ":"),
    ("GIT_SEQUENCE_EDITOR", ":"),
    ("GIT_PAGER", "cat"),
    ("GIT_SSH_COMMAND", "ssh -oBatchMode=yes"),
    ("GIT_MERGE_AUTOEDIT", "no"),
];

/// Fixed variables of every run: nobody is prompted, no address names a program, and git's output
/// can be parsed.
const FIXED: [(&str, &str); 3] = [
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ALLOW_PROTOCOL", "https:http:git:ssh:file"),
    ("LC_ALL", "C"),
];

/// Parameters of one run of git.
#[derive(Debug, Clone, Copy)]
pub struct GitCall<'a> {
    /// Working directory, which must exist.
    pub dir: &'a str,
    /// Arguments without the leading `git`. A word from outside belongs behind `--` or
    /// `--end-of-options`.
    pub args: &'a [&'a str],
    /// Variables on top of the guest's base environment; later ones win.
    pub env: &'a [(&'a str, &'a str)],
    /// User that git runs as, such as [`Argv::REPOSITORY_OWNER`]; `None` for root.
    pub user: Option<&'a str>,
    /// Time limit; at its end git and everything that it started are killed.
    pub timeout: Duration,
    /// Maximum output of each stream; the rest is dropped.
    pub max_output_bytes: u64,
}

/// Result of a run that ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitDone {
    /// Exit code; 128 and the signal's number when a signal ended it.
    pub exit_code: i32,
    /// Captured stdout, cut if too long.
    pub stdout: Vec<u8>,
    /// Number of bytes written to stdout, kept or not.
    pub stdout_bytes: u64,
    /// Captured stderr, cut if too long.
    pub stderr: Vec<u8>,
    /// True if either stream was cut.
    pub truncated: bool,
}

impl GitDone {
    /// True if git exited with 0.
    pub fn ok(&self) -> bool {
        self.exit_code == 0
    }
}

/// Runs [`git`] and answers servers that ask for credentials. The credential is given to this one
/// run; without one the question is recorded all the same.
///
/// # Errors
/// See [`git`]; `guest_unsupported` by a guest that is too old for this.
pub async fn git_asking(
    link: &Link,
    call: GitCall<'_>,
    credential: Option<Credential>,
) -> Result<(GitDone, AuthenticationRecord), ToolError> {
    let wait = CallTerms::at_most(call.timeout + ANSWER_MARGIN);
    let asking = |exec| {
        let request = ExecAsking { exec, credential: credential.clone() };
        link.exec_asking(request, wait.clone())
    };
    let (output, asked) = match start(&call, asking).await {
        Ok((output, asked)) => (Ok(output), asked),
        Err(LinkError::Guest(error)) if error.code == GuestCode::Unsupported => {
            let message = "the workspace runs a guest of before this daemon, which cannot do this";
            return Err(ToolError::new(Layer::Guest, codes::GUEST_UNSUPPORTED, message)
                .next("workspace_stop and workspace_start it: then it runs this daemon's guest"));
        }
        Err(error) => (Err(error), AuthenticationRecord::default()),
    };
    Ok((done(&call, output)?, asked))
}

/// Runs git without input. Any exit code is a result. Dropping the future ends git in the guest.
///
/// # Errors
/// `git_missing`, `git_timed_out`; `not_found` and `not_a_directory` for `dir`; errors of the link
/// to the guest.
pub async fn git(link: &Link, call: GitCall<'_>) -> Result<GitDone, ToolError> {
    let wait = CallTerms::at_most(call.timeout + ANSWER_MARGIN);
    let output = start(&call, |exec| link.exec(exec, wait.clone(), |_, _| {})).await;
    done(&call, output)
}

/// Starts a call. An older guest takes the owner for an unknown user name; git runs as root there.
async fn start<T, F: Future<Output = Result<T, LinkError>>>(
    call: &GitCall<'_>,
    exec: impl Fn(RunCommand) -> F,
) -> Result<T, LinkError> {
    match exec(exec_of(call)).await {
        Err(LinkError::Guest(error))
            if error.code == GuestCode::UnknownUser
                && call.user == Some(Argv::REPOSITORY_OWNER) =>
        {
            exec(exec_of(&GitCall { user: None, ..*call })).await
        }
        outcome => outcome,
    }
}

fn exec_of(call: &GitCall<'_>) -> RunCommand {
    let words = std::iter::once("git").chain(call.args.iter().copied());
    let env = USUAL.iter().chain(call.env).chain(&FIXED);
    let argv = Argv::Direct(words.map(str::to_owned).collect());
    RunCommand {
        argv: match call.user {
            Some(user) => argv.as_user(user),
            None => argv,
        },
        env: env.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        workdir: Some(call.dir.to_owned()),
        timeout_ms: u64::try_from(call.timeout.as_millis()).unwrap_or(u64::MAX),
        max_output_bytes: call.max_output_bytes,
    }
}

fn done(call: &GitCall<'_>, output: Result<ExecOutput, LinkError>) -> Result<GitDone, ToolError> {
    let missing = || {
        ToolError::new(Layer::Guest, codes::GIT_MISSING, "the image has no git")
            .next("install git in the workspace, or use an image that has it")
    };
    let output = match output {
        // Exit code of the guest's role `as` for a program that is not found; git itself never exits with it.
        Ok(output) if output.done.exit == Exit::Code(127) => return Err(missing()),
        Ok(output) => output,
        Err(LinkError::Guest(error)) if error.code == GuestCode::CannotStart => {
            return Err(missing());
        }
        Err(error) => return Err(link_error(error)),
    };
    if output.done.timed_out {
        let secs = call.timeout.as_secs();
        let message = format!("git did not end within {secs} s; it was killed");
        return Err(ToolError::new(Layer::Guest, codes::GIT_TIMED_OUT, message)
            .next("look at what it left with git_status, then repeat with more time")
            .detail("timeout_secs", secs)
            .retryable());
    }
    let cut = |kept: &[u8], total: u64| (kept.len() as u64) < total;
    Ok(GitDone {
        exit_code: match output.done.exit {
            Exit::Code(code) => code,
            Exit::Signal(signal) => signal.saturating_add(128),
        },
        truncated: cut(&output.stdout.bytes, output.stdout.total_bytes)
            || cut(&output.stderr.bytes, output.stderr.total_bytes),
        stdout_bytes: output.stdout.total_bytes,
        stdout: output.stdout.bytes,
        stderr: output.stderr.bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_git_quiet_cannot_be_set_otherwise() {
        let asked = [("GIT_TERMINAL_PROMPT", "1"), ("LC_ALL", "de_DE"), ("GIT_PAGER", "less")];
        let call = GitCall {
            dir: "/workspace",
            args: &["status", "--", "a b; c"],
            env: &asked,
            user: None,
            timeout: Duration::from_secs(2),
            max_output_bytes: 10,
        };
        let exec = exec_of(&call);
        let words = ["git", "status", "--", "a b; c"].map(str::to_owned).to_vec();
        assert_eq!(exec.argv, Argv::Direct(words));
        let value = |name: &str| exec.env.iter().rfind(|(n, _)| n == name).map(|(_, v)| &**v);
        assert_eq!(value("GIT_TERMINAL_PROMPT"), Some("0"));
        assert_eq!(value("LC_ALL"), Some("C"));
        assert_eq!(value("GIT_PAGER"), Some("less"));
        assert_eq!(value("GIT_EDITOR"), Some(":"));
        assert_eq!((exec.timeout_ms, exec.workdir.as_deref()), (2000, Some("/workspace")));
    }
}
