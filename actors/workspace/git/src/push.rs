//! Push operation, behind the tool `git_push`, and the parser of `git push --porcelain`.

use std::time::Duration;

use hivekeep_kernel::{Layer, ToolError};

use crate::api::{GitPushed, PushedRef};
use crate::codes;
use crate::names;
use crate::run::{AuthenticationRecord, GitDone};
use crate::url;
use crate::{CallCredential, Git, GitOptions, GitUrl, Login};

/// Parameters of a push.
pub struct PushRequest {
    pub remote: String,
    pub branch: Option<String>,
    pub force: bool,
    pub set_upstream: bool,
    pub credential: Option<CallCredential>,
    pub timeout: Duration,
}

impl PushRequest {
    /// # Errors
    ///
    /// `invalid_input`.
    pub fn check(&self) -> Result<(), ToolError> {
        names::remote(&self.remote)?;
        self.branch.as_deref().map_or(Ok(()), |branch| names::branch(branch).map(drop))
    }
}

/// Pushes one branch to the branch of its name.
///
/// # Errors
/// `not_a_repository` and similar, `detached_head`, `branch_not_found`, `remote_not_found`,
/// `authentication_required`, `authentication_failed`, `non_fast_forward`, `push_refused`,
/// `git_push_failed`.
pub async fn push(
    mut git: Git,
    options: &GitOptions,
    request: PushRequest,
) -> Result<GitPushed, ToolError> {
    git.check_work_tree().await?;
    let branch = named(&git, request.branch.as_deref()).await?;
    let address = address(&git, &request.remote, &["--push"]).await?;
    let given = request.credential.as_ref();
    let login = login(&mut git, options, &request.remote, given, &address)?;
    let refs = format!("refs/heads/{branch}:refs/heads/{branch}");
    let mut args = vec!["push", "--porcelain", "--no-progress"];
    args.extend(request.force.then_some("--force"));
    args.extend(request.set_upstream.then_some("--set-upstream"));
    args.extend(["--", request.remote.as_str(), refs.as_str()]);
    let (done, asked) = git.ask(&args, login.as_ref(), request.timeout).await?;
    let stdout = git.hider.words(&done.stdout);
    let refs = read(&stdout);
    if !done.ok() {
        return Err(failure(&git, &request.remote, &branch, &done, &asked, &refs));
    }
    let up_to_date = !refs.is_empty() && refs.iter().all(|it| it.status == "up_to_date");
    Ok(GitPushed {
        success: true,
        remote: request.remote,
        branch,
        status: if up_to_date { "up_to_date" } else { "pushed" }.to_owned(),
        output: [git.said(&done), stdout].join("\n").trim().to_owned(),
        refs,
    })
}

/// Branch to push, which exists.
async fn named(git: &Git, branch: Option<&str>) -> Result<String, ToolError> {
    let branch = match branch {
        Some(branch) => branch.to_owned(),
        None => git.branch().await?.ok_or_else(|| {
            ToolError::new(
                Layer::Guest,
                codes::DETACHED_HEAD,
                "a commit is checked out, not a branch",
            )
            .next("give `branch`, or make one by exec with `git switch -c NAME`")
        })?,
    };
    // Checked even if the guest's own HEAD named it.
    names::branch(&branch)?;
    let full = format!("refs/heads/{branch}");
    if git.run(&["show-ref", "--verify", "--quiet", "--", &full]).await?.ok() {
        return Ok(branch);
    }
    Err(ToolError::new(
        Layer::Guest,
        codes::BRANCH_NOT_FOUND,
        format!("there is no branch `{branch}`"),
    )
    .next("`git branch` by exec lists them; a branch begins with its first commit"))
}

/// Address of the remote, as the guest gives it; by `flags` the one to push to.
///
/// # Errors
/// `remote_not_found`.
pub(super) async fn address(git: &Git, remote: &str, flags: &[&str]) -> Result<String, ToolError> {
    let args = [&["remote", "get-url"], flags, &["--", remote]].concat();
    let address = git.line(&args).await?;
    address.ok_or_else(|| {
        let message = format!("the repository has no remote `{remote}`");
        ToolError::new(Layer::Guest, codes::REMOTE_NOT_FOUND, message)
            .next("add it by exec with `git remote add NAME URL`")
    })
}

/// Login for the remote's server.
///
/// # Errors
/// `invalid_input` for a credential that no server would ask for; `credential_for_another_server`.
pub(super) fn login(
    git: &mut Git,
    options: &GitOptions,
    remote: &str,
    given: Option<&CallCredential>,
    address: &str,
) -> Result<Option<Login>, ToolError> {
    let parsed = GitUrl::parse(address).ok();
    if let Some(secret) = parsed.as_ref().and_then(GitUrl::secret) {
        git.hider.add(&secret);
    }
    let origin = url::origin_of(address);
    match (given, origin) {
        (Some(given), Some(origin)) => {
            let named = parsed.as_ref().and_then(GitUrl::username);
            given.login(&origin, named).map(Some)
        }
        (Some(_), None) => Err(ToolError::invalid(format!(
            "`{remote}` is not an http or https server, so no credential is asked for there"
        ))
        .next("leave `credential` out")),
        (None, Some(origin)) => {
            let named = parsed.as_ref().and_then(GitUrl::username);
            Ok(options.login(&origin, named))
        }
        (None, None) => Ok(None),
    }
}

