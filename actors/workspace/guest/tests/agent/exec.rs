//! Commands: output, ends, and that nothing of them survives.

use hivekeep_protocol::*;

use crate::client::{Host, Output, shell};
use crate::guest::{Guest, Way, eventually, runs, ways};

fn done(output: &Output) -> &RunCommandReply {
    output.reply.as_ref().expect("the command ran")
}

/// A word that only this test's processes have in their command line.
fn mark(name: &str) -> String {
    format!("hk{name}{}", std::process::id())
}

#[tokio::test]
async fn output_exit_status_environment_and_folder_are_the_commands_own() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let mut exec = shell("echo $GREETING; pwd; echo no >&2; exit 3");
        exec.env = vec![("GREETING".into(), "hello".into())];
        exec.workdir = Some("/usr".into());
        let output = host.exec(exec).await;
        assert_eq!(output.stdout, b"hello\n/usr\n");
        assert_eq!(output.stderr, b"no\n");
        let done = done(&output);
        assert_eq!((done.exit, done.timed_out), (Exit::Code(3), false));
        assert_eq!((done.stdout_total_bytes, done.stderr_total_bytes), (11, 3));
        assert_eq!(done.killed_stragglers, 0);
        let killed = host.sh("kill -11 $$").await;
        assert_eq!(killed.reply.expect("ran").exit, Exit::Signal(11));
    }
}

/// Children of a daemon, by their process ids.
fn children(guest: &Guest) -> Vec<i32> {
    // Each thread has the children that it started.
    let threads = std::fs::read_dir(format!("/proc/{}/task", guest.pid())).expect("its threads");
    let children = threads.flatten().map(|thread| thread.path().join("children"));
    let children = children.filter_map(|path| std::fs::read_to_string(path).ok());
    let pids = |line: String| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    children.flat_map(pids).map(|pid| pid.parse().expect("a pid")).collect()
}

/// A dead process that nobody has collected has no command line.
fn is_dead(pid: i32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default().is_empty()
}

#[tokio::test]
async fn one_process_starts_all_shims_and_is_followed_when_it_dies() {
    let mut guest = Guest::start(Way::Subreaper);
    let host = Host::to(&guest).await;
    assert!(children(&guest).is_empty());
    let mut last = 0;
    for round in 0..3 {
        for _ in 0..3 {
            assert_eq!(host.sh("ulimit -n; pwd").await.reply.expect("it ran").exit, Exit::Code(0));
        }
        eventually("nothing but the starter is there", || children(&guest).len() == 1);
        let starter = children(&guest)[0];
        assert_ne!(starter, last);
        last = starter;
        if round < 2 {
            let pid = rustix::process::Pid::from_raw(starter).expect("a pid");
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("kill");
            eventually("it is dead", || is_dead(starter));
        }
    }
    guest.stop();
    eventually("it ends with the daemon", || is_dead(last));
}

#[tokio::test]
async fn output_beyond_a_pipe_arrives_whole() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let output = host.sh("head -c 65537 /dev/zero; head -c 65537 /dev/zero >&2").await;
        assert_eq!((output.stdout.len(), output.stderr.len()), (65_537, 65_537));
        let output = host.sh("head -c 104857600 /dev/zero").await;
        assert_eq!(output.stdout.len(), 104_857_600);
        assert_eq!(done(&output).stdout_total_bytes, 104_857_600);
        assert!(guest.peak_rss_bytes() < 30 << 20, "{} bytes", guest.peak_rss_bytes());
    }
}

#[tokio::test]
async fn output_beyond_the_limit_is_counted_and_not_sent() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let mut exec = shell("head -c 5000000 /dev/zero; echo end >&2");
        exec.max_output_bytes = 1000;
        let output = host.exec(exec).await;
        assert_eq!((output.stdout.len(), output.stderr.as_slice()), (1000, &b"end\n"[..]));
        assert_eq!(done(&output).stdout_total_bytes, 5_000_000);
    }
}

#[tokio::test]
async fn a_host_that_grants_nothing_stalls_only_that_command() {
    let guest = Guest::start(ways()[0]);
    let host = Host::to(&guest).await;
    let mut stalled = host.call(shell("head -c 3000000 /dev/zero").into_wire()).await;
    let mut sent = 0;
    let window = limits::INITIAL_CREDIT_BYTES as usize;
    while sent + limits::DATA_CHUNK_BYTES <= window {
        sent += stalled.next().await.payload.len() - 1;
    }
    assert_eq!(host.sh("echo still here").await.stdout, b"still here\n");
    while let Ok(frame) = stalled.frames.try_recv() {
        sent += frame.payload.len() - 1;
    }
    assert!(sent <= window, "{sent} bytes without credit");
    stalled.send(FrameKind::Credit, &2_000_000_u32.to_be_bytes()).await;
    let output = stalled.output().await;
    assert_eq!(sent + output.stdout.len(), 3_000_000);
}

