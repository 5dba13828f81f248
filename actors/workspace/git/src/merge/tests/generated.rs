//! Property tests of merges over generated histories.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use proptest::{prelude::*, test_runner::TestRunner};

use super::place::{Place, STRATEGIES};
use crate::merge::api::{MergeStrategy, SourceStatus};

/// Step of a history.
#[derive(Debug, Clone)]
enum Step {
    /// Changes a line of a file.
    Edit(u8, u8),
    /// Adds a file of its own.
    Add(u8),
    Rename(u8),
    Delete(u8),
    Binary(u8),
    Empty,
    /// Merges some commits of a side branch.
    Side(u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6u8, 0..30u8).prop_map(|(file, line)| Step::Edit(file, line)),
        3 => any::<u8>().prop_map(Step::Add),
        1 => (0..6u8).prop_map(Step::Rename),
        1 => (0..6u8).prop_map(Step::Delete),
        1 => (0..3u8).prop_map(Step::Binary),
        1 => Just(Step::Empty),
        2 => (0..6u8, any::<u8>()).prop_map(|(file, own)| Step::Side(file, own)),
    ]
}

/// Applies steps in a repository; returns the messages that were used.
fn walk(place: &Place, name: &str, first: usize, steps: &[Step]) -> BTreeSet<String> {
    let before: BTreeSet<_> = place.subjects(name).into_iter().collect();
    for (index, step) in steps.iter().enumerate() {
        take(place, name, first + index, step);
    }
    place.subjects(name).into_iter().filter(|subject| !before.contains(subject)).collect()
}

fn take(place: &Place, name: &str, index: usize, step: &Step) {
    let text = |file: u8| format!("f{file}");
    let there = |file: u8| place.path(name).join(text(file)).exists();
    match *step {
        Step::Edit(file, line) if there(file) => {
            let old = place.read(name, &text(file));
            let edit = |(n, l): (usize, &str)| match n == usize::from(line) {
                true => format!("{name} {index}\n"),
                false => format!("{l}\n"),
            };
            place.write(name, &text(file), old.lines().enumerate().map(edit).collect::<String>());
        }
        Step::Add(n) => place.write(name, &format!("{name}/{n}"), format!("{index}\n")),
        Step::Rename(file) if there(file) => {
            place.git(name, &["mv", &text(file), &format!("{name}-{index}-{file}")]);
        }
        Step::Delete(file) if there(file) => {
            place.git(name, &["rm", "-q", &text(file)]);
        }
        Step::Binary(n) => place.write(name, &format!("{name}.bin{n}"), [0, n, index as u8, 0]),
        Step::Side(file, own) => {
            place.git(name, &["checkout", "-q", "-b", &format!("{name}-side{index}")]);
            take(place, name, 1000 + index, &Step::Add(own));
            place.git(name, &["checkout", "-q", "-"]);
            take(place, name, 2000 + index, &Step::Edit(file, 3));
            let merge = ["merge", "-q", "--no-ff", "-m", &format!("{name} side {index}")];
            if !place
                .try_git(
                    name,
                    &[
                        &["-c", "user.name=B", "-c", "user.email=b@example.org"],
                        &merge[..],
                        &[&format!("{name}-side{index}")],
                    ]
                    .concat(),
                )
                .ok()
            {
                place.git(name, &["merge", "--abort"]);
            }
            return;
        }
        _ => {}
    }
    place.git(name, &["add", "-A"]);
    place.git(name, &["commit", "-q", "--allow-empty", "-m", &format!("{name} step {index}")]);
}

#[derive(Debug, Clone)]
struct Case {
    base: Vec<Step>,
    meanwhile: Vec<Step>,
    sources: Vec<Vec<Step>>,
    strategy: usize,
    keep_going: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let steps = |most| prop::collection::vec(step(), 0..most);
    (steps(4), steps(3), prop::collection::vec(steps(5), 1..4), 0..3usize, any::<bool>()).prop_map(
        |(base, meanwhile, sources, strategy, keep_going)| Case {
            base,
            meanwhile,
            sources,
            strategy,
            keep_going,
        },
    )
}

