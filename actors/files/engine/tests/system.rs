//! Operations beneath the root of a whole system, as in a guest: here it is the test's own.

use std::{fs, os::unix::fs::symlink, path::Path};

use hivekeep_file_engine::{
    EditFileText, FileError, FileErrorKind, FileOperation, FileOutcome, FileRoot, FoundLines,
    GlobFiles, GrepFiles, ListNames, LookAt, LookedAt, MakeFolder, NumberedLines, Occurrences,
    Operation, ReadLines, ReadText, RemovePath, RenamePath, TextEdit, WriteText, decode, encode,
    run,
};
use proptest::prelude::*;
use tempfile::TempDir;

struct System {
    home: TempDir,
    root: FileRoot,
}

impl System {
    fn new() -> Self {
        let home = TempDir::new().expect("a folder");
        let root = FileRoot::system(home.path().to_str().expect("UTF-8")).expect("opened");
        Self { home, root }
    }

    fn at(&self, path: &str) -> std::path::PathBuf {
        self.home.path().join(path)
    }

    /// Runs an operation the way it travels.
    fn ask<O: Operation>(&self, operation: O) -> Result<O::Outcome, FileError> {
        let operation: FileOperation =
            decode(&encode(&operation.into()).expect("it fits")).expect("the same");
        let outcome = run(&self.root, &operation, &|| false);
        let encoded = encode(&outcome).expect("it fits");
        assert!(encoded.len() as u64 <= operation.max_answer_bytes(), "{operation:?}");
        let outcome: Result<FileOutcome, FileError> = decode(&encoded).expect("the same");
        let outcome = outcome?;
        assert!(operation.accepts(&outcome), "{operation:?}: {outcome:?}");
        Ok(O::outcome_of(outcome).expect("of its kind"))
    }

    fn refused<O: Operation>(&self, operation: O) -> FileErrorKind {
        self.ask(operation).map(drop).expect_err("refused").kind
    }
}

fn read(path: impl Into<String>) -> ReadText {
    ReadText { path: path.into(), offset: 0, limit: 1 << 20 }
}

fn write(path: impl Into<String>, content: &str) -> WriteText {
    WriteText { path: path.into(), content: content.to_owned(), mode: None }
}

