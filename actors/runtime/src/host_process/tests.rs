//! Tests of what a program in a sandbox can do to the host: a shell tries it.

use std::{os::unix::fs::MetadataExt, process::Stdio};

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
    let owner = |path: &Path| std::fs::metadata(path).expect("it was made").uid();
    let own = rustix::process::geteuid().as_raw();
    assert_eq!(owner(&home.path().join("made")), own, "its home is the daemon's");
    assert_eq!(owner(&folder.path().join("lent")), whose, "what it makes is the folder's owner's");
}
