//! The link against the real guest daemon, over a Unix socket.
//!
//! The binary is taken from `TEST_HIVEKEEP_GUEST`, else from the target folder; without one each
//! test reports that and does nothing.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use hivekeep_link::{
    CallTerms, Endpoint, Link, LinkError, LinkOptions, LinkToken, tasks::TaskQueueClient,
};
use hivekeep_ports::{TaskOutcome, TaskState};
use hivekeep_protocol::{
    Argv, Exit, FileStat, GuestCode, JobForget, JobPoll, JobStart, ListFolder, RunCommand, TaskPut,
    Usage, WriteFile,
};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio_util::sync::CancellationToken;

fn guest_binary() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("TEST_HIVEKEEP_GUEST") {
        return Some(path.into());
    }
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target");
    ["guest/x86_64-unknown-linux-gnu/guest", "release", "debug"]
        .iter()
        .map(|folder| target.join(folder).join("hivekeep-guest"))
        .find(|path| path.exists())
}

/// Guest daemon as a plain process, with a link to it.
struct Guest {
    link: Link,
    token: LinkToken,
    binary: PathBuf,
    folder: TempDir,
    daemon: Child,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.daemon.kill().expect("our own child");
        self.daemon.wait().expect("our own child");
    }
}

impl Guest {
    async fn start() -> Option<Self> {
        let Some(binary) = guest_binary() else {
            hivekeep_skip::skip("no hivekeep-guest binary (set TEST_HIVEKEEP_GUEST or build it)");
            return None;
        };
        let folder = TempDir::new().expect("a folder");
        let token = LinkToken::generate().expect("random bytes");
        let (daemon, link) = Self::launch(&binary, &folder, &token).await;
        Some(Self { link, token, binary, folder, daemon })
    }

    async fn launch(binary: &Path, folder: &TempDir, token: &LinkToken) -> (Child, Link) {
        let path = folder.path().join("agent.sock");
        let uid = rustix::process::getuid().as_raw();
        let daemon = Command::new(binary)
            .arg("agent")
            .arg("--unix")
            .arg(&path)
            .args(["--token-hash", &token.hash_hex(), "--peer-uid", &uid.to_string()])
            .arg("--state-dir")
            .arg(folder.path().join("state"))
            .arg("--run-dir")
            .arg(folder.path().join("run"))
            .stdin(Stdio::null())
            .spawn()
            .expect("the guest daemon starts");
        let endpoint = Endpoint::Unix { path, peer_uid: uid };
        let cancel = CancellationToken::new();
        let connected = Link::connect(&endpoint, token, &LinkOptions::default(), &cancel).await;
        let (link, welcome) = connected.expect("the guest lets us in");
        assert!(welcome.daemon_starts >= 1);
        (daemon, link)
    }

    /// Kills the daemon with SIGKILL, and starts another on the same folders.
    async fn restart(&mut self) {
        self.daemon.kill().expect("our own child");
        self.daemon.wait().expect("our own child");
        std::fs::remove_file(self.folder.path().join("agent.sock")).expect("its socket");
        (self.daemon, self.link) = Self::launch(&self.binary, &self.folder, &self.token).await;
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("a plain name").to_owned()
    }
}

fn wait() -> CallTerms {
    CallTerms::at_most(Duration::from_secs(60))
}

fn shell(script: &str) -> RunCommand {
    RunCommand {
        argv: Argv::Shell(script.into()),
        env: vec![("GREETING".into(), "hello".into())],
        workdir: Some("/".into()),
        timeout_ms: 30_000,
        max_output_bytes: 1 << 20,
    }
}

#[tokio::test]
async fn commands_run_and_their_output_comes_whole() {
    let Some(guest) = Guest::start().await else { return };
    let run = |script: &str| guest.link.exec(shell(script), wait(), |_, _| {});
    let output = run("echo $GREETING; echo oops >&2; exit 3").await.expect("it runs");
    assert_eq!(output.done.exit, Exit::Code(3));
    assert_eq!(output.stdout.text().text, "hello\n");
    assert_eq!(output.stderr.text().text, "oops\n");

    let output = run("head -c 3000000 /dev/zero").await.expect("it runs");
    assert_eq!((output.stdout.bytes.len(), output.stdout.total_bytes), (1 << 20, 3_000_000));
    assert!(output.stdout.text().truncated);
    guest.link.ask(Usage, wait()).await.expect("it answers");
}

