//! Backups of a daemon that runs, and daemons on what was restored from them.

mod killed;

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    home::{Home, show, wait_until},
    wire::Wire,
};

fn write(wire: &mut Wire, id: i64, number: usize) {
    let path = format!("notes/{number}.md");
    let note = json!({"action": "write", "path": path, "content": format!("note {number}\n")});
    let answer = wire.call(id, "vault", note);
    assert_eq!(answer["result"]["isError"], false, "{answer}");
}

/// The lasting session of `hivekeep call`, made by the first one.
fn session(home: &Home) -> Value {
    home.ok(&["call", "workspace_list"]);
    let sessions = home.json(&["sessions", "--json"]);
    let all = sessions.as_array().expect("a list");
    let ours = |row: &&Value| row["client"].as_str().is_some_and(|name| name.contains("call"));
    all.iter().find(ours).unwrap_or_else(|| panic!("{sessions}"))["id"].clone()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Whether a copy of the journal waits to be packed.
fn has_staging(home: &Home) -> bool {
    let mut names = fs::read_dir(home.path("state")).expect("a folder").flatten();
    names.any(|entry| entry.file_name().to_string_lossy().starts_with(".hivekeep-backup-"))
}

#[test]
fn a_daemon_starts_on_what_was_kept_while_another_one_wrote() {
    let home = Home::new().with("HIVEKEEP_REGISTRY__RATE__ENABLED", "false");
    let mut daemon = home.daemon();
    let made = session(&home);
    let written = AtomicUsize::new(0);
    let done = AtomicBool::new(false);
    let file = home.path("kept.tar.zst");
    let before = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut wire = Wire::start(&home, &["--no-spawn"]);
            wire.initialize();
            for number in 0.. {
                if done.load(SeqCst) {
                    break;
                }
                write(&mut wire, number as i64 + 2, number);
                written.store(number + 1, SeqCst);
            }
        });
        wait_until("notes are written", || written.load(SeqCst) > 20);
        let before = written.load(SeqCst);
        let packed = home.json(&["backup", text(&file), "--json"]);
        done.store(true, SeqCst);
        assert!(packed["vault_files"].as_u64().expect("a number") >= before as u64, "{packed}");
        before
    });
    wait_until("the staging folder goes", || !has_staging(&home));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);

    let other = Home::new().with("HIVEKEEP_REGISTRY__RATE__ENABLED", "false");
    let restored = other.json(&["restore", text(&file), "--json"]);
    assert_eq!(restored["journal"]["created"], false);
    assert!(!other.path("state/restore.part").exists());
    let _daemon = other.daemon();
    assert_eq!(session(&other), made);
    for number in 0..before {
        let path = format!("path=notes/{number}.md");
        let note = other.json(&["call", "vault", "-a", "action=read", "-a", &path, "--json"]);
        assert_eq!(note["content"], format!("note {number}\n"));
    }
    // It goes on from there, and so does the first one.
    other.ok(&["call", "vault", "-a", "action=write", "-a", "path=b.md", "-a", "content=there"]);
    home.ok(&["call", "vault", "-a", "action=write", "-a", "path=a.md", "-a", "content=here"]);
    daemon.signal(Signal::KILL);
    daemon.wait();

    // The same without a daemon.
    let file = home.path("stopped.tar.zst");
    home.ok(&["backup", text(&file)]);
    let third = Home::new();
    third.ok(&["restore", text(&file)]);
    let _daemon = third.daemon();
    assert_eq!(session(&third), made);
    let args = ["call", "vault", "-a", "action=read", "-a", "path=a.md", "--json"];
    assert_eq!(third.json(&args)["content"], "here");
}

#[test]
fn nothing_is_overwritten_and_nothing_broken_is_restored() {
    let home = Home::new();
    let refused = |home: &Home, args: &[&str], why: &str, code: i32| {
        let output = home.run(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(why), "{why}: {}", show(&output));
        assert_eq!(output.status.code(), Some(code), "{}", show(&output));
    };
    let file = home.path("kept.tar.zst");
    refused(&home, &["backup", text(&file)], "nothing to back up", 1);
    let daemon = home.daemon();
    let made = session(&home);
    home.ok(&["backup", text(&file)]);
    refused(&home, &["backup", text(&file)], "is there already", 1);
    refused(&home, &["restore", text(&file)], "another daemon", 4);
    drop(daemon);
    refused(&home, &["restore", text(&file)], "is there already", 1);

    let whole = fs::read(&file).expect("a file");
    let other = Home::new();
    let broken = other.path("broken.tar.zst");
    let mut all = vec![whole[..whole.len() / 2].to_vec(), b"no archive".to_vec(), Vec::new()];
    // A few bits of a compressed stream mean nothing: what is left out here is whole.
    let held = zstd::decode_all(&whole[..]).expect("an archive");
    all.extend((0..whole.len()).step_by(whole.len() / 24).filter_map(|at| {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        (zstd::decode_all(&damaged[..]).ok().as_ref() != Some(&held)).then_some(damaged)
    }));
    assert!(all.len() > 20, "most damage is to what is held");
    for bytes in all {
        fs::write(&broken, bytes).expect("writes");
        refused(&other, &["restore", text(&broken)], "is not a whole backup", 1);
        assert!(!other.path("state/journal").exists());
        assert!(!other.path("state/restore.part").exists());
    }

    // A restore that was killed: no daemon on half a state, and it can be done again.
    fs::create_dir_all(other.path("state/restore.part/journal")).expect("a folder");
    fs::create_dir_all(other.path("state/vault")).expect("a folder");
    fs::write(other.path("state/vault/half.md"), "ha").expect("writes");
    refused(&other, &["daemon"], "was cut short", 1);
    other.ok(&["restore", text(&file)]);
    // Killed once more when all was in place, before it had cleared up.
    fs::create_dir_all(other.path("state/restore.part/vault")).expect("a folder");
    let _daemon = other.daemon();
    assert_eq!(session(&other), made);
    assert!(!other.path("state/restore.part").exists());
}
