//! Tests of the tools with a real git in a real guest daemon.

mod fetch;
mod guest;
mod server;
mod users;

use std::{path::Path, sync::atomic::Ordering::SeqCst, time::Duration};

use hivekeep_kernel::ToolError;
use hivekeep_protocol::Secret;

use super::*;
use crate::api::{CommitStatus, GitCloned, GitCommitted, GitDiffed, GitPushed};
use guest::Guest;
use server::{Server, in_files, in_proc};

/// Value of the authorization header for `somebody` and the token.
const BASIC: &str = "c29tZWJvZHk6dG9rLTdlMWRkMGM5NTU0Mw==";
const TOKEN: &str = "tok-7e1dd0c95543";
const LIMIT: Duration = Duration::from_secs(60);

async fn cloned(guest: &Guest, url: &str, path: &str) -> Result<GitCloned, ToolError> {
    cloned_as(guest, url, path, None, |_| {}).await
}

async fn cloned_as(
    guest: &Guest,
    url: &str,
    path: &str,
    given: Option<&CallCredential>,
    change: impl FnOnce(&mut CloneRequest),
) -> Result<GitCloned, ToolError> {
    let url = GitUrl::parse(url)?;
    let login = GitOptions::default().login_for(&url, given)?;
    let path = guest.path(path);
    let mut request = CloneRequest {
        url,
        login,
        path,
        branch: None,
        depth: None,
        sparse_paths: Vec::new(),
        timeout: LIMIT,
    };
    change(&mut request);
    clone(guest.git("/"), request).await
}

async fn committed(guest: &Guest, path: &str, message: &str) -> Result<GitCommitted, ToolError> {
    let request = CommitRequest {
        message: message.to_owned(),
        add_all: true,
        author_name: Some("An Author".to_owned()),
        author_email: Some("author@example.org".to_owned()),
    };
    request.check()?;
    commit(guest.git(&guest.path(path)), request).await
}

fn request() -> PushRequest {
    PushRequest {
        remote: "origin".to_owned(),
        branch: None,
        force: false,
        set_upstream: false,
        credential: None,
        timeout: LIMIT,
    }
}

async fn pushed(guest: &Guest, path: &str, request: PushRequest) -> Result<GitPushed, ToolError> {
    request.check()?;
    push(guest.git(&guest.path(path)), &GitOptions::default(), request).await
}

async fn differs(
    guest: &Guest,
    path: &str,
    change: impl FnOnce(&mut DiffRequest),
) -> Result<GitDiffed, ToolError> {
    let mut request =
        DiffRequest { staged: false, stat: false, file_path: None, max_bytes: 65_536 };
    change(&mut request);
    request.check()?;
    diff(&guest.git(&guest.path(path)), request).await
}

fn given(token: &str) -> CallCredential {
    let token = Secret::new(token.to_owned());
    CallCredential { username: Some("somebody".to_owned()), token, host: None }
}

/// Makes a bare repository of one commit with a branch `other`.
const ORIGIN: &str = "git init -q work; cd work; echo one > told; git add told; git commit -qm one; \
    git branch other; git tag v1; git clone -q --bare . ../bare.git; cd ..; rm -rf work";

