//! State that a merge must not touch.

use std::sync::atomic::Ordering;

use super::place::{Place, STRATEGIES, conflicting, statuses};
use crate::merge::api::{ConflictKind, MergeStrategy, SourceStatus};

/// Three sources, of which the second conflicts with the target; and a target with uncommitted work
/// of every kind.
fn second_of_three_conflicts() -> Place {
    let place = Place::new();
    let text: String = (0..30).map(|n| format!("{n}\n")).collect();
    place.commit("target", "text", &text);
    place.commit("target", "gone", "gone\n");
    place.commit("target", "image", [0, 1, 2, 3]);
    place.commit("target", ".gitignore", "ignored*\n");
    for name in ["one", "two", "three"] {
        place.fork(name);
    }
    place.commit("one", "new-one", "1\n");
    place.commit("two", "new-two", "2\n");
    place.commit("two", "text", text.replace("15\n", "fifteen\n"));
    place.commit("three", "new-three", "3\n");
    place.commit("target", "text", text.replace("15\n", "XV\n"));
    place.write("target", "README", "edited, not committed\n");
    place.write("target", "staged", "staged\n");
    place.git("target", &["add", "staged"]);
    place.write("target", "staged", "staged and edited\n");
    place.write("target", "untracked", "untracked\n");
    place.write("target", "ignored", "ignored\n");
    place
}

#[tokio::test]
async fn a_target_is_left_byte_for_byte_when_a_source_fails() {
    for strategy in STRATEGIES {
        let place = second_of_three_conflicts();
        let before = place.fingerprint("target");
        let result = place.merge(strategy, &["one", "two", "three"]).await;
        assert!(before == place.fingerprint("target"), "{strategy:?}");
        let (withheld, failed) = (SourceStatus::Withheld, SourceStatus::Failed);
        assert_eq!(statuses(&result), [withheld, failed, withheld]);
        assert!(!result.success && result.merged_sources.is_empty());
        assert_eq!((result.total_commits_applied, result.conflicts.len()), (0, 1));
        assert_eq!(result.head_before, result.head_after);
        let conflict = &result.conflicts[0];
        assert_eq!((conflict.code.as_str(), conflict.files_total), ("conflict", 1));
        assert_eq!(conflict.source_id, result.sources[1].source_id);
        let file = conflicting(&result, "text");
        assert_eq!((file.kind, file.hunks.len()), (ConflictKind::BothModified, 1));
        let text = &file.hunks[0].text;
        assert!(text.contains("XV") && text.contains("fifteen"), "{text}");
        let subject = conflict.commit.as_ref().map(|commit| commit.subject.as_str());
        let replayed = strategy != MergeStrategy::BranchPerSource;
        assert_eq!(subject, replayed.then_some("two: text"));
        place.fsck("target");
    }
}

#[tokio::test]
async fn the_good_ones_stay_when_told_to_keep_going() {
    for strategy in STRATEGIES {
        let place = second_of_three_conflicts();
        let mut request = place.request(strategy);
        request.keep_going = true;
        let result = place.try_merge(&request, &["one", "two", "three"]).await.expect("a result");
        let (merged, failed) = (SourceStatus::Merged, SourceStatus::Failed);
        assert_eq!(statuses(&result), [merged, failed, merged], "{strategy:?}");
        assert_eq!((result.success, result.merged_sources.len()), (false, 2));
        assert_eq!(result.total_commits_applied, 2);
        assert_eq!(place.read("target", "new-three"), "3\n");
        assert!(!place.path("target").join("new-two").exists(), "half of a source came");
        assert_eq!(place.read("target", "README"), "edited, not committed\n");
        let status = place.git("target", &["status", "--porcelain", "--ignored"]);
        assert_eq!(status, " M README\nAM staged\n?? untracked\n!! ignored", "{strategy:?}");
        place.fsck("target");
    }
}

