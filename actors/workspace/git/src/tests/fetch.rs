//! Fetches and sparse clones by a real git.

use std::sync::atomic::Ordering::SeqCst;

use hivekeep_ports::GitCredentials;

use super::{
    guest::Guest,
    server::{Server, in_files, in_proc},
    *,
};
use crate::api::GitFetched;

async fn fetched(
    guest: &Guest,
    what: Option<FetchRef>,
    credential: Option<CallCredential>,
) -> Result<GitFetched, ToolError> {
    fetched_keeping(guest, what, credential, false).await
}

async fn fetched_keeping(
    guest: &Guest,
    what: Option<FetchRef>,
    credential: Option<CallCredential>,
    keep_refs: bool,
) -> Result<GitFetched, ToolError> {
    let remote = "origin".to_owned();
    let request = FetchRequest { remote, what, keep_refs, depth: None, credential, timeout: LIMIT };
    request.check()?;
    fetch(guest.git(&guest.path("a")), &GitOptions::default(), request).await
}

#[tokio::test]
async fn each_kind_of_ref_is_fetched_and_the_tree_stays() {
    let Some(guest) = Guest::start().await else { return };
    guest.sh(ORIGIN);
    let url = format!("file://{}", guest.path("bare.git"));
    let cloned =
        cloned_as(&guest, &url, "a", None, |request| request.depth = Some(1)).await.unwrap();
    guest.sh("git clone -q bare.git other; cd other; echo two > told; git commit -qam two; git tag v2; \
              git push -q origin main v2; git commit -q --allow-empty -m three; git push -q origin main");
    let there =
        |name: &str| guest.sh(&format!("git -C bare.git rev-parse {name}")).trim().to_owned();
    let (main, tag) = (there("main"), there("v2"));
    // Without any ref of the repository, if that is asked for.
    let refs = || guest.sh("git -C a for-each-ref");
    let before = refs();
    for what in [FetchRef::Branch("main".into()), FetchRef::Tag("v2".into())] {
        let expected = if what == FetchRef::Tag("v2".into()) { &tag } else { &main };
        let kept = fetched_keeping(&guest, Some(what), None, true).await.unwrap();
        assert_eq!((kept.commit_sha.as_ref(), refs()), (Some(expected), before.clone()));
    }
    for (what, expected) in [
        (None, &main),
        (Some(FetchRef::Branch("main".into())), &main),
        (Some(FetchRef::Tag("v2".into())), &tag),
        (Some(FetchRef::Commit(tag.clone())), &tag),
    ] {
        let fetched = fetched(&guest, what.clone(), None).await.unwrap();
        assert_eq!(fetched.commit_sha.as_ref(), Some(expected), "{what:?}");
    }
    let now = status(&guest.git(&guest.path("a"))).await.unwrap();
    assert_eq!((now.commit_sha, now.dirty, now.behind), (cloned.commit_sha, false, Some(2)));
    // What was rewritten is followed.
    guest.sh("cd other; git reset -q --hard HEAD~2; git push -qf origin main");
    let rewritten = fetched(&guest, Some(FetchRef::Branch("main".into())), None).await.unwrap();
    assert_eq!(rewritten.commit_sha, Some(there("main")));
    for (what, code) in [
        (FetchRef::Branch("gone".into()), "branch_not_found"),
        (FetchRef::Tag("gone".into()), "branch_not_found"),
        (FetchRef::Commit("0".repeat(40)), "git_fetch_failed"),
        (FetchRef::Branch("--upload-pack=x".into()), "invalid_input"),
        (FetchRef::Commit("HEAD".into()), "invalid_input"),
    ] {
        let refused = fetched(&guest, Some(what.clone()), None).await.unwrap_err();
        assert_eq!(refused.code, code, "{what:?}: {refused:?}");
    }
}

#[tokio::test]
async fn a_fetch_is_told_a_credential_and_keeps_it_nowhere() {
    let Some(guest) = Guest::start().await else { return };
    guest.sh(ORIGIN);
    let folder = tempfile::tempdir().unwrap();
    std::fs::rename(guest.path("bare.git"), folder.path().join("bare.git")).unwrap();
    let server = Server::start(folder.path(), BASIC, TOKEN).await;
    let url = server.url("bare.git");
    cloned_as(&guest, &url, "a", Some(&given(TOKEN)), |_| {}).await.unwrap();
    let asked = fetched(&guest, None, None).await.unwrap_err();
    assert_eq!(asked.code, "authentication_required", "{asked:?}");
    let before = server.seen.let_in.load(SeqCst);
    fetched(&guest, None, Some(given(TOKEN))).await.unwrap();
    assert!(server.seen.let_in.load(SeqCst) > before);
    assert_eq!(*server.seen.found.lock().unwrap(), Vec::<String>::new());
    assert_eq!(in_proc(TOKEN), Vec::<String>::new());
    assert_eq!(in_files(guest.folder.path(), TOKEN), Vec::<String>::new());
}

#[tokio::test]
async fn a_sparse_clone_has_its_folders_alone() {
    let Some(guest) = Guest::start().await else { return };
    guest.sh("git init -q work; cd work; mkdir -p a/b c; touch told a/x a/b/y c/z; git add .; git commit -qm one; \
              git clone -q --bare . ../bare.git");
    let url = format!("file://{}", guest.path("bare.git"));
    let folders = |folders: &[&str]| {
        let folders = folders.iter().map(|it| (*it).to_owned()).collect();
        move |request: &mut CloneRequest| request.sparse_paths = folders
    };
    cloned_as(&guest, &url, "s", None, folders(&["a/b"])).await.unwrap();
    assert_eq!(
        guest.sh("cd s; find . -path ./.git -prune -o -type f -print | sort"),
        "./a/b/y\n./a/x\n./told\n"
    );
    let now = status(&guest.git(&guest.path("s"))).await.unwrap();
    assert!(!now.dirty);
    for bad in ["--stdin", "../x", "/etc", "a/*", "!a", ""] {
        let mut request = CloneRequest {
            url: GitUrl::parse(&url).unwrap(),
            login: None,
            path: guest.path("t"),
            branch: None,
            depth: None,
            sparse_paths: Vec::new(),
            timeout: LIMIT,
        };
        folders(&[bad])(&mut request);
        assert_eq!(request.check().unwrap_err().code, "invalid_input", "{bad}");
    }
}

#[test]
fn the_credential_that_is_used_has_a_name() {
    let entry = |host: &str| HostCredential {
        host: host.to_owned(),
        username: None,
        token_file: None,
        token_env: Some("TOKEN".to_owned()),
    };
    let credentials = vec![entry("*.example.org"), entry("git.example.org")];
    let options = GitOptions { credentials, ca_file: None };
    // The first that fits, as for the tools.
    assert_eq!(options.used_for("https://git.example.org/r").as_deref(), Some("*.example.org"));
    for other in ["http://git.example.org/r", "https://example.com/r", "file:///r", "no address"] {
        assert_eq!(options.used_for(other), None, "{other}");
    }
}
