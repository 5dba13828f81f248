use std::{
    fs::DirBuilder, os::unix::fs::DirBuilderExt, path::Path, process::Stdio, time::Duration,
};

use hivekeep_runtime::host_process::{
    ETC, HostChild, HostProgram, HostSandbox, HostUsers, PROGRAM_PATH, StderrTail,
};
use tokio::time::timeout;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);
/// Each of them keeps less than one process may have.
const TOGETHER: &str =
    "for i in 1 2 3 4; do head -c 40000000 /dev/zero | tail -n 1 | sleep 30 & done; wait";

async fn started(home: &Path, script: &str) -> (HostChild, StderrTail) {
    DirBuilder::new().mode(0o700).create(home).expect("a home");
    let sandbox = HostSandbox {
        hostname: "test",
        uid: HostUsers::from_first(None).uid(HostProgram::Reader),
        home: (home, "/srv/test"),
        network: false,
        etc: ETC,
        folders: &[],
        tmp_mb: Some(1),
        nests: false,
        bounds: HostBounds { memory_mb: Some(64), processes: 99 },
    };
    let mut command = sandbox.command().await.expect("a sandbox");
    command.args(["sh", "-c", script]).env_clear().env("PATH", PROGRAM_PATH).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = HostChild::spawn(command, home).expect("it starts");
    let said = StderrTail::of(child.stderr().expect("piped"));
    (child, said)
}

#[tokio::test]
async fn a_program_that_takes_too_much_with_several_processes_ends_and_no_other_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let host_env = HostEnv::open(Default::default(), &folder.path().join("run"));
    if let Err(why) = host_env.program_groups() {
        host_env.leave();
        return hivekeep_skip::skip(format_args!("what programs take together: {why}"));
    }
    bound(&host_env);
    let (mut other, _) = started(&folder.path().join("other"), "sleep 1000").await;
    let (mut greedy, mut said) = started(&folder.path().join("greedy"), TOGETHER).await;
    let ended = timeout(PATIENCE, greedy.wait()).await.expect("the kernel ends it");
    assert!(!ended.expect("waited for").success());
    let why = said.last_words(&mut greedy).await;
    assert!(why.contains("took more memory together"), "{why}");
    assert!(timeout(Duration::from_millis(200), other.wait()).await.is_err(), "it lives");
    other.kill();
    timeout(PATIENCE, other.wait()).await.expect("killed").expect("waited for");
}
