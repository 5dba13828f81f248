//! Watches of folders: what is told, what is not told twice, and what is told of as lost.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use hivekeep_protocol::*;

use crate::client::Host;
use crate::guest::{Guest, Way};

struct Stage {
    _guest: Guest,
    host: Host,
    folder: PathBuf,
}

impl Stage {
    async fn new() -> Self {
        let guest = Guest::start(Way::Subreaper);
        let host = Host::to(&guest).await;
        let folder = guest.dir.path().join("watched");
        fs::create_dir(&folder).expect("a folder");
        Self { _guest: guest, host, folder }
    }

    fn request(&self, recursive: bool) -> WatchStart {
        let path = self.folder.to_str().expect("UTF-8").to_owned();
        WatchStart { path, recursive, user: None }
    }

    async fn watch(&self, recursive: bool) -> u64 {
        self.host.ask(self.request(recursive)).await.expect("watched").watch
    }

    async fn read(&self, watch: u64, after: u64) -> WatchChanges {
        let read = WatchRead { watch, after, wait_ms: limits::MAX_WAIT_MS };
        self.host.ask(read).await.expect("changes")
    }

    /// Changes from a number on until one is told.
    async fn until(
        &self,
        watch: u64,
        mut after: u64,
        last: (ChangeKind, &str),
    ) -> Vec<WatchChange> {
        let mut all = Vec::new();
        loop {
            let read = self.read(watch, after).await;
            assert!(!read.lost && read.next > after, "{read:?}");
            after = read.next;
            all.extend(read.changes);
            if all.iter().any(|change| (change.kind, &*change.path) == last) {
                return all;
            }
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.join(path)
    }
}

fn told(changes: &[WatchChange]) -> Vec<(ChangeKind, &str)> {
    changes.iter().map(|change| (change.kind, &*change.path)).collect()
}

use ChangeKind::{Chmod, Create, Remove, Rename, Write};

#[tokio::test]
async fn changes_of_one_folder_are_told_as_they_happen() {
    let stage = Stage::new().await;
    fs::write(stage.path("old"), "x").expect("written");
    fs::create_dir(stage.path("sub")).expect("made");
    let watch = stage.watch(false).await;
    // Nothing is told that was before, and a wait ends with its time.
    let read = WatchRead { watch, after: 0, wait_ms: 1 };
    assert_eq!(stage.host.ask(read).await.expect("none"), WatchChanges::default());
    let long = WatchRead { watch, after: 0, wait_ms: limits::MAX_WAIT_MS };
    let mut waits = stage.host.call(long.clone().into_wire()).await;
    let mut given_up = stage.host.call(long.into_wire()).await;
    given_up.cancel().await;
    assert_eq!(given_up.reply().await.expect_err("cancelled").code, GuestCode::Cancelled);
    fs::write(stage.path("new"), "x").expect("written");
    let woken = WatchRead::reply_of(waits.reply().await.expect("changes")).expect("of it");
    assert_eq!(told(&woken.changes)[0], (Create, "new"));
    let seen = stage.until(watch, 0, (Write, "new")).await;
    let after = seen.last().expect("some").seq;
    fs::set_permissions(stage.path("old"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("set");
    fs::rename(stage.path("old"), stage.path("moved")).expect("moved");
    // Below another folder nothing is watched.
    fs::write(stage.path("sub/deep"), "x").expect("written");
    fs::remove_file(stage.path("moved")).expect("removed");
    let seen = stage.until(watch, after, (Remove, "moved")).await;
    let wanted = [(Chmod, "old"), (Rename, "old"), (Create, "moved"), (Remove, "moved")];
    assert_eq!(told(&seen), wanted);
    assert_eq!(stage.until(watch, 0, (Remove, "moved")).await.len() as u64, seen[3].seq);
    fs::remove_dir_all(&stage.folder).expect("removed");
    stage.until(watch, after, (Remove, ".")).await;
}

#[tokio::test]
async fn new_folders_are_watched_and_what_is_in_them_already_is_told_once() {
    let stage = Stage::new().await;
    fs::create_dir_all(stage.path("there/deep")).expect("made");
    let watch = stage.watch(true).await;
    fs::write(stage.path("there/deep/f"), "x").expect("written");
    stage.until(watch, 0, (Write, "there/deep/f")).await;
    let begun = stage.read(watch, 0).await.next;
    // Whole trees at once: much is made before their watches stand.
    for tree in 0..20 {
        fs::create_dir_all(stage.path(&format!("t{tree}/a/b"))).expect("made");
        for file in 0..5 {
            fs::write(stage.path(&format!("t{tree}/a/b/{file}")), "x").expect("written");
        }
    }
    fs::write(stage.path("end"), "").expect("written");
    let mut seen = stage.until(watch, begun, (Create, "end")).await;
    let wanted: BTreeSet<String> = (0..20)
        .flat_map(|tree| {
            let files = (0..5).map(move |file| format!("t{tree}/a/b/{file}"));
            let folders = ["", "/a", "/a/b"].map(|below| format!("t{tree}{below}"));
            files.chain(folders)
        })
        .collect();
    let made = |seen: &[WatchChange], kind| -> Vec<String> {
        let of_it = seen.iter().filter(|change| change.kind == kind && change.path != "end");
        of_it.map(|change| change.path.clone()).collect()
    };
    // The notices of the last folders may come behind that of the last file.
    while made(&seen, Create).len() < wanted.len() || made(&seen, Write).is_empty() {
        let after = seen.last().expect("some").seq;
        seen.extend(stage.read(watch, after).await.changes);
    }
    let mut names = made(&seen, Create);
    names.sort();
    assert!(names.iter().eq(&wanted), "each is told once: {names:?}");
    // What was told by a look is new again once it was gone.
    let after = seen.last().expect("some").seq;
    fs::remove_file(stage.path("t0/a/b/0")).expect("removed");
    fs::write(stage.path("t0/a/b/0"), "").expect("written");
    let seen = stage.until(watch, after, (Create, "t0/a/b/0")).await;
    assert!(told(&seen).contains(&(Remove, "t0/a/b/0")), "{seen:?}");
    // A folder that is moved is watched under its new name alone.
    let after = seen.last().expect("some").seq;
    fs::rename(stage.path("t1"), stage.path("u1")).expect("moved");
    let seen = stage.until(watch, after, (Create, "u1/a/b/4")).await;
    assert!(told(&seen).contains(&(Rename, "t1")) && told(&seen).contains(&(Create, "u1")));
    let after = seen.last().expect("some").seq;
    fs::write(stage.path("u1/a/b/later"), "x").expect("written");
    let seen = stage.until(watch, after, (Write, "u1/a/b/later")).await;
    assert!(!seen.iter().any(|change| change.path.starts_with("t1")), "{seen:?}");
}

#[tokio::test]
async fn a_file_that_is_replaced_whole_is_new_and_whole_and_its_draft_is_not_told() {
    let stage = Stage::new().await;
    let watch = stage.watch(true).await;
    let path = stage.path("f").to_str().expect("UTF-8").to_owned();
    let size_bytes = 3;
    let write = WriteFile { path, mode: None, size_bytes };
    for _ in 0..2 {
        let after = stage.read_now(watch).await;
        stage.host.upload(write.clone(), [b"abc".to_vec()].into_iter()).await.expect("written");
        let seen = stage.until(watch, after, (Write, "f")).await;
        assert_eq!(told(&seen), [(Create, "f"), (Chmod, "f"), (Write, "f")]);
    }
    let after = stage.read_now(watch).await;
    fs::write(stage.path(".1-2-3.hivekeep-draft"), "x").expect("written");
    fs::rename(stage.path(".1-2-3.hivekeep-draft"), stage.path("g")).expect("moved");
    let seen = stage.until(watch, after, (Write, "g")).await;
    assert_eq!(told(&seen), [(Create, "g"), (Chmod, "g"), (Write, "g")]);
}

impl Stage {
    /// Number of the last change so far.
    async fn read_now(&self, watch: u64) -> u64 {
        let read = WatchRead { watch, after: u64::MAX, wait_ms: 0 };
        self.host.ask(read).await.expect("a number").next
    }
}

#[tokio::test]
async fn watches_are_bounded_end_and_have_the_rights_of_their_user() {
    let stage = Stage::new().await;
    let mut watches = Vec::new();
    for _ in 0..limits::MAX_WATCHES {
        watches.push(stage.watch(false).await);
    }
    assert_eq!(watches.iter().collect::<BTreeSet<_>>().len(), watches.len());
    let one_more = stage.host.ask(stage.request(false)).await.expect_err("refused");
    assert_eq!(one_more.code, GuestCode::Busy);
    let (ended, read) = (watches[0], WatchRead { watch: watches[0], after: 0, wait_ms: 60_000 });
    let mut waits = stage.host.call(read.clone().into_wire()).await;
    // It is looked at before it ends, or is not there: both are told.
    assert!(stage.host.ask(WatchEnd { watch: ended }).await.expect("ended").existed);
    assert_eq!(waits.reply().await.expect_err("ended").code, GuestCode::UnknownWatch);
    assert!(!stage.host.ask(WatchEnd { watch: ended }).await.expect("told").existed);
    assert_eq!(stage.host.ask(read).await.expect_err("gone").code, GuestCode::UnknownWatch);
    assert!(stage.watch(true).await > ended, "there is room again");
    for watch in watches {
        stage.host.ask(WatchEnd { watch }).await.expect("told");
    }
    fs::write(stage.path("file"), "").expect("written");
    for (path, user, code) in [
        ("none", None, GuestCode::NotFound),
        ("file", None, GuestCode::NotADirectory),
        ("", Some("no-such-user"), GuestCode::UnknownUser),
    ] {
        let path = stage.path(path).to_str().expect("UTF-8").to_owned();
        let user = user.map(str::to_owned);
        let refused = stage.host.ask(WatchStart { path, recursive: true, user }).await;
        assert_eq!(refused.expect_err("refused").code, code);
    }
    let relative = WatchStart { path: "tmp".into(), ..stage.request(false) };
    assert_eq!(stage.host.ask(relative).await.expect_err("refused").code, GuestCode::Invalid);
    if !rustix::process::geteuid().is_root() {
        return hivekeep_skip::skip("only root is somebody else");
    }
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(&stage.folder, mode).expect("set");
    let denied = WatchStart { user: Some("64781".into()), ..stage.request(false) };
    assert_eq!(stage.host.ask(denied).await.expect_err("denied").code, GuestCode::PermissionDenied);
}
