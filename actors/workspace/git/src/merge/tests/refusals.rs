//! Refused merges.

use hivekeep_kernel::{Layer, ToolError};

use super::place::{Place, STRATEGIES, row, statuses};
use crate::merge::api::{MergeStrategy, SourceStatus};

#[tokio::test]
async fn each_source_says_why_it_cannot_be_merged() {
    let place = Place::new();
    place.init("stranger");
    place.commit("stranger", "x", "x\n");
    place.init("empty");
    std::fs::create_dir(place.path("folder")).expect("made");
    place.fork("good");
    place.commit("good", "g", "g\n");
    let before = place.fingerprint("target");
    let mut request = place.request(MergeStrategy::Sequential);
    let gone = ToolError::foreign(Layer::Link, "guest_unreachable", "it is stopped");
    let mut sides: Vec<_> = ["stranger", "empty", "folder", "good", "gone"]
        .map(|name| place.side(name, place.local(name)))
        .into_iter()
        .collect();
    sides[4].repository = Err(gone);
    let target = place.side("target", place.local("target"));
    let result = place.merge_sides(&request, &target, &sides).await.expect("a result");
    let codes: Vec<_> = result.conflicts.iter().map(|conflict| conflict.code.as_str()).collect();
    let wanted = ["no_common_history", "no_commits", "not_a_repository", "guest_unreachable"];
    assert_eq!(codes, wanted);
    assert!(
        result.conflicts.iter().all(|c| c.code == "guest_unreachable" || c.next_step.is_some())
    );
    assert!(before == place.fingerprint("target"));
    assert_eq!(row(&result, 3).status, SourceStatus::Withheld);

    request.keep_going = true;
    let result = place.merge_sides(&request, &target, &sides).await.expect("a result");
    assert_eq!((result.success, result.total_commits_applied), (false, 1));
    assert_eq!(place.read("target", "g"), "g\n");
}

#[tokio::test]
async fn a_repository_that_git_does_not_trust_is_one() {
    if !rustix::process::geteuid().is_root() {
        hivekeep_skip::skip("only root makes what belongs to another user");
        return;
    }
    let place = Place::new();
    place.fork("source");
    std::os::unix::fs::chown(place.path("source"), Some(4711), None).expect("given away");
    let request = place.request(MergeStrategy::Sequential);
    let side = |name: &str| place.side(name, place.local(name));
    let result = place.merge_sides(&request, &side("target"), &[side("source")]).await;
    assert_eq!(result.expect("a result").conflicts[0].code, "unsafe_repository");
    let refused = place.merge_sides(&request, &side("source"), &[side("target")]).await;
    assert_eq!(refused.expect_err("not trusted").code, "unsafe_repository");
}

#[tokio::test]
async fn a_target_has_to_be_ready() {
    let place = Place::new();
    place.fork("source");
    place.commit("source", "README", "source\n");
    let request = place.request(MergeStrategy::Sequential);
    let target = |name: &str| place.side(name, place.local(name));
    let sources = || [place.side("source", place.local("source"))];

    std::fs::create_dir(place.path("folder")).expect("made");
    let refused = place.merge_sides(&request, &target("folder"), &sources()).await;
    assert_eq!(refused.expect_err("no repository").code, "not_a_repository");
    place.init("empty");
    let refused = place.merge_sides(&request, &target("empty"), &sources()).await;
    assert_eq!(refused.expect_err("nothing there").code, "no_commits");
    place.git("target", &["clone", "-q", "--bare", ".", "../bare"]);
    let refused = place.merge_sides(&request, &target("bare"), &sources()).await;
    assert_eq!(refused.expect_err("no work tree").code, "bare_repository");

    place.commit("target", "README", "target\n");
    place.git("target", &["fetch", "-q", "../source"]);
    assert!(!place.try_git("target", &["cherry-pick", "FETCH_HEAD"]).ok());
    let before = place.fingerprint("target");
    let refused = place.try_merge(&request, &["source"]).await.expect_err("not concluded");
    assert_eq!(refused.code, "operation_in_progress");
    assert!(before == place.fingerprint("target"));
}

