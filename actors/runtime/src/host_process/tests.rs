//! Tests of what a program in a sandbox can do to the host: a shell tries it.

use std::{
    ffi::{CStr, OsStr},
    fs::metadata,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, MetadataExt},
    },
    process::Stdio,
    sync::OnceLock,
};

use tempfile::TempDir;

use super::*;

/// Says what it could do, a line each. What it writes to the kernel is what is there.
const TRIES: &str = r#"
echo "user $(id -u)"
for file in kernel/core_pattern kernel/hostname vm/overcommit_memory; do
    was=$(cat /proc/sys/$file) && (echo "$was" > /proc/sys/$file) 2>/dev/null && echo "set $file"
done
grep -q ' /proc/sys ro' /proc/self/mountinfo || echo "/proc/sys may be written by its modes"
umount /proc/sys 2>/dev/null && echo "uncovered /proc/sys"
perl -e 'socket(S, 40, 1, 0) and print "vsock\n"; socket(S, 17, 3, 0) and print "packets\n"'
echo own > made && for folder in . "$FOLDER"; do
    cp /bin/true $folder/lent && chmod 4755 $folder/lent 2>/dev/null && echo "set-user-id in $folder"
done
echo no > "$READ_ONLY/made" 2>/dev/null && echo "wrote $READ_ONLY"
echo "processes $(awk '/Max processes/ {print $3}' /proc/self/limits)"
kill -0 "$DAEMON" 2>/dev/null && echo "sees the daemon"
"#;

/// Where a file system maps no ids for a test.
static MAPS_NONE: OnceLock<TempDir> = OnceLock::new();

pub(super) fn maps_no_ids(path: &CStr) -> bool {
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    MAPS_NONE.get().is_some_and(|folder| path.starts_with(folder.path()))
}

fn sandbox<'a>(home: &'a Path, folders: &'a [String], uid: Option<u32>) -> HostSandbox<'a> {
    HostSandbox {
        hostname: "test",
        uid,
        home: (home, "/srv/test"),
        network: false,
        etc: ETC,
        folders,
        tmp_mb: Some(16),
        nests: false,
        bounds: HostBounds { memory_mb: Some(1024), processes: 99 },
    }
}

#[tokio::test]
async fn a_program_does_nothing_to_the_host_whatever_the_daemon_is() {
    if std::process::Command::new("bwrap").arg("--version").output().is_err() {
        return hivekeep_skip::skip("bwrap is not installed");
    }
    let root = rustix::process::geteuid().is_root();
    let uid = root.then_some(2_000_000_777);
    let [home, folder, read_only] = [(); 3].map(|()| TempDir::new().expect("a folder"));
    let whose = if root { 4_321 } else { rustix::process::geteuid().as_raw() };
    std::os::unix::fs::chown(folder.path(), Some(whose), Some(whose)).expect("given away");
    let path = |folder: &TempDir| folder.path().display().to_string();
    let folders = [path(&folder), format!("{}:ro", path(&read_only))];
    for nests in [false, true] {
        let sandbox = HostSandbox { nests, ..sandbox(home.path(), &folders, uid) };
        let mut command = sandbox.command().await.expect("made");
        command
            .args(["sh", "-c", TRIES])
            .env("FOLDER", path(&folder))
            .env("READ_ONLY", path(&read_only))
            .env("DAEMON", std::process::id().to_string())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = HostChild::spawn(command, home.path()).expect("started");
        let status = format!("/proc/{}/status", child.id().expect("it runs"));
        let status = std::fs::read_to_string(status).expect("it runs");
        let outside = format!("Uid:\t{0}\t{0}\t{0}\t{0}\n", uid.unwrap_or(whose));
        assert!(status.contains(&outside), "{outside}{status}");
        let (mut said, mut wrong) = (String::new(), String::new());
        let (_stdin, mut out, mut err) = child.streams().expect("they are piped");
        let read = tokio::join!(out.read_to_string(&mut said), err.read_to_string(&mut wrong));
        assert!(read.0.is_ok() && read.1.is_ok());
        let ended = child.wait().await.expect("it ended");
        let user = if root || nests { 1000 } else { whose };
        let (did, processes) = said.split_once("processes ").expect("it came to its end");
        assert_eq!(did, format!("user {user}\n"), "{nests} {ended}: {wrong}");
        assert!(!root || processes.trim() == "99", "{processes}");
    }
    let owner = |path: &Path| metadata(path).expect("it was made").uid();
    let own = rustix::process::geteuid().as_raw();
    assert_eq!(owner(&home.path().join("made")), own, "its home is the daemon's");
    assert_eq!(owner(&folder.path().join("lent")), whose, "what it makes is the folder's owner's");
}

#[tokio::test]
async fn a_home_is_its_programs_where_the_file_system_maps_no_ids() {
    if !rustix::process::geteuid().is_root() {
        return hivekeep_skip::skip("only the programs of root's daemon have users of their own");
    }
    if std::process::Command::new("bwrap").arg("--version").output().is_err() {
        return hivekeep_skip::skip("bwrap is not installed");
    }
    let folder = MAPS_NONE.get_or_init(|| TempDir::new().expect("a folder")).path();
    let make = |path: &str| {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder.join(path));
        made.expect("made");
        folder.join(path)
    };
    let (home, uid) = (make("home"), 2_000_000_778);
    let _of_the_daemon = make("home/profile");
    let folders = [make("folder").display().to_string()];
    // The second time it is the program's already.
    for _ in 0..2 {
        let mut command = sandbox(&home, &folders, Some(uid)).command().await.expect("made");
        let script = "echo own > made && echo own > profile/made && ! touch \"$FOLDER/made\"";
        command.args(["sh", "-c", script]).env("FOLDER", &folders[0]).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = HostChild::spawn(command, &home).expect("started");
        let ended = child.wait().await.expect("it ended");
        assert!(ended.success(), "{ended}");
        for path in ["", "made", "profile", "profile/made"] {
            assert_eq!(metadata(home.join(path)).expect("there").uid(), uid, "{path}");
        }
    }
    assert_eq!(metadata(&folders[0]).expect("there").uid(), 0, "the operator's stays so");
    assert!(enclosure::was_told(Path::new(&folders[0])), "and it is told");
    let checked = tried(HostUsers::Apart { first: 2_000_000_000 }, folder).await;
    assert!(checked.ok && checked.detail.contains("maps no ids"), "{checked:?}");
    let left: Vec<_> = std::fs::read_dir(folder).expect("there").flatten().collect();
    assert_eq!(left.len(), 2, "the check leaves nothing: {left:?}");
}