#[tokio::test]
async fn a_repository_is_cloned_changed_committed_and_pushed() {
    let Some(guest) = Guest::start().await else { return };
    guest.sh(ORIGIN);
    let url = format!("file://{}", guest.path("bare.git"));
    let made = cloned(&guest, &url, "a").await.unwrap();
    assert_eq!((made.branch.as_deref(), made.url.as_str()), (Some("main"), url.as_str()));
    let taken = cloned(&guest, &url, "a").await.unwrap_err();
    assert_eq!(taken.code, "destination_not_empty");

    guest.sh("cd a; git mv told 'new name'; echo two >> 'new name'; echo x > -n; mkdir dir; echo y > 'dir/a\tb'");
    let now = status(&guest.git(&guest.path("a"))).await.unwrap();
    assert_eq!((now.branch.as_deref(), now.ahead, now.behind), (Some("main"), Some(0), Some(0)));
    assert_eq!(
        (&now.staged[..], &now.modified[..]),
        (&["new name".to_owned()][..], &["new name".to_owned()][..])
    );
    assert_eq!(now.untracked, ["-n", "dir/"]);
    assert_eq!((now.renamed[0].from.as_str(), now.renamed[0].staged), ("told", true));
    assert!(now.dirty && now.conflicted.is_empty());

    let unstaged = differs(&guest, "a", |_| {}).await.unwrap();
    assert!(unstaged.diff.contains("+two") && !unstaged.truncated, "{}", unstaged.diff);
    let staged = differs(&guest, "a", |request| request.staged = true).await.unwrap();
    assert!(staged.diff.contains("rename to new name"), "{}", staged.diff);
    let table = differs(&guest, "a", |request| request.stat = true).await.unwrap();
    assert!(table.stat && table.diff.contains("1 file changed"), "{}", table.diff);
    let other =
        differs(&guest, "a", |request| request.file_path = Some("-n".into())).await.unwrap();
    assert_eq!(other.diff, "");
    let cut = differs(&guest, "a", |request| request.max_bytes = 20).await.unwrap();
    assert!(cut.truncated && cut.diff.contains("20 of"), "{}", cut.diff);

    let done = committed(&guest, "a", "--amend is a message; $(touch oops) `id`").await.unwrap();
    assert_eq!((done.status, done.branch.as_deref()), (CommitStatus::Committed, Some("main")));
    let log = guest.sh("git -C a log -1 --format='%H|%an|%ce|%s'");
    let sha = done.commit_sha.clone().unwrap();
    assert_eq!(
        log,
        format!("{sha}|An Author|author@example.org|--amend is a message; $(touch oops) `id`\n")
    );
    assert!(
        sha.starts_with(&done.short_sha.unwrap()) && !Path::new(&guest.path("a/oops")).exists()
    );
    let again = committed(&guest, "a", "nothing").await.unwrap();
    assert_eq!(
        (again.status, again.commit_sha),
        (CommitStatus::NothingToCommit, Some(sha.clone()))
    );

    let done = pushed(&guest, "a", request()).await.unwrap();
    assert_eq!((done.status.as_str(), done.refs[0].status.as_str()), ("pushed", "fast_forward"));
    assert_eq!(guest.sh("git -C bare.git rev-parse main").trim(), sha);
    let done = pushed(&guest, "a", request()).await.unwrap();
    assert_eq!(done.status, "up_to_date");
    assert_eq!(guest.sh("git -C bare.git fsck 2>&1; git -C a fsck 2>&1").trim(), "");
}

#[tokio::test]
async fn what_git_refuses_has_a_code_of_its_own() {
    let Some(guest) = Guest::start().await else { return };
    guest.sh(ORIGIN);
    let url = format!("file://{}", guest.path("bare.git"));
    for name in ["a", "b"] {
        cloned(&guest, &url, name).await.unwrap();
        guest.sh(&format!("cd {name}; echo {name} > told; git commit -qam {name}"));
    }
    pushed(&guest, "a", request()).await.unwrap();
    let behind = pushed(&guest, "b", request()).await.unwrap_err();
    assert_eq!(behind.code, "non_fast_forward", "{behind:?}");
    let code = |error: ToolError| error.code.into_owned();
    let push_of = async |change: fn(&mut PushRequest)| {
        let mut request = request();
        change(&mut request);
        pushed(&guest, "b", request).await.map(|done| done.refs[0].status.clone()).map_err(code)
    };
    assert_eq!(
        push_of(|request| request.remote = "upstream".into()).await.unwrap_err(),
        "remote_not_found"
    );
    assert_eq!(
        push_of(|request| request.branch = Some("absent".into())).await.unwrap_err(),
        "branch_not_found"
    );
    assert_eq!(
        push_of(|request| request.branch = Some("--all".into())).await.unwrap_err(),
        "invalid_input"
    );
    assert_eq!(
        push_of(|request| request.remote = "--exec=id".into()).await.unwrap_err(),
        "invalid_input"
    );
    assert_eq!(push_of(|request| request.force = true).await.unwrap(), "forced");

    guest.sh("cd b; git fetch -q; git update-ref refs/remotes/origin/main HEAD~1; git reset -q --hard HEAD~1; \
              echo c > told; git commit -qam c; git merge -q origin/other >/dev/null; git checkout -qb side HEAD~1; \
              echo d > told; git commit -qam d; git merge main >/dev/null 2>&1 || true");
    let now = status(&guest.git(&guest.path("b"))).await.unwrap();
    assert_eq!(now.conflicted, ["told"]);
    let conflict = committed(&guest, "b", "markers").await.unwrap_err();
    assert_eq!(
        (conflict.code.as_ref(), &conflict.details["files"][0]),
        ("conflicts_unresolved", &"told".into())
    );
    guest.sh("cd b; echo resolved > told; git add told");
    assert_eq!(committed(&guest, "b", "merged").await.unwrap().status, CommitStatus::Committed);
    assert_eq!(guest.sh("git -C b log -1 --format=%P").split_whitespace().count(), 2);

    guest.sh("git -C b checkout -q --detach; mkdir plain; printf '#!/bin/sh\\necho no way >&2; exit 1\\n' > a/.git/hooks/pre-commit; \
              chmod +x a/.git/hooks/pre-commit; echo z > a/told");
    assert_eq!(push_of(|_| {}).await.unwrap_err(), "detached_head");
    let refused = committed(&guest, "a", "hook").await.unwrap_err();
    assert!(
        refused.code == "commit_refused" && refused.details["output"] == "no way",
        "{refused:?}"
    );
    assert_eq!(
        code(status(&guest.git(&guest.path("plain"))).await.unwrap_err()),
        "not_a_repository"
    );
    assert_eq!(code(status(&guest.git(&guest.path("absent"))).await.unwrap_err()), "not_found");
    assert_eq!(code(differs(&guest, "plain", |_| {}).await.unwrap_err()), "not_a_repository");
}

