use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use proptest::prelude::*;
use serde_json::json;

use crate::{
    AuditFault, AuditLog, Filter, Head, Options, entries, files::Segments, newest, verify,
};

const CHILD: &str = "HIVEKEEP_AUDIT_TEST_FOLDER";

fn open(folder: &Path, options: &Options) -> AuditLog {
    AuditLog::open(&folder.join("state"), &folder.join("run"), options).expect("opens")
}

fn log_of(folder: &Path, calls: u64) -> Head {
    let log = open(folder, &Options::default());
    for n in 0..calls {
        let outcome = if n % 3 == 0 { "denied" } else { "ok" };
        log.append("call", &json!({ "tool": "exec", "session": "s", "outcome": outcome, "n": n }))
            .expect("appends");
    }
    log.head()
}

fn text(folder: &Path) -> (std::path::PathBuf, String) {
    let segment = Segments::list(&folder.join("state")).expect("listed").remove(0);
    let text = fs::read_to_string(&segment.path).expect("read");
    (segment.path, text)
}

#[test]
fn what_was_appended_is_read_and_verified() {
    let folder = tempfile::tempdir().expect("made");
    let state = folder.path().join("state");
    let head = log_of(folder.path(), 30);
    let verified = verify(&state, Some(head)).expect("whole");
    assert_eq!((verified.first, verified.entries), (1, 30));
    assert_eq!(verified.head, head.to_string());
    let wanted = Filter { outcome: Some("denied".to_owned()), ..Filter::default() };
    let denied: Vec<_> =
        entries(&state, wanted).expect("listed").map(|entry| entry.expect("read").0.seq).collect();
    assert_eq!(denied, [1, 4, 7, 10, 13, 16, 19, 22, 25, 28]);
    // The next daemon goes on with the chain.
    let head = log_of(folder.path(), 5);
    assert_eq!(head.seq, 35);
    assert_eq!(verify(&state, Some(head)).expect("whole").entries, 35);
}