#[tokio::test]
async fn conflicts_of_every_kind_are_named() {
    let place = second_of_three_conflicts();
    place.fork("other");
    for name in ["target", "other"] {
        place.git(name, &["reset", "-q", "--hard"]);
    }
    place.git("other", &["rm", "-q", "gone"]);
    place.write("other", "image", [9, 0, 9]);
    place.commit("other", "both \"quoted\" ä", "theirs\n");
    place.commit("target", "gone", "changed\n");
    place.write("target", "image", [7, 0, 7]);
    place.commit("target", "both \"quoted\" ä", "ours\n");
    let before = place.fingerprint("target");
    let result = place.merge(MergeStrategy::BranchPerSource, &["other"]).await;
    assert!(before == place.fingerprint("target"));
    assert_eq!(conflicting(&result, "gone").kind, ConflictKind::DeletedBySource);
    let image = conflicting(&result, "image");
    assert!(image.binary && image.hunks.is_empty() && !image.truncated, "{image:?}");
    let both = conflicting(&result, "both \"quoted\" ä");
    assert_eq!((both.kind, both.hunks.len()), (ConflictKind::BothAdded, 1));
}

#[tokio::test]
async fn work_that_is_not_committed_is_not_overwritten() {
    for (file, ignore) in [("README", false), ("fresh", false), ("ignored", true)] {
        let place = Place::new();
        place.fork("source");
        place.commit("source", file, "from the source\n");
        if ignore {
            place.write("target", ".git/info/exclude", "ignored\n");
        }
        place.write("target", file, "precious\n");
        let before = place.fingerprint("target");
        for strategy in STRATEGIES {
            let request = place.request(strategy);
            let refused =
                place.try_merge(&request, &["source"]).await.expect_err("it is in the way");
            assert_eq!(refused.code, "target_dirty", "{file}");
            assert!(refused.details["output"].as_str().expect("output").contains(file));
            assert!(before == place.fingerprint("target"), "{file} {strategy:?}");
        }
    }
}

#[tokio::test]
async fn uncommitted_work_is_told_or_committed() {
    let place = Place::new();
    place.fork("source");
    place.commit("source", "a", "a\n");
    place.write("source", "README", "edited\n");
    place.write("source", "new dir/new", "new\n");
    let before = place.fingerprint("source");
    let mut request = place.request(MergeStrategy::Sequential);
    let result = place.try_merge(&request, &["source"]).await.expect("merged");
    assert!(before == place.fingerprint("source"), "a source is only read");
    let told = &result.uncommitted_sources[0];
    assert_eq!(
        (told.files.as_slice(), told.committed),
        (&["README", "new dir/"].map(str::to_owned)[..], false)
    );
    assert_eq!(place.read("target", "README"), "hello\n");

    (request.commit_uncommitted, request.commit_message) = (true, Some("all of it".to_owned()));
    let result = place.try_merge(&request, &["source"]).await.expect("merged");
    assert!(result.success && result.uncommitted_sources[0].committed);
    assert_eq!(result.sources[0].committed.as_ref(), Some(&place.head("source")));
    assert_eq!(place.read("target", "new dir/new"), "new\n");
    assert_eq!(place.git("source", &["status", "--porcelain"]), "");
    assert_eq!(place.git("target", &["log", "-1", "--format=%s"]), "all of it");
}

#[tokio::test]
async fn a_bundle_that_breaks_on_the_way_leaves_the_target_alone() {
    let place = Place::new();
    place.fork("source");
    place.commit("source", "a", "a\n".repeat(1000));
    let before = place.fingerprint("target");
    let local = place.local("source");
    local.spoil.store(true, Ordering::SeqCst);
    let sides = [place.side("source", local)];
    let target = place.side("target", place.local("target"));
    let request = place.request(MergeStrategy::CherryPick);
    let result = place.merge_sides(&request, &target, &sides).await.expect("a result");
    assert_eq!(result.conflicts[0].code, "bundle_refused");
    assert!(before == place.fingerprint("target"));
    place.nothing_is_left("target");
}