fn text(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn relative_paths_begin_at_home_and_absolute_links_lead_where_they_lead() {
    let system = System::new();
    system.ask(write("a/b/f", "one\n")).expect("written");
    assert_eq!(fs::read_to_string(system.at("a/b/f")).expect("there"), "one\n");
    symlink(system.at("a/b"), system.at("link")).expect("linked");
    symlink(system.at("link/f"), system.at("file")).expect("linked");
    for path in ["file".to_owned(), "link/f".to_owned(), text(&system.at("link/../b/f"))] {
        assert_eq!(system.ask(read(path.clone())).expect(&path).text, "one\n");
    }
    system.ask(write("file", "two\n")).expect("written through the link");
    assert_eq!(fs::read_to_string(system.at("a/b/f")).expect("there"), "two\n");
    assert!(system.at("file").is_symlink());
    system.ask(write("link/new/g", "three\n")).expect("made below a link");
    let edits = vec![TextEdit { which: Occurrences::Only, old: "two".into(), new: "2".into() }];
    let edit = EditFileText { path: "file".into(), edits, expected: None };
    assert_eq!(system.ask(edit).expect("edited").size_bytes, 2);
    system.ask(MakeFolder { path: "link".into() }).expect("it is there");
    let rename = RenamePath { path: "link/f".into(), new_path: "moved".into(), overwrite: false };
    system.ask(rename).expect("moved");
    assert_eq!(system.ask(LookAt { path: "file".into() }).expect("looked"), LookedAt::Nothing);
    // A link itself is removed, not what it leads to.
    system.ask(RemovePath { path: "link".into(), recursive: true }).expect("removed");
    assert!(system.at("a/b/new/g").exists());
    let found = system.ask(GlobFiles {
        path: ".".into(),
        pattern: "*".into(),
        gitignore: false,
        limit: 10,
    });
    let names = ["a/b/new/g", "file", "moved"].map(|name| text(&system.at(name)));
    assert_eq!(found.expect("found").paths, names, "paths that can be given again");
}

#[test]
fn nothing_blocks_and_nothing_but_files_is_opened() {
    let system = System::new();
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, system.at("pipe"), fifo, mode, 0).expect("made");
    symlink("/dev/zero", system.at("zero")).expect("linked");
    symlink("loop", system.at("loop")).expect("linked");
    for path in ["pipe", "zero", "/dev/null"] {
        assert_eq!(system.refused(read(path)), FileErrorKind::NotAFile, "{path}");
        let lines = ReadLines { path: path.into(), first: 1, limit: 10 };
        assert_eq!(system.refused(lines), FileErrorKind::NotAFile, "{path}");
        assert_eq!(system.refused(write(path, "x")), FileErrorKind::NotAFile, "{path}");
        let edits = vec![TextEdit { which: Occurrences::All, old: "a".into(), new: "b".into() }];
        let edit = EditFileText { path: path.into(), edits, expected: None };
        assert_eq!(system.refused(edit), FileErrorKind::NotAFile, "{path}");
    }
    let grep = GrepFiles {
        path: ".".into(),
        pattern: ".".into(),
        ignore_case: false,
        glob: None,
        gitignore: false,
        limit: 10,
    };
    assert_eq!(system.ask(grep).expect("searched"), FoundLines::default());
    for (path, kind) in [
        ("loop", FileErrorKind::InvalidPath),
        ("a\0b", FileErrorKind::InvalidPath),
        ("", FileErrorKind::InvalidPath),
        (&*"x".repeat(300), FileErrorKind::InvalidPath),
        (&*format!("/{}", "x/".repeat(3000)), FileErrorKind::InvalidPath),
        ("/../../etc", FileErrorKind::Outside),
        ("none/x", FileErrorKind::NotFound),
        ("/", FileErrorKind::IsADirectory),
    ] {
        assert_eq!(system.refused(read(path)), kind, "{path:?}");
    }
    let status = system.ask(read("/proc/self/status")).expect("a file without a size");
    assert!(status.text.starts_with("Name:"));
    for path in ["/", ".", "none/.."] {
        let remove = RemovePath { path: path.into(), recursive: false };
        assert_eq!(system.refused(remove), FileErrorKind::InvalidPath, "{path}");
    }
    let names = ListNames { path: "/proc/self".into(), after: None, limit: 5 };
    assert_eq!(system.ask(names).expect("asked for by name").entries.len(), 5);
}

fn lines(system: &System, first: u64, limit: u64) -> NumberedLines {
    system.ask(ReadLines { path: "f".into(), first, limit }).expect("read")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn ranges_of_lines_add_up_to_the_file(text in "[aé\n]{0,60}", limit in 1_u64..7) {
        let system = System::new();
        fs::write(system.at("f"), &text).expect("written");
        let (mut first, mut all) = (1, Vec::new());
        loop {
            let part = lines(&system, first, limit);
            let wanted = text.lines().count() as u64;
            first += part.lines.len() as u64;
            all.extend(part.lines.into_iter().map(|(line, _)| line));
            prop_assert_eq!(part.left, Some(wanted + 1 - first));
            if part.left == Some(0) {
                break;
            }
        }
        prop_assert_eq!(all, text.lines().map(str::to_owned).collect::<Vec<_>>());
    }

    /// A guest may answer anything: it is decoded or refused.
    #[test]
    fn made_up_answers_are_refused_and_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let outcome: Result<Result<FileOutcome, FileError>, String> = decode(&bytes);
        if let Ok(Ok(outcome)) = outcome {
            let asked: FileOperation = read("f").into();
            let _judged = asked.accepts(&outcome);
        }
    }
}

