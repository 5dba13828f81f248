//! Git as users of the guest: what belongs to whom, and who is told a credential.

use super::*;

/// Ids without a row in `/etc/passwd`.
const OWNER: u32 = 4711;
const OTHER: &str = "4712";

/// Starts a guest whose folder every user may enter.
async fn start() -> Option<Guest> {
    if !rustix::process::geteuid().is_root() {
        hivekeep_skip::skip("only root's guest has other users");
        return None;
    }
    let guest = Guest::start().await?;
    guest.sh("chmod 755 .");
    guest.sh(ORIGIN);
    Some(guest)
}

#[tokio::test]
async fn git_runs_as_the_owner_of_the_repository() {
    let Some(guest) = start().await else { return };
    guest.sh(&format!(
        "git clone -q bare.git a; cd a; mkdir dir; echo x > dir/f; \
         printf '#!/bin/sh\\nid -u > .git/who\\n' > .git/hooks/post-commit; \
         chmod +x .git/hooks/post-commit; cd ..; chown -R {OWNER} a bare.git"
    ));
    let now = status(&guest.git(&guest.path("a/dir"))).await.unwrap();
    assert_eq!(now.untracked, ["dir/"]);
    assert_eq!(committed(&guest, "a", "m").await.unwrap().status, CommitStatus::Committed);
    assert_eq!(guest.sh("cat a/.git/who"), format!("{OWNER}\n"), "the hook's user");
    assert_eq!(pushed(&guest, "a", request()).await.unwrap().status, "pushed");
    assert_eq!(guest.sh(&format!("find a bare.git ! -user {OWNER}")), "");

    guest.sh("chown 0 a/.git");
    let refused = status(&guest.git(&guest.path("a"))).await.unwrap_err();
    assert_eq!(refused.code, "unsafe_repository");
}

#[tokio::test]
async fn a_clone_is_its_users_and_the_credential_reaches_that_users_git() {
    let Some(guest) = start().await else { return };
    let folder = tempfile::tempdir().unwrap();
    std::fs::rename(guest.path("bare.git"), folder.path().join("bare.git")).unwrap();
    let server = Server::start(folder.path(), BASIC, TOKEN).await;
    guest.sh(&format!("mkdir own; chown {OTHER} own"));
    let cloned = async |user: &str, path: &str| {
        let url = GitUrl::parse(&server.url("bare.git")).unwrap();
        let login = GitOptions::default().login_for(&url, Some(&given(TOKEN))).unwrap();
        let request = CloneRequest {
            url,
            login,
            path: guest.path(path),
            branch: None,
            depth: None,
            sparse_paths: Vec::new(),
            timeout: LIMIT,
        };
        clone(guest.git("/").as_user(Some(user.to_owned())), request).await
    };
    let made = cloned(OTHER, "own/a").await.unwrap();
    assert_eq!(made.branch.as_deref(), Some("main"));
    assert_eq!(guest.sh(&format!("find own ! -user {OTHER}")), "");
    assert!(!status(&guest.git(&made.path)).await.unwrap().dirty);
    assert_eq!(*server.seen.found.lock().unwrap(), Vec::<String>::new());

    let refused = cloned(OTHER, "absent/b").await.unwrap_err();
    assert_eq!(refused.code, "permission_denied");
    let folder = guest.folder.path().display().to_string();
    assert!(refused.message.ends_with(&folder), "{}", refused.message);
    assert_eq!(cloned("no-such-user", "c").await.unwrap_err().code, "user_unknown");
}