#[tokio::test]
async fn a_timeout_and_a_cancel_kill_the_command() {
    let Some(guest) = Guest::start().await else { return };
    let limited = RunCommand { timeout_ms: 200, ..shell("echo begun; sleep 60") };
    let output = guest.link.exec(limited, wait(), |_, _| {}).await.expect("it runs");
    assert!(output.done.timed_out);
    assert_eq!(output.stdout.text().text, "begun\n");

    let wait = wait();
    let (cancel, mark) = (wait.cancel.clone(), guest.path("mark"));
    let command = shell(&format!("echo begun; sleep 60; touch {mark}"));
    let outcome = guest.link.exec(command, wait, |_, _| cancel.cancel()).await;
    assert!(matches!(outcome, Err(LinkError::Cancelled(_))), "{outcome:?}");
    assert!(!Path::new(&mark).exists());
}

#[tokio::test]
async fn two_hundred_commands_at_once() {
    let Some(guest) = Guest::start().await else { return };
    let calls = (0..200).map(|n| {
        let link = guest.link.clone();
        tokio::spawn(async move {
            let output = link.exec(shell(&format!("echo {n}")), wait(), |_, _| {}).await;
            assert_eq!(output.expect("it runs").stdout.text().text, format!("{n}\n"));
        })
    });
    for call in futures::future::join_all(calls).await {
        call.expect("the right answer");
    }
}

#[tokio::test]
async fn files_pass_both_ways() {
    let Some(guest) = Guest::start().await else { return };
    let (link, path) = (&guest.link, guest.path("tree/file"));
    let content: Vec<u8> = (0..5_000_003u32).map(|n| (n / 7) as u8).collect();
    let size = content.len() as u64;
    let file = |mode, size_bytes| WriteFile { path: path.clone(), mode, size_bytes };
    let written = link
        .upload(file(Some(0o640), size), size, &content[..], wait(), |_| {})
        .await
        .expect("it is written");
    assert_eq!((written.bytes, written.replaced, written.mode), (size, false, 0o640));
    let mut back = Vec::new();
    let read = link.download(&path, 0, None, &mut back, wait(), |_| {}).await.expect("it is read");
    assert!(back == content);
    assert_eq!((read.size_bytes, read.mode), (size, 0o640));
    let mut part = Vec::new();
    link.download(&path, 1000, Some(77), &mut part, wait(), |_| {}).await.expect("it is read");
    assert!(part == content[1000..1077]);

    let short = tokio::io::repeat(0).take(9);
    let outcome = link.upload(file(None, 10), 10, short, wait(), |_| {}).await;
    assert!(matches!(outcome, Err(LinkError::SourceSize { .. })), "{outcome:?}");
    let kept = link.ask(FileStat { path: path.clone() }, wait()).await.expect("the old file");
    assert_eq!(kept.size_bytes, size);

    let outcome = link.download("/no/such/file", 0, None, Vec::new(), wait(), |_| {}).await;
    assert!(
        matches!(&outcome, Err(LinkError::Guest(error)) if error.code == GuestCode::NotFound),
        "{outcome:?}"
    );
    let listed = link
        .ask(ListFolder { path: guest.path("tree"), after: None, limit: 10 }, wait())
        .await
        .expect("it is listed");
    assert_eq!(listed.entries.len(), 1, "no leftovers: {listed:?}");
}