#[tokio::test]
async fn a_branch_with_other_commits_is_not_moved() {
    let place = Place::new();
    place.fork("source");
    place.commit("source", "a", "a\n");
    place.git("target", &["branch", "hivekeep/source"]);
    let result = place.merge(MergeStrategy::BranchPerSource, &["source"]).await;
    assert_eq!(result.sources[0].branch.as_deref(), Some("hivekeep/source"), "it moved forward");
    let moved = place.git("target", &["rev-parse", "hivekeep/source"]);
    assert_eq!(moved, place.head("source"));

    place.git("source", &["commit", "-q", "--amend", "-m", "otherwise"]);
    let before = place.fingerprint("target");
    let result = place.merge(MergeStrategy::BranchPerSource, &["source"]).await;
    assert_eq!(result.conflicts[0].code, "branch_diverged");
    assert!(before == place.fingerprint("target"));
}

/// Output of one guest never becomes an argument of a command in another.
#[tokio::test]
async fn a_guest_that_lies_reaches_no_other_one() {
    let place = Place::new();
    place.fork("source");
    place.commit("source", "a", "a\n");
    let (before, request) = (place.fingerprint("source"), place.request(MergeStrategy::CherryPick));
    let mut local = place.local("target");
    local.lie = Some(("rev-list", "--output=/tmp/owned\n"));
    let target = place.side("target", local);
    let sides = [place.side("source", place.local("source"))];
    let refused = place.merge_sides(&request, &target, &sides).await.expect_err("no commit");
    assert_eq!(refused.code, "git_failed");
    assert!(before == place.fingerprint("source"));

    // Source that names a commit which the target has elsewhere, or nowhere.
    place.git("target", &["checkout", "-q", "-b", "private"]);
    let private = place.commit("target", "private", "x\n");
    place.git("target", &["checkout", "-q", "main"]);
    let before = place.fingerprint("target");
    for said in [private, "0".repeat(40), "--all".to_owned()] {
        let mut local = place.local("source");
        // Claims nothing beyond what is shared, at a commit of its choice.
        local.lie = Some(("--max-count=1", ""));
        let said: &'static str = said.leak();
        local.head = Some(said);
        let target = place.side("target", place.local("target"));
        let sides = [place.side("source", local)];
        let result = place.merge_sides(&request, &target, &sides).await.expect("a result");
        let code = result.conflicts[0].code.as_str();
        assert!(["bundle_refused", "git_failed"].contains(&code), "{said}: {code}");
        assert!(before == place.fingerprint("target"));
    }
}

#[tokio::test]
async fn submodules_are_named() {
    for strategy in STRATEGIES {
        let place = Place::new();
        place.init("library");
        place.commit("library", "lib", "1\n");
        place.fork("source");
        place.git("source", &["submodule", "--quiet", "add", "../library", "vendor/library"]);
        place.git("source", &["commit", "-q", "-m", "source: a submodule"]);
        place.commit("source", "a", "a\n");
        place.commit("target", "b", "b\n");
        let result = place.merge(strategy, &["source"]).await;
        assert!(result.success, "{result:?}");
        assert_eq!(row(&result, 0).submodules, ["vendor/library"]);
        let entry = place.git("target", &["ls-tree", "HEAD", "vendor/library"]);
        assert!(entry.starts_with("160000 commit"), "{entry}");
    }
}

#[tokio::test]
async fn a_shallow_clone_is_merged_or_says_what_it_lacks() {
    let place = Place::new();
    place.commit("target", "a", "a\n");
    let url = format!("file://{}", place.path("target").display());
    place.git("target", &["clone", "-q", "--depth=1", &url, "../source"]);
    place.commit("source", "b", "b\n");
    place.commit("target", "c", "c\n");
    let result = place.merge(MergeStrategy::CherryPick, &["source"]).await;
    assert!(result.success && result.total_commits_applied == 1, "{result:?}");

    // A target without the missing history cannot replace what was cut off.
    place.git("target", &["checkout", "-q", "--orphan", "new"]);
    place.commit("target", "other", "other\n");
    place.git("target", &["branch", "-q", "-D", "main"]);
    let request = place.request(MergeStrategy::CherryPick);
    place.commit("source", "d", "d\n");
    let result = place.try_merge(&request, &["source"]).await.expect("a result");
    assert_eq!(statuses(&result), [SourceStatus::Failed]);
    let code = result.conflicts[0].code.as_str();
    assert!(matches!(code, "source_shallow" | "no_common_history"), "{code}");
}
