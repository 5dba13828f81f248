//! Resulting histories, by strategy.

use super::place::{Place, STRATEGIES, row, statuses};
use crate::merge::api::{BaseFoundBy, MergeStrategy, SourceStatus};

/// Makes two hundred commits over thirty files.
pub(super) fn long(place: &Place) {
    place.import("target", (0..200).map(|n| (format!("src/{}.txt", n % 30), lines(n))));
}

fn lines(n: usize) -> String {
    (0..40).map(|line| format!("line {line} of {n}\n")).collect()
}

pub(super) fn binary(seed: u8) -> Vec<u8> {
    (0..5000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8 ^ seed).collect()
}

/// Makes three forks of a long history: edits, a rename with an edit, a binary file, an executable,
/// a link, a deletion; and commits in the target meanwhile.
fn forks_of_a_long_history() -> Place {
    let place = Place::new();
    long(&place);
    for name in ["one", "two", "three"] {
        place.fork(name);
    }
    place.commit("one", "src/0.txt", lines(1000));
    place.git("one", &["mv", "src/1.txt", "src/renamed.txt"]);
    place.commit("one", "more", "more\n");
    place.git("one", &["commit", "-q", "--allow-empty", "-m", "one: nothing"]);
    place.commit("two", "logo.png", binary(1));
    place.commit("two", "logo.png", binary(2));
    // Edits a file that another fork renamed.
    let edited = place.read("two", "src/1.txt").replace("line 20 ", "LINE 20 ");
    place.commit("two", "src/1.txt", edited);
    std::os::unix::fs::symlink("src/2.txt", place.path("three").join("link")).expect("linked");
    std::fs::remove_file(place.path("three").join("src/3.txt")).expect("removed");
    place.commit("three", "src/4.txt", lines(2000));
    place.commit("target", "src/5.txt", lines(3000));
    place
}

#[tokio::test]
async fn forks_of_a_long_history_come_together() {
    let place = forks_of_a_long_history();
    let base = place.git("one", &["rev-parse", "HEAD~3"]);
    let (head, wanted) = (place.head("target"), place.subjects("target"));
    for strategy in STRATEGIES {
        place.reset("target", &head);
        let result = place.merge(strategy, &["one", "two", "three"]).await;
        assert!(result.success && result.conflicts.is_empty(), "{result:?}");
        assert_eq!(statuses(&result), [SourceStatus::Merged; 3], "{strategy:?}");
        assert_eq!(result.total_commits_applied, 3 + 3 + 1);
        assert_eq!(result.merged_sources.len(), 3);
        assert_eq!(result.branch.as_deref(), Some("main"));
        assert_eq!((&result.head_before, &result.head_after), (&head, &place.head("target")));
        let one = &result.sources[0];
        assert_eq!(one.merge_base.as_ref(), Some(&base));
        assert_eq!(one.merge_base_found_by, Some(BaseFoundBy::GitMergeBase));

        place.fsck("target");
        assert_eq!(place.git("target", &["status", "--porcelain"]), "");
        assert!(place.read("target", "src/renamed.txt").contains("LINE 20 "), "{strategy:?}");
        assert!(!place.path("target").join("src/1.txt").exists());
        assert!(!place.path("target").join("src/3.txt").exists());
        assert_eq!(std::fs::read(place.path("target").join("logo.png")).expect("read"), binary(2));
        assert_eq!(place.read("target", "link"), place.read("target", "src/2.txt"));
        assert_eq!(place.read("target", "src/5.txt"), lines(3000));
        let mut all = wanted.clone();
        all.extend(
            ["one: src/0.txt", "one: more", "one: nothing", "two: logo.png"].map(str::to_owned),
        );
        all.extend(["two: logo.png", "two: src/1.txt", "three: src/4.txt"].map(str::to_owned));
        if strategy == MergeStrategy::BranchPerSource {
            all.extend(["one", "two", "three"].map(|name| format!("Merge workspace '{name}'")));
        }
        all.sort();
        assert_eq!(place.subjects("target"), all, "{strategy:?}");
        let authors = place.git("target", &["log", "--no-merges", "--format=%an <%ae>"]);
        assert!(authors.lines().all(|author| author == "Ada <ada@example.org>"));
        let merges = place.git("target", &["rev-list", "--count", "--merges", "HEAD"]);
        let joined = strategy == MergeStrategy::BranchPerSource;
        assert_eq!(merges, if joined { "3" } else { "0" }, "{strategy:?}");

        if joined {
            for name in ["one", "two", "three"] {
                let branch = format!("hivekeep/{name}");
                assert_eq!(place.git("target", &["rev-parse", &branch]), place.head(name));
            }
            let again = place.merge(strategy, &["one", "two", "three"]).await;
            assert_eq!(statuses(&again), [SourceStatus::UpToDate; 3]);
            assert_eq!((again.success, again.total_commits_applied), (true, 0));
        }
    }
}