#[test]
fn pages_of_the_newest_first_add_up_to_the_whole_log() {
    let folder = tempfile::tempdir().expect("made");
    let state = folder.path().join("state");
    // Files of a MiB each.
    let options = Options { segment_mb: 1, ..Options::default() };
    let log = open(folder.path(), &options);
    let long = "x".repeat(4_000);
    for n in 0..600_u64 {
        log.append(
            "call",
            &json!({ "tool": if n % 3 == 0 { "exec" } else { "vault" }, "x": long }),
        )
        .expect("appends");
        if n % 150 == 0 {
            assert!(log.settle(Duration::from_secs(30)), "the disk takes it");
        }
    }
    assert!(log.settle(Duration::from_secs(30)));
    assert!(Segments::list(&state).expect("listed").len() > 1, "several files");
    let whole = |filter: Filter| -> Vec<u64> {
        let all = entries(&state, filter).expect("listed");
        all.map(|entry| entry.expect("read").0.seq).collect()
    };
    let exec = || Filter { tool: Some("exec".to_owned()), ..Filter::default() };
    for (filter, limit, count) in [(Filter::default(), 7, 600), (exec(), 64, 200)] {
        let (mut seen, mut before) = (Vec::new(), None);
        loop {
            let page = newest(&state, &filter, before, limit).expect("read");
            assert!(page.entries.len() <= limit);
            seen.extend(page.entries.iter().map(|entry| entry.seq));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        seen.reverse();
        assert_eq!((seen.len(), seen), (count, whole(filter)));
    }
    for after in [0, 1, 299, 598, 599, 600, u64::MAX] {
        let filter = Filter { after: Some(after), ..Filter::default() };
        let first = whole(filter);
        assert_eq!(first.first().copied(), (after < 600).then(|| after + 1), "{after}");
        assert_eq!(first.len() as u64, 600_u64.saturating_sub(after));
    }
    assert_eq!(newest(&state, &Filter::default(), Some(1), 5).expect("read"), Default::default());
}

#[test]
fn a_cut_at_either_end_is_found() {
    let folder = tempfile::tempdir().expect("made");
    let state = folder.path().join("state");
    log_of(folder.path(), 10);
    let (path, whole) = text(folder.path());
    let without_last = whole.trim_end().rsplit_once('\n').expect("lines").0;
    fs::write(&path, format!("{without_last}\n")).expect("written");
    assert!(matches!(verify(&state, None), Err(AuditFault::Cut { .. })));
    let (_, without_first) = whole.split_once('\n').expect("lines");
    fs::write(&path, without_first).expect("written");
    assert!(matches!(verify(&state, None), Err(AuditFault::Beheaded { first: 2 })));
    // A daemon that finds a cut goes on, and says so in the log.
    fs::write(&path, format!("{without_last}\n")).expect("written");
    drop(open(folder.path(), &Options::default()));
    let cut =
        entries(&state, Filter::default()).expect("listed").last().expect("one").expect("read");
    assert_eq!((cut.0.kind.as_str(), &cut.0.data["found"]), ("log.cut", &json!(9)));
    drop(open(folder.path(), &Options::default()));
    assert!(matches!(verify(&state, None), Err(AuditFault::WasCut { seq: 10, found: 9, .. })));
}

#[test]
fn a_new_chain_is_told_by_a_head_that_was_kept_elsewhere() {
    let folder = tempfile::tempdir().expect("made");
    let kept = log_of(folder.path(), 5);
    let other = tempfile::tempdir().expect("made");
    log_of(other.path(), 6);
    let state = other.path().join("state");
    assert!(verify(&state, None).is_ok());
    assert!(matches!(verify(&state, Some(kept)), Err(AuditFault::Cut { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_change_is_found(at in any::<prop::sample::Index>(), how in 0..4, to in 0u8..255) {
        let folder = tempfile::tempdir().expect("made");
        log_of(folder.path(), 8);
        let (path, whole) = text(folder.path());
        let mut lines: Vec<&[u8]> = whole.trim_end().as_bytes().split(|byte| *byte == b'\n').collect();
        let line = at.index(lines.len());
        let changed: Vec<u8> = match how {
            0 => {
                let mut bytes = whole.clone().into_bytes();
                let byte = at.index(bytes.len());
                prop_assume!(bytes[byte] != to);
                bytes[byte] = to;
                bytes
            }
            how => {
                match how {
                    1 => drop(lines.remove(line)),
                    2 => lines.insert(line, lines[line]),
                    _ => {
                        let other = (line + 1) % lines.len();
                        lines.swap(line, other);
                    }
                }
                lines.iter().flat_map(|line| line.iter().chain(b"\n")).copied().collect()
            }
        };
        fs::write(&path, changed).expect("written");
        prop_assert!(verify(&folder.path().join("state"), None).is_err());
    }
}

#[test]
fn half_a_line_is_mended_and_told() {
    let folder = tempfile::tempdir().expect("made");
    log_of(folder.path(), 3);
    let (path, whole) = text(folder.path());
    fs::write(&path, format!("{whole}0123 {{\"half")).expect("written");
    let state = folder.path().join("state");
    assert!(verify(&state, None).expect("whole").unfinished);
    drop(open(folder.path(), &Options::default()));
    let verified = verify(&state, None).expect("whole");
    assert!(!verified.unfinished);
    assert_eq!(verified.entries, 4);
}

#[test]
fn the_oldest_go_and_the_log_says_so() {
    let folder = tempfile::tempdir().expect("made");
    let state = folder.path().join("state");
    let options = Options { segment_mb: 1, keep_mb: 4, sync_ms: 1, ..Options::default() };
    let log = open(folder.path(), &options);
    let long = "x".repeat(300 * 1024);
    for n in 0..40 {
        log.append("call", &json!({ "n": n, "long": long })).expect("appends");
        // Each in a batch of its own, so that the files are of their size.
        assert!(log.settle(Duration::from_secs(30)));
    }
    drop(log);
    let bytes: u64 = Segments::list(&state).expect("listed").iter().map(|it| it.bytes).sum();
    assert!(bytes < 6 << 20, "{bytes}");
    let verified = verify(&state, None).expect("whole");
    assert!(verified.first > 10, "{verified:?}");
    // Without the entry that says so, the same is a cut.
    let segments = Segments::list(&state).expect("listed");
    fs::remove_file(&segments[0].path).expect("removed");
    assert!(matches!(verify(&state, None), Err(AuditFault::Beheaded { .. })));
}

#[test]
fn what_cannot_be_written_is_counted() {
    let folder = tempfile::tempdir().expect("made");
    let log = open(folder.path(), &Options::default());
    log.append("call", &json!({})).expect("appends");
    // What is no JSON is the only thing that fails on a healthy disk.
    struct Fails;
    impl serde::Serialize for Fails {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("no"))
        }
    }
    assert!(log.append("call", &Fails).is_err());
    // Whoever is the next: those that are missing are told before it.
    log.append("call", &json!({})).expect("again");
    assert!(log.append("call", &Fails).is_err());
    log.ready().expect("and again");
    log.ready().expect("and still");
    drop(log);
    let state = folder.path().join("state");
    let all = entries(&state, Filter::default()).expect("listed").map(|it| it.expect("read").0);
    let told: Vec<_> = all.map(|it| (it.kind, it.data["entries_lost"].as_u64())).collect();
    let [call, resumed] = [("call", None), ("log.resumed", Some(1))];
    let wanted = [call, resumed, call, resumed];
    assert_eq!(told, wanted.map(|(kind, lost)| (kind.to_owned(), lost)));
}

/// The process that is killed: appends, and says after each what is in.
#[test]
#[ignore = "run by `a_killed_process_loses_nothing_that_it_was_told_is_in`"]
fn child() {
    let folder = std::env::var_os(CHILD).expect("the test below sets it");
    let log = open(Path::new(&folder), &Options { sync_ms: 3, ..Options::default() });
    for n in 0u64.. {
        let head = log.append("call", &json!({ "n": n })).expect("appends");
        println!("\nin {head}");
    }
}

#[test]
fn a_killed_process_loses_nothing_that_it_was_told_is_in() {
    let folder = tempfile::tempdir().expect("made");
    let state = folder.path().join("state");
    let mut told = Head::START;
    for round in 0..12u64 {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["tests::child", "--exact", "--ignored", "--nocapture"])
            .env(CHILD, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut said = BufReader::new(child.stdout.take().expect("piped")).lines();
        let heads = said.by_ref().map_while(Result::ok);
        let heads = heads.filter_map(|line| line.strip_prefix("in ")?.parse::<Head>().ok());
        let last = heads.take(50 + 137 * usize::try_from(round).expect("small")).last();
        child.kill().expect("killed");
        child.wait().expect("reaped");
        let rest = said.map_while(Result::ok);
        let rest = rest.filter_map(|line| line.strip_prefix("in ")?.parse::<Head>().ok()).last();
        let heads = rest.or(last).expect("it said something");
        assert!(heads.seq > told.seq);
        told = heads;
        drop(open(folder.path(), &Options::default()));
        let verified = verify(&state, Some(told)).expect("whole");
        assert!(verified.entries >= told.seq, "round {round}: {verified:?}");
    }
}