#[tokio::test]
async fn a_commit_needs_somebody_and_a_clone_what_it_clones() {
    let Some(guest) = Guest::start().await else { return };
    guest.sh(ORIGIN);
    let url = format!("file://{}", guest.path("bare.git"));
    cloned(&guest, &url, "a").await.unwrap();
    guest.sh("echo z > a/told; git config --global --unset user.email; \
         git config --global user.useConfigOnly true");
    let nobody =
        CommitRequest { message: "m".into(), add_all: true, author_name: None, author_email: None };
    let unknown = commit(guest.git(&guest.path("a")), nobody).await.unwrap_err();
    assert_eq!(unknown.code, "identity_missing");
    let absent = format!("file://{}", guest.path("absent.git"));
    let refused = cloned(&guest, &absent, "c").await.unwrap_err();
    assert_eq!(
        (refused.code.as_ref(), &refused.details["exit_code"]),
        ("git_clone_failed", &128.into())
    );
    let branch = |name: &str| {
        let name = name.to_owned();
        move |request: &mut CloneRequest| request.branch = Some(name)
    };
    let refused = cloned_as(&guest, &url, "c", None, branch("absent")).await.unwrap_err();
    assert_eq!(refused.code, "branch_not_found");
    let other = cloned_as(&guest, &url, "c", None, branch("other")).await.unwrap();
    assert_eq!(other.branch.as_deref(), Some("other"));
    let tag = cloned_as(&guest, &url, "d", None, branch("v1")).await.unwrap();
    assert_eq!((tag.branch, tag.commit_sha), (None, other.commit_sha));
}