#[test]
fn lines_that_are_long_are_cut_at_a_character_and_say_how_much_is_left() {
    let system = System::new();
    fs::write(system.at("f"), format!("{}\nend", "é".repeat(10_000))).expect("written");
    let read = lines(&system, 1, 10);
    let (line, cut) = &read.lines[0];
    assert_eq!(line.len() as u64 + cut, 20_000);
    assert!(line.len() <= 8 * 1024 && line.chars().all(|letter| letter == 'é'));
    assert_eq!(read.lines[1], ("end".to_owned(), 0));
    let past = ReadLines { path: "f".into(), first: 4, limit: 1 };
    assert_eq!(system.refused(past), FileErrorKind::PastEnd);
}

/// What a path names changes between a file and a pipe that nobody writes to, while it is worked on.
#[test]
fn a_pipe_that_is_swapped_in_holds_nothing_up() {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    let system = System::new();
    let fifo = || {
        let (mode, kind) = (rustix::fs::Mode::from_raw_mode(0o644), rustix::fs::FileType::Fifo);
        // It is there still, unless it was replaced.
        let _there = rustix::fs::mknodat(rustix::fs::CWD, system.at("pipe"), kind, mode, 0);
    };
    fs::write(system.at("f"), "hit\n").expect("written");
    fifo();
    let done = AtomicBool::new(false);
    let (one, other) = (system.at("f"), system.at("pipe"));
    std::thread::scope(|scope| {
        let swapping = scope.spawn(|| {
            let (cwd, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
            let mut swaps = 0_u64;
            while !done.load(Relaxed) {
                swaps +=
                    u64::from(rustix::fs::renameat_with(cwd, &one, cwd, &other, flags).is_ok());
            }
            swaps
        });
        for _ in 0..100 {
            let edits =
                vec![TextEdit { which: Occurrences::All, old: "hit".into(), new: "hit".into() }];
            let edit = EditFileText { path: "f".into(), edits, expected: None };
            let grep = GrepFiles {
                path: "f".into(),
                pattern: "hit".into(),
                ignore_case: false,
                glob: None,
                gitignore: false,
                limit: 10,
            };
            let outcomes = [
                system.ask(read("f")).map(drop),
                system.ask(ReadLines { path: "f".into(), first: 1, limit: 10 }).map(drop),
                system.ask(edit).map(drop),
                system.ask(grep).map(drop),
                system.ask(write("f", "hit\n")).map(drop),
            ];
            for error in outcomes.into_iter().filter_map(Result::err) {
                let known = [FileErrorKind::NotAFile, FileErrorKind::Contended];
                // A search takes what is no file for a folder.
                let folder = error.kind == FileErrorKind::NotADirectory;
                assert!(known.contains(&error.kind) || folder, "{error:?}");
            }
            fifo();
        }
        done.store(true, Relaxed);
        assert!(swapping.join().expect("no panic") > 0, "nothing was swapped");
    });
}

#[test]
fn what_nobody_waits_for_ends() {
    let system = System::new();
    fs::write(system.at("f"), "hit\n".repeat(1_000_000)).expect("written");
    let operations: [FileOperation; 2] = [
        GrepFiles {
            path: ".".into(),
            pattern: "hit".into(),
            ignore_case: false,
            glob: None,
            gitignore: false,
            limit: 10,
        }
        .into(),
        ReadLines { path: "f".into(), first: 900_000, limit: 10 }.into(),
    ];
    for operation in operations {
        let looks = std::sync::atomic::AtomicUsize::new(0);
        let outcome = run(&system.root, &operation, &|| {
            looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 3
        });
        match outcome {
            Ok(FileOutcome::GrepFiles(found)) => assert!(found.total < 1_000_000, "{found:?}"),
            Err(error) => assert_eq!(error.kind, FileErrorKind::PastEnd),
            other => panic!("{operation:?}: {other:?}"),
        }
    }
}
