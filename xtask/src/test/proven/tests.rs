use std::cell::Cell;

use anyhow::bail;
use tempfile::TempDir;

use super::*;
use crate::steps::passed;

const RECORDS: Terms = Terms { force: false, records: true };

/// A repository with two commits' worth of files.
struct Repository {
    folder: TempDir,
    ran: Cell<usize>,
}

impl Repository {
    fn new() -> Self {
        let it = Self { folder: tempfile::tempdir().expect("a folder"), ran: Cell::new(0) };
        for (path, text) in [("code/a.rs", "a"), ("code/b.rs", "b"), ("one", "1"), ("other", "2")] {
            it.write(path, text);
        }
        it.write(".gitignore", "*.log\n");
        it.write("tests/README", "");
        let shell = Tree::of(it.folder.path()).expect("a shell").shell;
        cmd!(shell, "git init --quiet").run().expect("a repository");
        cmd!(shell, "git add .").run().expect("staged");
        cmd!(shell, "git -c user.name=a -c user.email=a@example.org commit --quiet -m first")
            .run()
            .expect("committed");
        it
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    fn step(
        &self,
        inputs: &[&str],
        terms: Terms,
        outcome: Result<StepOutcome>,
    ) -> Result<StepOutcome> {
        let check = || {
            self.ran.set(self.ran.get() + 1);
            outcome
        };
        Tree::of(self.folder.path())?.unless_unchanged("step", inputs, terms, check)
    }

    /// Whether a step over `code` and `one` that passes ran.
    fn runs(&self, terms: Terms) -> bool {
        let before = self.ran.get();
        let outcome = self.step(&["code", "one"], terms, Ok(passed("it holds"))).expect("it ends");
        let ran = self.ran.get() > before;
        assert_eq!(ran, outcome == passed("it holds"), "{outcome:?}");
        ran
    }
}

#[test]
fn a_step_runs_again_when_its_inputs_changed_committed_or_not() {
    let it = Repository::new();
    assert!(it.runs(RECORDS) && !it.runs(RECORDS));
    it.write("other", "of no step");
    it.write("code/run.log", "ignored");
    assert!(!it.runs(RECORDS));
    it.write("code/a.rs", "edited");
    assert!(it.runs(RECORDS) && !it.runs(RECORDS));
    it.write("code/new.rs", "untracked");
    assert!(it.runs(RECORDS) && !it.runs(RECORDS));
    let new = it.folder.path().join("code/new.rs");
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).expect("it is set");
    assert!(it.runs(RECORDS) && !it.runs(RECORDS));
    fs::rename(&new, new.with_file_name("newer.rs")).expect("renamed");
    assert!(it.runs(RECORDS) && !it.runs(RECORDS));
    fs::remove_file(it.folder.path().join("code/b.rs")).expect("deleted");
    assert!(it.runs(RECORDS) && !it.runs(RECORDS));
}

#[test]
fn what_is_left_out_says_since_when_and_what_runs_it() {
    let it = Repository::new();
    assert!(it.runs(RECORDS));
    let left_out = it.step(&["code", "one"], RECORDS, Ok(passed(""))).expect("it ends");
    let StepOutcome::Skipped(why) = left_out else { panic!("{left_out:?}") };
    assert!(why.starts_with("left out: its inputs are unchanged since it passed at "), "{why}");
    assert!(
        why.contains("(commit 1, 2") && why.contains("`cargo xtask test --only step`"),
        "{why}"
    );
    assert!(it.runs(Terms { force: true, ..RECORDS }));
}

#[test]
fn only_what_passed_is_recorded_and_nothing_in_ci() {
    let it = Repository::new();
    assert!(it.runs(Terms { records: false, ..RECORDS }));
    assert!(!it.folder.path().join(FILE).exists());
    let inputs = ["code", "one"];
    it.step(&inputs, RECORDS, bail_with("broken")).expect_err("it failed");
    for outcome in [StepOutcome::Failed("no".into()), StepOutcome::Skipped("no archive".into())] {
        assert_eq!(it.step(&inputs, RECORDS, Ok(outcome.clone())).expect("it ends"), outcome);
    }
    assert!(it.runs(RECORDS) && !it.runs(RECORDS));
    let edits = || {
        it.write("one", "edited while the step ran");
        Ok(passed(""))
    };
    it.write("one", "anew");
    let tree = Tree::of(it.folder.path()).expect("a shell");
    tree.unless_unchanged("step", &inputs, RECORDS, edits).expect("it ends");
    assert!(it.runs(RECORDS), "what was edited meanwhile is not proven");
}

fn bail_with(why: &'static str) -> Result<StepOutcome> {
    bail!(why)
}

#[test]
fn a_record_of_another_step_stays_and_a_line_of_no_form_is_said() {
    let it = Repository::new();
    it.write(FILE, "# said\nanother 0a1b 2026-01-02 3c4d 7\n");
    assert!(it.runs(RECORDS) && !it.runs(RECORDS));
    let text = fs::read_to_string(it.folder.path().join(FILE)).expect("it reads");
    assert!(text.contains("\nanother 0a1b 2026-01-02 3c4d 7\nstep "), "{text}");
    it.write(FILE, "<<<<<<< ours\n");
    let error = it.step(&["code"], RECORDS, Ok(passed(""))).expect_err("no form");
    assert!(error.to_string().contains("delete it"), "{error}");
}

#[test]
fn an_input_that_is_not_there_is_an_error() {
    let it = Repository::new();
    let error = it.step(&["code", "gone"], RECORDS, Ok(passed(""))).expect_err("gone");
    assert!(error.to_string().contains("no file is gone"), "{error}");
    // Renamed files would leave a step unchanged for ever.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the root");
    for (step, inputs) in INPUTS {
        let hash = Tree::of(root).and_then(|tree| tree.hash(inputs));
        assert!(hash.is_ok(), "{step}: {hash:?}");
    }
}
