//! Running the guest's git once.

use std::time::Duration;

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_link::{ExecOutput, Link, LinkError, Wait, link_error};
use hivekeep_protocol::{Argv, Credential, Exec, ExecAsking, Exit, GuestCode};

use crate::codes;

pub use hivekeep_link::Asked;

/// How much longer than git's own limit the guest's answer is awaited.
const ANSWER_MARGIN: Duration = Duration::from_secs(10);

/// What a caller's environment may set otherwise.
const USUAL: [(&str, &str); 5] = [
    ("GIT_EDITOR", ":"),
    ("GIT_SEQUENCE_EDITOR", ":"),
    ("GIT_PAGER", "cat"),
    ("GIT_SSH_COMMAND", "ssh -oBatchMode=yes"),
    ("GIT_MERGE_AUTOEDIT", "no"),
];

/// What holds for every run: nobody is asked, no address names a program, and what git
/// says can be read by programs.
const FIXED: [(&str, &str); 3] = [
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ALLOW_PROTOCOL", "https:http:git:ssh:file"),
    ("LC_ALL", "C"),
];

/// One run of git.
#[derive(Debug, Clone, Copy)]
pub struct GitCall<'a> {
    /// Where it runs. Has to be there.
    pub dir: &'a str,
    /// Without the `git` in front. A word that is not ours belongs behind `--` or
    /// `--end-of-options`.
    pub args: &'a [&'a str],
    /// Over the guest's base environment; later ones win.
    pub env: &'a [(&'a str, &'a str)],
    /// At its end git and all that it started are killed.
    pub timeout: Duration,
    /// Of each stream. What is beyond is dropped.
    pub max_output_bytes: u64,
}

/// How a run ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitDone {
    /// 128 and the signal's number when a signal ended it.
    pub exit_code: i32,
    /// Its first part, if it was too long.
    pub stdout: Vec<u8>,
    /// What it wrote, kept or not.
    pub stdout_bytes: u64,
    /// As `stdout`.
    pub stderr: Vec<u8>,
    /// Whether either is not whole.
    pub truncated: bool,
}

impl GitDone {
    /// Whether it exited with 0.
    pub fn ok(&self) -> bool {
        self.exit_code == 0
    }
}

/// [`git`], with somebody to answer servers that ask who one is. The credential is told to
/// this one run; without one the question is heard all the same.
///
/// # Errors
/// As [`git`]; `guest_unsupported` by a guest that was started before it could do this.
pub async fn git_asking(
    link: &Link,
    call: GitCall<'_>,
    credential: Option<Credential>,
) -> Result<(GitDone, Asked), ToolError> {
    let wait = Wait::at_most(call.timeout + ANSWER_MARGIN);
    let request = ExecAsking { exec: exec_of(&call), credential };
    let (output, asked) = match link.exec_asking(request, wait).await {
        Ok((output, asked)) => (Ok(output), asked),
        Err(LinkError::Guest(error)) if error.code == GuestCode::Unsupported => {
            let message = "the workspace runs a guest of before this daemon, which cannot do this";
            return Err(ToolError::new(Layer::Guest, codes::GUEST_UNSUPPORTED, message)
                .next("workspace_stop and workspace_start it: then it runs this daemon's guest"));
        }
        Err(error) => (Err(error), Asked::default()),
    };
    Ok((done(&call, output)?, asked))
}

/// Runs git without input. Any exit code is an outcome. A dropped future ends git in the guest.
///
/// # Errors
/// `git_missing`, `git_timed_out`; `not_found` and `not_a_directory` of `dir`; what stands in
/// the way to the guest.
pub async fn git(link: &Link, call: GitCall<'_>) -> Result<GitDone, ToolError> {
    let wait = Wait::at_most(call.timeout + ANSWER_MARGIN);
    let output = link.exec(exec_of(&call), wait, |_, _| {}).await;
    done(&call, output)
}

fn exec_of(call: &GitCall<'_>) -> Exec {
    let words = std::iter::once("git").chain(call.args.iter().copied());
    let env = USUAL.iter().chain(call.env).chain(&FIXED);
    Exec {
        argv: Argv::Direct(words.map(str::to_owned).collect()),
        env: env.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        workdir: Some(call.dir.to_owned()),
        timeout_ms: u64::try_from(call.timeout.as_millis()).unwrap_or(u64::MAX),
        max_output_bytes: call.max_output_bytes,
    }
}

fn done(call: &GitCall<'_>, output: Result<ExecOutput, LinkError>) -> Result<GitDone, ToolError> {
    let output = match output {
        Ok(output) => output,
        Err(LinkError::Guest(error)) if error.code == GuestCode::CannotStart => {
            return Err(ToolError::new(Layer::Guest, codes::GIT_MISSING, "the image has no git")
                .next("install git in the workspace, or use an image that has it"));
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