#[tokio::test]
async fn a_background_child_that_holds_stdout_is_not_waited_for_and_does_not_survive() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let mark = mark("hold");
        let line = format!("sh -c 'sleep 1000; : {mark}' & echo started");
        let output = host.sh(&line).await;
        assert_eq!(output.stdout, b"started\n");
        assert_eq!(done(&output).exit, Exit::Code(0));
        assert!(done(&output).killed_stragglers >= 1);
        assert!(!runs(&mark), "{way:?}");
    }
}

#[tokio::test]
async fn a_background_child_that_ends_soon_is_heard_to_its_end() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let output = host.sh("(sleep 0.02; echo late) & echo early").await;
        assert_eq!(output.stdout, b"early\nlate\n");
        assert_eq!(done(&output).killed_stragglers, 0);
    }
}

/// Ignores SIGTERM, and a grandchild left session, group and parent. Prints once both run.
fn stubborn(mark: &str) -> String {
    format!(
        "trap '' TERM; \
         setsid sh -c 'trap \"\" TERM; (while :; do sleep 1; done; : {mark}) & exit' ; \
         echo on; while :; do sleep 1; done; : {mark}"
    )
}

#[tokio::test]
async fn a_timeout_kills_what_ignores_sigterm_and_what_left_its_session() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let mark = mark("time");
        let mut exec = shell(&stubborn(&mark));
        exec.timeout_ms = 700;
        let output = host.exec(exec).await;
        let done = done(&output);
        assert_eq!((done.timed_out, done.exit), (true, Exit::Signal(9)));
        assert!(done.killed_stragglers >= 1);
        assert!(!runs(&mark), "{way:?}");
    }
}

#[tokio::test]
async fn a_cancel_kills_the_tree_and_is_answered() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let mark = mark("cancel");
        let mut call = host.call(shell(&stubborn(&mark)).into_wire()).await;
        // Before it runs, a cancel is answered at once: what hangs until then is not waited for.
        assert_eq!(call.next().await.kind, FrameKind::Data);
        assert!(runs(&mark), "{way:?}");
        call.cancel().await;
        let error = call.reply().await.expect_err("cancelled");
        assert_eq!(error.code, GuestCode::Cancelled);
        assert!(!runs(&mark), "{way:?}");
    }
}

/// A process that joins a frozen cgroup gets no further, as one does whose working directory is on a
/// file system that does not answer.
#[tokio::test]
async fn commands_that_hang_before_they_begin_are_cancelled_and_hold_up_nobody() {
    if !ways().contains(&Way::Cgroup) {
        return;
    }
    let guest = Guest::start(Way::Cgroup);
    let host = Host::to(&guest).await;
    let all = || std::fs::read_dir(guest.cgroups()).expect("cgroups").flatten();
    let freeze = |word: &str| {
        for cgroup in all().filter(|it| it.file_name().to_string_lossy().starts_with("exec-")) {
            std::fs::write(cgroup.path().join("cgroup.freeze"), word).expect("written");
        }
    };
    let in_any = || {
        all().any(|it| {
            std::fs::read_to_string(it.path().join("cgroup.procs"))
                .is_ok_and(|text| !text.is_empty())
        })
    };
    // More than the daemon has threads that may block.
    for _ in 0..6 {
        freeze("1");
        let mut call = host.call(shell("true").into_wire()).await;
        eventually("it is about to begin", in_any);
        call.cancel().await;
        assert_eq!(call.reply().await.expect_err("cancelled").code, GuestCode::Cancelled);
        eventually("it is killed", || !in_any());
    }
    freeze("0");
    assert_eq!(host.sh("echo on").await.stdout, b"on\n");
}

#[tokio::test]
async fn a_lost_link_and_a_killed_daemon_take_the_commands_with_them() {
    for way in ways() {
        let mut guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let mark = mark("lost");
        let _call = host.call(shell(&stubborn(&mark)).into_wire()).await;
        eventually("the command runs", || runs(&mark));
        drop((_call, host));
        // The reader half of the test's host still holds the socket until it is closed.
        guest.crash_and_restart();
        eventually("the command dies", || !runs(&mark));
    }
}

#[tokio::test]
async fn a_closed_connection_cancels_its_commands() {
    for way in ways() {
        let guest = Guest::start(way);
        let mark = mark("closed");
        let line = stubborn(&mark);
        let runtime = tokio::task::spawn_blocking({
            let socket = guest.socket();
            let exec = shell(&line);
            move || crate::link::raw_exec(&socket, exec)
        });
        let stream = runtime.await.expect("sent");
        eventually("the command runs", || runs(&mark));
        drop(stream);
        eventually("the command dies", || !runs(&mark));
    }
}