fn failure(
    git: &Git,
    remote: &str,
    branch: &str,
    done: &GitDone,
    asked: &AuthenticationRecord,
    refs: &[crate::api::PushedRef],
) -> ToolError {
    if let Some(rejected) = refs.iter().find(|it| it.status == "rejected") {
        let why = rejected.reason.clone().unwrap_or_default();
        if is_behind(rejected) {
            let message = format!("`{remote}` has commits on `{branch}` that are not in this one");
            return git.failed(codes::NON_FAST_FORWARD, message, done).detail("reason", why).next(
                "fetch and merge or rebase by exec, then push again; `force` throws those commits away",
            );
        }
        let message = format!("`{remote}` refused `{branch}`: {why}");
        return git
            .failed(codes::PUSH_REFUSED, message, done)
            .detail("reason", why)
            .next("a rule or hook of the server says no: push another branch, or ask its owner");
    }
    git.not_let_in(done, asked).unwrap_or_else(|| {
        git.failed(codes::GIT_PUSH_FAILED, format!("`{branch}` could not be pushed to `{remote}`"), done)
            .next("git's output says why: the address, the network policy of the workspace, the server or its certificate (one of your own: git.ca_file on the host, or GIT_SSL_CAINFO by set_env)")
    })
}

/// Parses the refs of a push, in git's order.
pub(super) fn read(stdout: &str) -> Vec<PushedRef> {
    stdout.lines().filter_map(line).collect()
}

/// Parses one line: `flag TAB from:to TAB summary (reason)`.
fn line(line: &str) -> Option<PushedRef> {
    let mut fields = line.splitn(3, '\t');
    let (flag, refs, summary) = (fields.next()?, fields.next()?, fields.next()?);
    let status = match flag {
        " " => "fast_forward",
        "+" => "forced",
        "-" => "deleted",
        "*" => "new",
        "=" => "up_to_date",
        "!" => "rejected",
        _ => return None,
    };
    let to = refs.rsplit_once(':').map_or(refs, |(_, to)| to);
    let reason = match flag {
        "!" => {
            Some(summary.rsplit_once(" (").map_or(summary, |(_, why)| why.trim_end_matches(')')))
        }
        _ => None,
    };
    Some(PushedRef {
        to: to.to_owned(),
        status: status.to_owned(),
        summary: summary.to_owned(),
        reason: reason.map(str::to_owned),
    })
}

/// True if git itself refused the ref because history would be lost.
pub(super) fn is_behind(pushed: &PushedRef) -> bool {
    let why = pushed.reason.as_deref().unwrap_or_default();
    pushed.summary.starts_with("[rejected]")
        && matches!(why, "non-fast-forward" | "fetch first" | "needs force" | "stale info")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flag_is_read() {
        let text = "To https://example.org/r\n \trefs/heads/a:refs/heads/a\t1..2\n\
                    +\trefs/heads/b:refs/heads/b\t1...2 (forced update)\n\
                    *\trefs/heads/c:refs/heads/c\t[new branch]\n\
                    =\trefs/heads/d:refs/heads/d\t[up to date]\n\
                    !\trefs/heads/e:refs/heads/e\t[rejected] (non-fast-forward)\n\
                    !\trefs/heads/f:refs/heads/f\t[rejected] (fetch first)\n\
                    !\trefs/heads/g:refs/heads/g\t[remote rejected] (pre-receive hook declined)\nDone\n";
        let refs = read(text);
        let seen: Vec<_> =
            refs.iter().map(|it| (it.to.as_str(), it.status.as_str(), is_behind(it))).collect();
        assert_eq!(
            seen,
            [
                ("refs/heads/a", "fast_forward", false),
                ("refs/heads/b", "forced", false),
                ("refs/heads/c", "new", false),
                ("refs/heads/d", "up_to_date", false),
                ("refs/heads/e", "rejected", true),
                ("refs/heads/f", "rejected", true),
                ("refs/heads/g", "rejected", false),
            ]
        );
        assert_eq!(refs[6].reason.as_deref(), Some("pre-receive hook declined"));
        // A hook that prints git's words is still a hook.
        let hook = read("!\ta:b\t[remote rejected] (non-fast-forward)\n");
        assert!(!is_behind(&hook[0]));
        assert!(read("").is_empty() && read("?\ta\tb\nx\n").is_empty());
    }
}