/// Subjects of the commits that change something, with the id of the change.
fn changes(place: &Place, name: &str) -> BTreeMap<String, String> {
    let line =
        "git log -p --no-merges --binary --full-index --format='commit %H' | git patch-id --stable";
    let told = Command::new("sh").args(["-c", line]).current_dir(place.path(name)).output();
    let told = String::from_utf8(told.expect("git runs").stdout).expect("UTF-8");
    let ids: BTreeMap<_, _> =
        told.lines().filter_map(|line| line.split_once(' ')).map(|(id, sha)| (sha, id)).collect();
    let log = place.git(name, &["log", "--format=%H %s"]);
    let rows = log.lines().filter_map(|line| line.split_once(' '));
    rows.filter_map(|(sha, subject)| Some((subject.to_owned(), (*ids.get(sha)?).to_owned())))
        .collect()
}

async fn no_commit_is_lost(case: Case) {
    let place = Place::new();
    for file in 0..6 {
        let text: String = (0..30).map(|line| format!("{file} {line}\n")).collect();
        place.commit("target", &format!("f{file}"), text);
    }
    walk(&place, "target", 0, &case.base);
    let names: Vec<String> = (0..case.sources.len()).map(|n| format!("s{n}")).collect();
    let mut theirs = Vec::new();
    for (name, steps) in names.iter().zip(&case.sources) {
        place.fork(name);
        theirs.push(walk(&place, name, 0, steps));
    }
    walk(&place, "target", 100, &case.meanwhile);
    let ours: BTreeSet<_> = place.subjects("target").into_iter().collect();
    let before = place.fingerprint("target");
    let mut request = place.request(STRATEGIES[case.strategy]);
    request.keep_going = case.keep_going;
    let named: Vec<&str> = names.iter().map(String::as_str).collect();
    let result = place.try_merge(&request, &named).await.expect("a result");

    assert_eq!(result.success, result.conflicts.is_empty());
    if !result.success && !case.keep_going {
        assert!(before == place.fingerprint("target"));
    }
    place.fsck("target");
    assert_eq!(place.git("target", &["status", "--porcelain"]), "");
    let now: BTreeSet<_> = place.subjects("target").into_iter().collect();
    assert!(ours.is_subset(&now), "the target lost {:?}", ours.difference(&now));
    let made: BTreeSet<_> = changes(&place, "target").into_values().collect();
    for ((source, name), theirs) in result.sources.iter().zip(&names).zip(&theirs) {
        // A change that another source has made, too, comes once.
        let changed = changes(&place, name);
        let made_by_another =
            |subject: &String| changed.get(subject).is_some_and(|id| made.contains(id));
        let flat = source.merges_flattened > 0;
        let wanted = theirs.iter().filter(|subject| !(flat && subject.contains(" side ")));
        let (mut there, tip) = (wanted.clone(), place.head(name));
        match source.status {
            SourceStatus::Merged => {
                let there = |subject: &String| now.contains(subject) || made_by_another(subject);
                assert!(wanted.clone().all(there), "{name} lost {theirs:?}");
                if request.strategy == MergeStrategy::BranchPerSource {
                    place.git("target", &["merge-base", "--is-ancestor", &tip, "HEAD"]);
                }
                assert!(source.commits_applied > 0);
            }
            SourceStatus::UpToDate => assert!(theirs.iter().all(made_by_another), "{theirs:?}"),
            _ => assert!(!there.any(|subject| now.contains(subject)), "a part of {name} came"),
        }
    }
}

/// Each failure names its seed; `PROPTEST_RNG_SEED` runs that one.
#[test]
fn no_commit_of_any_history_is_lost() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let seed = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| getrandom::u64().expect("a seed"));
    println!("PROPTEST_RNG_SEED={seed}");
    let config = ProptestConfig {
        cases: 8,
        max_shrink_iters: 60,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(seed),
        ..ProptestConfig::default()
    };
    let outcome = TestRunner::new(config).run(&case(), |case| {
        runtime.block_on(no_commit_is_lost(case));
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("PROPTEST_RNG_SEED={seed}: {error}");
    }
}
