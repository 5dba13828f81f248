//! Backups and restores killed on their way, at eighths of the time that they take.

use std::{
    fs,
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{has_staging, session, text};
use crate::home::{Home, show, wait_until};

const TIMES: u32 = 8;

/// Notes enough that packing them takes a while, and none like another.
fn fill_vault(home: &Home) {
    let folder = home.path("state/vault/many");
    fs::create_dir_all(&folder).expect("a folder");
    let mut seed = blake3::hash(b"notes");
    for number in 0..200 {
        let mut note = String::new();
        while note.len() < 40_000 {
            seed = blake3::hash(seed.as_bytes());
            note.push_str(&seed.to_hex());
        }
        fs::write(folder.join(format!("{number}.md")), note).expect("writes");
    }
}

/// Kills the command after a while, unless it has ended by itself.
fn killed_after(pause: Duration, home: &Home, args: &[&str]) {
    let mut child = home
        .command(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program runs");
    std::thread::sleep(pause);
    let _ended_by_itself = child.kill();
    child.wait().expect("waits");
}

/// That a daemon on this home has the session and the notes.
fn is_whole(home: &Home, made: &Value) {
    let _daemon = home.daemon();
    assert_eq!(session(home), *made);
    let notes = fs::read_dir(home.path("state/vault/many")).expect("notes").count();
    assert_eq!(notes, 200);
    assert!(!home.path("state/restore.part").exists());
}

#[test]
fn a_killed_backup_leaves_no_file_and_no_copy() {
    let home = Home::new();
    let _daemon = home.daemon();
    let made = session(&home);
    fill_vault(&home);
    let (file, begun) = (home.path("whole.tar.zst"), Instant::now());
    home.ok(&["backup", text(&file)]);
    let whole = begun.elapsed();
    for nth in 0..TIMES {
        let file = home.path(&format!("{nth}.tar.zst"));
        killed_after(whole * nth / TIMES, &home, &["backup", text(&file)]);
        // Killed when it had its name already, it is whole.
        if !file.exists() {
            home.ok(&["backup", text(&file)]);
        }
        let other = Home::new();
        other.ok(&["restore", text(&file)]);
        if nth == TIMES - 1 {
            is_whole(&other, &made);
        }
        assert!(!home.path(&format!("{nth}.tar.zst.part")).exists());
    }
    wait_until("the staging folders go", || !has_staging(&home));
}

#[test]
fn a_killed_restore_is_all_or_is_done_again() {
    let home = Home::new();
    let daemon = home.daemon();
    let made = session(&home);
    fill_vault(&home);
    let file = home.path("kept.tar.zst");
    home.ok(&["backup", text(&file)]);
    drop(daemon);
    let (measured, begun) = (Home::new(), Instant::now());
    measured.ok(&["restore", text(&file)]);
    let whole = begun.elapsed();
    for nth in 0..TIMES {
        let other = Home::new();
        killed_after(whole * nth / TIMES, &other, &["restore", text(&file)]);
        let in_place = other.path("state/journal").exists();
        if other.path("state/restore.part").exists() && !in_place {
            let refused = other.run(&["daemon"]);
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(said.contains("was cut short"), "{}", show(&refused));
        }
        if !in_place {
            other.ok(&["restore", text(&file)]);
        }
        is_whole(&other, &made);
    }
}