#[tokio::test]
async fn twenty_sources_come_together() {
    let place = Place::new();
    let (head, names) = (place.head("target"), (0..20).map(|n| format!("s{n}")));
    let names: Vec<String> = names.collect();
    for name in &names {
        place.fork(name);
        place.commit(name, name, "mine\n");
    }
    for strategy in STRATEGIES {
        place.reset("target", &head);
        let named: Vec<&str> = names.iter().map(String::as_str).collect();
        let result = place.merge(strategy, &named).await;
        assert!(result.success && result.total_commits_applied == 20, "{result:?}");
        assert!(names.iter().all(|name| place.read("target", name) == "mine\n"));
        place.fsck("target");
    }
}

/// Makes a source with a merge of two lines of its own. With `evil` the merge commit has more than
/// its two sides.
fn with_a_merge(evil: bool) -> Place {
    let place = Place::new();
    place.fork("source");
    place.commit("source", "a", "a\n");
    place.git("source", &["checkout", "-q", "-b", "side", "HEAD~1"]);
    place.commit("source", "b", "b\n");
    place.commit("source", "c", "c\n");
    place.git("source", &["checkout", "-q", "main"]);
    place.git("source", &["merge", "-q", "--no-ff", "--no-commit", "side"]);
    if evil {
        place.write("source", "resolved", "by hand\n");
        place.git("source", &["add", "resolved"]);
    }
    place.git("source", &["commit", "-q", "-m", "source: both"]);
    place.commit("source", "d", "d\n");
    place.commit("target", "meanwhile", "x\n");
    place
}

#[tokio::test]
async fn merge_commits_keep_their_shape_and_what_was_resolved_in_them() {
    let place = with_a_merge(true);
    let result = place.merge(MergeStrategy::CherryPick, &["source"]).await;
    assert!(result.success && result.total_commits_applied == 5, "{result:?}");
    assert_eq!(place.read("target", "resolved"), "by hand\n");
    assert_eq!(place.read("target", "meanwhile"), "x\n");
    let shape = place.git("target", &["log", "--format=%s", "--merges"]);
    assert_eq!(shape, "source: both");
    let sides =
        ["HEAD~1^1", "HEAD~1^2"].map(|at| place.git("target", &["log", "-1", "--format=%s", at]));
    assert_eq!(sides, ["source: a", "source: c"]);
    let author = place.git("target", &["log", "-1", "--format=%an|%ad", "HEAD~1"]);
    assert_eq!(author, place.git("source", &["log", "-1", "--format=%an|%ad", "HEAD~1"]));
    place.fsck("target");
}

#[tokio::test]
async fn a_line_takes_merges_apart_or_refuses_them() {
    let place = with_a_merge(false);
    let result = place.merge(MergeStrategy::Sequential, &["source"]).await;
    assert!(result.success, "{result:?}");
    assert_eq!((result.total_commits_applied, row(&result, 0).merges_flattened), (4, 1));
    assert_eq!(place.git("target", &["rev-list", "--count", "--merges", "HEAD"]), "0");
    let files = ["a", "b", "c", "d"].map(|file| place.read("target", file));
    assert_eq!(files, ["a\n", "b\n", "c\n", "d\n"]);

    let place = with_a_merge(true);
    let before = place.fingerprint("target");
    let result = place.merge(MergeStrategy::Sequential, &["source"]).await;
    assert_eq!(result.conflicts[0].code, "merge_not_linear");
    assert!(!result.success && before == place.fingerprint("target"));

    let result = place.merge(MergeStrategy::BranchPerSource, &["source"]).await;
    assert!(result.success && result.total_commits_applied == 5, "{result:?}");
    let tip = place.head("source");
    place.git("target", &["merge-base", "--is-ancestor", &tip, "HEAD"]);
    place.fsck("target");
}

#[tokio::test]
async fn what_needs_no_replay_keeps_its_id() {
    for strategy in [MergeStrategy::Sequential, MergeStrategy::CherryPick] {
        let place = Place::new();
        place.fork("one");
        place.commit("one", "a", "a\n");
        // A fork of a fork shares more than the target has.
        place.git("one", &["clone", "-q", "../one", "../two"]);
        place.commit("one", "b", "b\n");
        place.commit("two", "c", "c\n");
        let result = place.merge(strategy, &["one", "two"]).await;
        assert!(result.success && result.total_commits_applied == 3, "{result:?}");
        let tip = place.head("one");
        place.git("target", &["merge-base", "--is-ancestor", &tip, "HEAD"]);
        assert_eq!(place.subjects("target").len(), 4);
        place.fsck("target");
    }
}