#[tokio::test]
async fn a_credential_reaches_the_server_and_is_nowhere_else() {
    let Some(guest) = Guest::start().await else { return };
    guest.sh(ORIGIN);
    // The server prints what nobody may see.
    guest.sh(&format!(
        "printf '#!/bin/sh\\necho your token is {TOKEN} or ghp_0123456789abcdef0123 >&2\\n' > bare.git/hooks/pre-receive; \
         chmod +x bare.git/hooks/pre-receive; mkdir served; mv bare.git served/"
    ));
    let folder = tempfile::tempdir().unwrap();
    std::fs::rename(guest.path("served"), folder.path().join("served")).unwrap();
    let server = Server::start(&folder.path().join("served"), BASIC, TOKEN).await;
    let url = server.url("bare.git");

    let asked = cloned(&guest, &url, "none").await.unwrap_err();
    assert_eq!(asked.code, "authentication_required", "{asked:?}");
    assert_eq!(asked.details["server"], format!("http://{}", server.address));
    let wrong = given("tok-that-is-wrong");
    let wrong = cloned_as(&guest, &url, "wrong", Some(&wrong), |_| {}).await.unwrap_err();
    assert_eq!(wrong.code, "authentication_failed", "{wrong:?}");
    assert!(!format!("{wrong:?}").contains("tok-that-is-wrong"));
    assert_eq!(server.seen.let_in.load(SeqCst), 0);

    let with_password = url.replace("http://", &format!("http://somebody:{TOKEN}@"));
    let made = cloned(&guest, &with_password, "a").await.unwrap();
    assert_eq!(made.url, url);
    assert!(server.seen.let_in.load(SeqCst) >= 2);
    assert_eq!(guest.sh("git -C a config remote.origin.url").trim(), url);

    guest.sh("cd a; git config credential.helper 'store'; git config credential.http://127.0.0.1.helper store; \
              echo two >> told; git commit -qam two");
    let refused = pushed(&guest, "a", request()).await.unwrap_err();
    assert_eq!(refused.code, "authentication_required", "{refused:?}");
    let refused =
        pushed(&guest, "a", PushRequest { credential: Some(given("tok-wrong")), ..request() });
    assert_eq!(refused.await.unwrap_err().code, "authentication_failed");
    let elsewhere = CallCredential { host: Some("example.org".into()), ..given(TOKEN) };
    let refused = pushed(&guest, "a", PushRequest { credential: Some(elsewhere), ..request() });
    assert_eq!(refused.await.unwrap_err().code, "credential_for_another_server");
    let here = CallCredential { host: Some(format!("http://{}", server.address)), ..given(TOKEN) };
    let request = PushRequest { credential: Some(here), set_upstream: true, ..request() };
    let done = pushed(&guest, "a", request).await.unwrap();
    assert_eq!(done.status, "pushed");
    assert!(done.output.contains("your token is *** or ***"), "{}", done.output);
    let head = guest.sh("git -C a rev-parse HEAD");
    let there = folder.path().join("served/bare.git");
    assert_eq!(guest.sh(&format!("git -C {} rev-parse main", there.display())), head);

    // Checked during and after the run, and in the answer.
    assert_eq!(*server.seen.found.lock().unwrap(), Vec::<String>::new());
    assert_eq!(in_proc(TOKEN), Vec::<String>::new());
    assert_eq!(in_files(guest.folder.path(), TOKEN), Vec::<String>::new());
    let answers = serde_json::to_string(&(made, done)).unwrap();
    assert!(!answers.contains(TOKEN) && !answers.contains(BASIC), "{answers}");
}

#[tokio::test]
async fn a_credential_that_is_configured_is_used_for_its_server_alone() {
    let Some(guest) = Guest::start().await else { return };
    guest.sh(ORIGIN);
    let server = Server::start(guest.folder.path(), BASIC, TOKEN).await;
    std::fs::write(guest.path("token"), format!("{TOKEN}\n")).unwrap();
    let entry = |host: String| HostCredential {
        host,
        username: Some("somebody".into()),
        token_file: Some(guest.path("token").into()),
        token_env: None,
    };
    let ours = GitOptions {
        credentials: vec![entry(format!("http://{}", server.address))],
        ca_file: None,
    };
    let others =
        GitOptions { credentials: vec![entry("http://example.org".into())], ca_file: None };
    for (options, name, expected) in [(&others, "a", false), (&ours, "b", true)] {
        let url = GitUrl::parse(&server.url("bare.git")).unwrap();
        let login = options.login_for(&url, None).unwrap();
        let path = guest.path(name);
        let request = CloneRequest {
            url,
            login,
            path,
            branch: None,
            depth: Some(1),
            sparse_paths: Vec::new(),
            timeout: LIMIT,
        };
        let outcome = clone(guest.git("/"), request).await;
        assert_eq!(outcome.is_ok(), expected, "{outcome:?}");
        if expected {
            guest.sh(&format!(
                "cd {name}; echo more >> told; git commit -qam more; \
                 printf '#!/bin/sh\\ntouch ../ran\\n' > .git/hooks/pre-push; \
                 cp .git/hooks/pre-push ../monitor; chmod +x .git/hooks/pre-push ../monitor; \
                 git config core.fsmonitor $PWD/../monitor; rm -f ../ran"
            ));
            let done = push(guest.git(&guest.path(name)), options, self::request()).await.unwrap();
            assert_eq!(done.status, "pushed");
            // A hook could ask for the operator's token as git does.
            assert!(!Path::new(&guest.path("ran")).exists(), "a hook ran");
            let theirs = PushRequest { credential: Some(given(TOKEN)), ..self::request() };
            push(guest.git(&guest.path(name)), options, theirs).await.unwrap();
            assert!(Path::new(&guest.path("ran")).exists(), "the caller's own token needs none");
        }
    }
    assert_eq!(*server.seen.found.lock().unwrap(), Vec::<String>::new());
    // The operator's file is the only source of trust.
    assert_eq!(in_files(guest.folder.path(), TOKEN), [guest.path("token")]);
}
