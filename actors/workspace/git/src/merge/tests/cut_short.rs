//! Interrupted merges, and the merges that come after them.

use std::sync::atomic::Ordering;

use hivekeep_kernel::WorkspaceId;

use super::place::Place;
use crate::merge::api::{InterruptedOutcome, MergeStrategy};

fn two_sources() -> Place {
    let place = Place::new();
    for name in ["one", "two"] {
        place.fork(name);
        place.commit(name, name, "mine\n");
    }
    place.commit("target", "meanwhile", "x\n");
    place.write("target", "untracked", "x\n");
    place
}

/// Interrupts the merge after each request to the target, which answers nothing more.
#[tokio::test]
async fn a_merge_may_end_at_any_odd_point() {
    let last = ends_at_points(MergeStrategy::BranchPerSource, 1, 2).await;
    assert!(last > 20, "{last} points are too few to be all");
}

#[tokio::test]
async fn a_merge_may_end_at_any_even_point() {
    ends_at_points(MergeStrategy::BranchPerSource, 2, 2).await;
}

#[tokio::test]
async fn a_replay_may_end_at_any_point() {
    ends_at_points(MergeStrategy::CherryPick, 3, 5).await;
}

/// Returns the first point at which the merge was not interrupted.
async fn ends_at_points(strategy: MergeStrategy, first: i64, every: usize) -> i64 {
    let place = two_sources();
    let (head, request) = (place.head("target"), place.request(strategy));
    for point in (first..).step_by(every) {
        let local = place.local("target");
        local.left.store(point, Ordering::SeqCst);
        let target = place.side("target", local);
        let sides = ["one"].map(|name| place.side(name, place.local(name)));
        let ended = place.merge_sides(&request, &target, &sides).await;
        let status = place.git("target", &["status", "--porcelain"]);
        assert_eq!(status, "?? untracked", "{strategy:?} {point}");
        let moved = place.head("target") != head;
        assert_eq!(place.path("target").join("one").exists(), moved);
        assert!(moved || ended.is_err(), "{strategy:?} {point}: {ended:?}");

        let result = place.merge(strategy, &["one"]).await;
        assert!(result.success, "{strategy:?} {point}: {result:?}");
        for earlier in &result.interrupted_before {
            let landed = earlier.outcome == InterruptedOutcome::Landed;
            assert_eq!(landed, moved, "{strategy:?} {point}");
        }
        assert_eq!(place.read("target", "one"), "mine\n");
        if ended.is_ok_and(|result| result.success && result.sources[0].branch_error.is_none()) {
            place.fsck("target");
            return point;
        }
        place.reset("target", &head);
    }
    unreachable!("a merge asks for a bounded number of things")
}

/// State that the daemon's end in the middle of the last step may leave.
#[tokio::test]
async fn a_target_that_is_half_written_is_said_and_not_touched() {
    let place = two_sources();
    let (from, to) = (place.head("target"), place.head("one"));
    place.git("target", &["fetch", "-q", "../one", "HEAD"]);
    for (what, sha) in [("from", &from), ("to", &to)] {
        place.git("target", &["update-ref", &format!("refs/hivekeep/merge/0abc/{what}"), sha]);
    }
    place.write("target", "one", "mine\n");
    let before = place.fingerprint("target");
    let request = place.request(MergeStrategy::Sequential);
    let target = || place.side("target", place.local("target"));
    let sides = ["one"].map(|name| place.side(name, place.local(name)));
    for _ in 0..2 {
        let refused =
            place.merge_sides(&request, &target(), &sides).await.expect_err("half written");
        assert_eq!(refused.code, "merge_interrupted");
        assert_eq!(refused.details["files"][0], "one");
        assert!(before == place.fingerprint("target"));
    }
    std::fs::remove_file(place.path("target").join("one")).expect("removed");
    let result = place.merge(MergeStrategy::Sequential, &["one"]).await;
    assert!(result.success, "{result:?}");
    assert_eq!(result.interrupted_before[0].outcome, InterruptedOutcome::Undone);
    assert_eq!(result.interrupted_before[0].merge_id, "0abc");
}

/// Files of another merge, whose source this repository is, stay there.
#[tokio::test]
async fn what_goes_on_is_not_taken_for_left_over() {
    let place = two_sources();
    let other = place.merges.begin(WorkspaceId::new()).expect("begun");
    let file = format!(".git/hivekeep-merge-{}.bundle", other.id());
    place.write("target", &file, "theirs\n");
    place.write("target", ".git/hivekeep-merge-0abc.bundle", "nobody's\n");
    let request = place.request(MergeStrategy::Sequential);
    let sides = ["one"].map(|name| place.side(name, place.local(name)));
    let target = place.side("target", place.local("target"));
    assert!(place.merge_sides(&request, &target, &sides).await.expect("merged").success);
    assert!(!place.path("target").join(".git/hivekeep-merge-0abc.bundle").exists());
    assert_eq!(place.read("target", &file), "theirs\n");
    drop(other);
    assert!(place.merge(MergeStrategy::Sequential, &["two"]).await.success);
}