#[tokio::test]
async fn a_job_is_followed_to_its_end_which_is_told() {
    let Some(guest) = Guest::start().await else { return };
    let (link, mut events) = (&guest.link, guest.link.events());
    let start = JobStart {
        job_id: "job_1".into(),
        argv: Argv::Shell("echo working; exit 4".into()),
        env: vec![],
        workdir: None,
        spool_bytes: 1000,
    };
    assert!(!link.ask(start.clone(), wait()).await.expect("it starts").existed);
    assert!(link.ask(start, wait()).await.expect("it is there").existed);
    let told = tokio::time::timeout(Duration::from_secs(30), events.recv()).await;
    let told = told.expect("in time").expect("the link is up");
    let hivekeep_protocol::GuestEvent::JobEnded(summary) = told else { panic!("{told:?}") };
    assert_eq!((summary.job_id.as_str(), summary.exit), ("job_1", Some(Exit::Code(4))));
    let poll = JobPoll { job_id: "job_1".into(), stdout_from: 0, stderr_from: 0, max_bytes: 1000 };
    assert_eq!(link.ask(poll, wait()).await.expect("it is kept").stdout.bytes, b"working\n");
    link.ask(JobForget { job_id: "job_1".into() }, wait()).await.expect("it is removed");
}

#[tokio::test]
async fn a_wrong_token_is_refused() {
    let Some(guest) = Guest::start().await else { return };
    let uid = rustix::process::getuid().as_raw();
    let endpoint = Endpoint::Unix { path: guest.folder.path().join("agent.sock"), peer_uid: uid };
    let other = LinkToken::generate().expect("random bytes");
    let cancel = CancellationToken::new();
    let outcome = Link::connect(&endpoint, &other, &LinkOptions::default(), &cancel).await;
    assert!(matches!(outcome, Err(LinkError::Refused(_))), "{outcome:?}");
}

#[tokio::test]
async fn tasks_are_delivered_told_and_acknowledged() {
    let Some(mut guest) = Guest::start().await else { return };
    let folder = guest.path("state/tasks");
    let delivery = TaskQueueClient::with_folder(guest.link.clone(), &folder);
    let mut hints = guest.link.events();
    let effects = guest.path("effects");
    let command = format!("echo x >> {effects}; seq 1 9000; echo $GREETING >&2; exit 3");
    let task = TaskPut {
        message_id: "m-1".into(),
        task_id: "one".into(),
        command,
        workdir: Some("/tmp".into()),
        env: vec![("GREETING".into(), "hello".into())],
        timeout_secs: 60,
    };
    let taken = delivery.put(task.clone()).await.expect("taken");
    assert_eq!((taken.state, taken.repeat), (TaskState::Running, false));
    let sent = [("one".to_owned(), "m-1".to_owned())].into();
    let result = loop {
        let mut page = delivery.results(0, 20, &sent).await.expect("a page");
        assert_eq!((page.dropped, page.refused_paths), (0, 0));
        if let Some(result) = page.results.pop() {
            break result;
        }
        let told = tokio::time::timeout(Duration::from_secs(60), hints.recv()).await;
        told.expect("in time").expect("the link is up");
    };
    assert_eq!(result.outcome, TaskOutcome::Exited { exit_code: 3 });
    assert_eq!(
        (result.capture.workdir.as_deref(), result.capture.stderr.text.as_str()),
        (Some("/tmp"), "hello\n")
    );
    assert!(result.capture.stdout.truncated && result.capture.stdout.text.starts_with("1\n2\n"));
    let path = result.capture.stdout.path.clone().expect("a file");
    let whole: String = (1..=9000).map(|n| format!("{n}\n")).collect();
    assert_eq!(std::fs::read_to_string(path).expect("the guest's file"), whole);

    // A killed daemon's successor knows everything again.
    guest.restart().await;
    let delivery = TaskQueueClient::with_folder(guest.link.clone(), &folder);
    assert_eq!(
        delivery.results(0, 20, &sent).await.expect("a page").results,
        std::slice::from_ref(&result)
    );
    assert_eq!(delivery.acknowledge(vec!["one".into()]).await.expect("acknowledged"), 1);
    let again = delivery.put(task).await.expect("known");
    assert_eq!((again.state, again.repeat), (TaskState::Acknowledged, true));
    assert_eq!(again.result, Some(result));
    let board = delivery.board().await.expect("a board");
    assert_eq!((board.queued.len(), board.running.len(), board.results), (0, 0, 0));
    assert_eq!(std::fs::read_to_string(effects).expect("effects"), "x\n");
    let unknown = delivery.cancel("none".into()).await.expect_err("unknown");
    assert_eq!(unknown.code, "unknown_task");
}