#[tokio::test]
async fn a_source_is_merged_again_when_it_has_gone_on() {
    for strategy in STRATEGIES {
        let place = with_a_merge(false);
        assert!(place.merge(strategy, &["source"]).await.success);
        place.commit("source", "e", "e\n");
        let again = place.merge(strategy, &["source"]).await;
        assert!(again.success && again.total_commits_applied == 1, "{strategy:?}: {again:?}");
        let there = match strategy {
            MergeStrategy::Sequential => 4,
            MergeStrategy::BranchPerSource => 0,
            // The merge commit too.
            MergeStrategy::CherryPick => 5,
        };
        assert_eq!(row(&again, 0).already_there, there);
        let subjects = place.subjects("target");
        for letter in ["a", "b", "c", "d", "e"] {
            let subject = format!("source: {letter}");
            assert_eq!(subjects.iter().filter(|s| **s == subject).count(), 1, "{strategy:?}");
        }
        let last = place.merge(strategy, &["source"]).await;
        assert_eq!(statuses(&last), [SourceStatus::UpToDate], "{strategy:?}: {last:?}");
        assert_eq!(last.head_before, last.head_after);
        place.fsck("target");
    }
}

#[tokio::test]
async fn a_merge_of_the_targets_own_commits_is_replayed() {
    let place = Place::new();
    place.fork("source");
    place.commit("source", "a", "a\n");
    place.commit("target", "t", "t\n");
    place.git("source", &["pull", "-q", "--no-rebase", "--no-edit", "../target", "main"]);
    place.commit("source", "b", "b\n");
    place.commit("target", "u", "u\n");
    for strategy in STRATEGIES {
        let head = place.head("target");
        let result = place.merge(strategy, &["source"]).await;
        assert!(result.success, "{strategy:?}: {result:?}");
        let files = ["a", "b", "t", "u"].map(|file| place.read("target", file));
        assert_eq!(files, ["a\n", "b\n", "t\n", "u\n"], "{strategy:?}");
        place.fsck("target");
        place.git("target", &["reset", "-q", "--hard", &head]);
    }
}

#[tokio::test]
async fn messages_and_authors_come_as_they_are() {
    for strategy in STRATEGIES {
        let place = with_a_merge(false);
        let message = "# not a comment\n\n  indented ä\n\n\n\n-- \ntwo blank lines before";
        let author = ["-c", "user.name=Zoë \"Q\" <x", "-c", "user.email=z@example.org"];
        let commit = ["commit", "-q", "--allow-empty", "--cleanup=verbatim", "-m", message];
        place.git("source", &[&author[..], &commit].concat());
        let facts = ["log", "-1", "--no-merges", "--format=%an|%ae|%ad|%B"];
        let wanted = place.git("source", &facts);
        assert!(wanted.starts_with("Zo\u{eb}"), "{wanted}");
        assert!(place.merge(strategy, &["source"]).await.success, "{strategy:?}");
        let joined = strategy == MergeStrategy::BranchPerSource;
        let at = if joined { "HEAD^2" } else { "HEAD" };
        let came = place.git("target", &[&facts[..], &[at]].concat());
        assert_eq!(came, wanted, "{strategy:?}");
    }
}

#[tokio::test]
async fn a_message_is_the_merge_commits() {
    let place = Place::new();
    place.fork("one");
    place.commit("one", "a", "a\n");
    let message = "Bring it\n\nin; `rm -rf /` $(x) -m";
    let mut request = place.request(MergeStrategy::BranchPerSource);
    request.commit_message = Some(message.to_owned());
    assert!(place.try_merge(&request, &["one"]).await.expect("merged").success);
    assert_eq!(place.git("target", &["log", "-1", "--format=%B"]), message);
    let made_by = place.git("target", &["log", "-1", "--format=%cn"]);
    assert_eq!(made_by, "hivekeep", "git has no name for it");
    place.git("target", &["config", "user.name", "Grace"]);
    place.git("target", &["config", "user.email", "grace@example.org"]);
    place.commit("one", "b", "b\n");
    assert!(place.try_merge(&request, &["one"]).await.expect("merged").success);
    assert_eq!(place.git("target", &["log", "-1", "--format=%cn"]), "Grace");
}