#[tokio::test]
async fn a_modest_fork_bomb_is_killed() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let mark = mark("bomb");
        let line = format!(
            "f() {{ i=0; while [ $i -lt 40 ]; do sh -c 'while :; do sleep 0.01; done; : {mark}' & \
             i=$((i+1)); done; }}; f; f; sleep 1000"
        );
        let mut exec = shell(&line);
        exec.timeout_ms = 1500;
        let output = host.exec(exec).await;
        assert!(done(&output).timed_out && done(&output).killed_stragglers >= 40);
        assert!(!runs(&mark), "{way:?}");
    }
}

#[tokio::test]
async fn two_hundred_commands_at_once() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = std::sync::Arc::new(Host::to(&guest).await);
        let mut all = tokio::task::JoinSet::new();
        for number in 0..200 {
            let host = host.clone();
            all.spawn(async move {
                let output =
                    host.sh(&format!("echo {number}; sleep 0.2; exit {}", number % 50)).await;
                assert_eq!(output.stdout, format!("{number}\n").into_bytes());
                assert_eq!(output.reply.expect("ran").exit, Exit::Code(number % 50));
            });
        }
        while let Some(ended) = all.join_next().await {
            ended.expect("each is answered");
        }
        assert_eq!(guest.zombies(), 0);
    }
}

#[tokio::test]
async fn calls_beyond_the_limit_are_told_busy() {
    let guest = Guest::start(ways()[0]);
    let host = Host::to(&guest).await;
    let mut calls = Vec::new();
    for _ in 0..limits::MAX_CALLS_IN_FLIGHT {
        calls.push(host.call(shell("sleep 1000").into_wire()).await);
    }
    let error = host.ask(Ping { payload: vec![] }).await.expect_err("one too many");
    assert_eq!(error.code, GuestCode::Busy);
    for call in &mut calls {
        call.cancel().await;
        assert_eq!(call.reply().await.expect_err("cancelled").code, GuestCode::Cancelled);
    }
    host.ask(Ping { payload: vec![] }).await.expect("room again");
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let code = async |exec: RunCommand| host.exec(exec).await.reply.expect_err("refused").code;
        let direct = |words: &[&str]| RunCommand {
            argv: Argv::Direct(words.iter().map(|w| w.to_string()).collect()),
            ..shell("")
        };
        assert_eq!(code(direct(&["/no/such/program"])).await, GuestCode::CannotStart);
        assert_eq!(code(direct(&["no-such-program"])).await, GuestCode::CannotStart);
        assert_eq!(code(direct(&["/etc/hostname"])).await, GuestCode::CannotStart);
        let nowhere = RunCommand { workdir: Some("/no/such/folder".into()), ..shell("true") };
        assert_eq!(code(nowhere).await, GuestCode::NotFound);
        let bad_name = RunCommand { env: vec![("A=B".into(), "c".into())], ..shell("true") };
        assert_eq!(code(bad_name).await, GuestCode::Invalid);
        let output = host.exec(direct(&["printf", "%s|", "a b", "$HOME"])).await;
        assert_eq!(output.stdout, b"a b|$HOME|");
    }
}

#[tokio::test]
async fn a_script_longer_than_an_argument_runs() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let line = format!("echo begin\n# {}\necho end", "x".repeat(600_000));
        let output = host.sh(&line).await;
        assert_eq!(output.stdout, b"begin\nend\n");
        let left = std::fs::read_dir(guest.dir.path().join("run")).expect("run folder").flatten();
        let scripts = left.filter(|e| e.file_name().to_string_lossy().starts_with("script-"));
        assert_eq!(scripts.count(), 0);
    }
}

#[tokio::test]
async fn commands_see_a_plain_world() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let output = host
            .sh("ls /proc/self/fd | wc -l; grep -E 'Sig(Blk|Ign)' /proc/self/status; ulimit -n")
            .await;
        let text = String::from_utf8(output.stdout).expect("text");
        let lines: Vec<&str> = text.split_whitespace().collect();
        // stdin, stdout, stderr and ls's own folder.
        assert_eq!(lines[0], "4", "{text}");
        assert_eq!(lines[2], "0000000000000000", "no signal is blocked: {text}");
        // Bits of the C library's own two signals, which nobody can reset.
        let ignored = u64::from_str_radix(lines[4], 16).expect("a mask") & !0x1_8000_0000;
        assert_eq!(ignored, 0, "no signal is ignored: {text}");
        assert_eq!(lines[5], "1024", "{text}");
    }
}

#[tokio::test]
async fn commands_leave_no_zombies_and_no_descriptors() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        host.sh("true").await;
        let before = guest.descriptors();
        for _ in 0..30 {
            host.sh("(sleep 0.001 &) ; true").await;
        }
        assert_eq!(guest.zombies(), 0, "{way:?}");
        // What a command used is closed behind its reply, and the cgroup pool may
        // have grown by its idle ones.
        eventually("few descriptors are left", || guest.descriptors() <= before + 6);
    }
}
