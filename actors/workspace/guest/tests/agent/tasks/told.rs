//! What a guest tells of tasks without being asked, and what it answers while they run.

use hivekeep_protocol::*;

use super::{page, results, task};
use crate::client::Host;
use crate::guest::{Guest, ways};

/// The next event of a kind.
async fn next<T>(host: &Host, wanted: impl Fn(GuestEvent) -> Option<T>) -> T {
    let mut events = host.events.lock().await;
    let found = async {
        loop {
            if let Some(found) = wanted(events.recv().await.expect("the link is up")) {
                return found;
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), found).await.expect("told")
}

async fn news(host: &Host) -> TaskResultsPush {
    next(host, |event| match event {
        GuestEvent::TaskEnded(news) => Some(news),
        _ => None,
    })
    .await
}

#[tokio::test]
async fn a_result_comes_with_its_hint_as_it_would_be_answered() {
    let guest = Guest::start(ways()[0]);
    let host = Host::to(&guest).await;
    for (id, after) in [("a", 0), ("b", 1)] {
        host.ask(task(id, "echo out; echo err >&2")).await.expect("taken");
        let told = news(&host).await;
        assert_eq!(told.after, after, "the last that was not acknowledged");
        assert_eq!(told.page, page(&host, after).await, "{id}");
        assert_eq!(told.page.results[0].stdout.head, b"out\n");
    }
    host.ask(TaskAck { task_ids: vec!["a".into(), "b".into()] }).await.expect("acknowledged");
    host.ask(task("c", "true")).await.expect("taken");
    assert_eq!(news(&host).await.after, 0, "all before it are acknowledged");
    // More than an event holds: there is a hint, and the link is none the worse.
    host.ask(task("much", "head -c 100000 /dev/zero")).await.expect("taken");
    next(&host, |event| matches!(event, GuestEvent::TasksChanged).then_some(())).await;
    let much = results(&host, 2).await.remove("much").expect("its result");
    assert_eq!(much.stdout.head.len(), limits::TASK_SHOWN_BYTES);
}

#[tokio::test]
async fn a_running_task_is_told_of_and_its_output_is_read() {
    let guest = Guest::start(ways()[0]);
    let host = Host::to(&guest).await;
    let go = guest.dir.path().join("go");
    let wait = |n| format!("while [ ! -e {}{n} ]; do sleep 0.05; done", go.display());
    let line = format!("seq 1 1000; {}; echo last; echo err >&2; {}", wait(1), wait(2));
    host.ask(task("talks", &line)).await.expect("taken");
    let progress = || {
        next(&host, |event| match event {
            GuestEvent::TaskProgress(progress) => Some(progress),
            _ => None,
        })
    };
    let first = progress().await;
    assert_eq!((first.task_id.as_str(), first.message_id.as_str()), ("talks", "m-talks"));
    assert_eq!((first.stdout_bytes, first.stderr_bytes), (3893, 0));
    assert!(first.tail.len() <= limits::MAX_TASK_TAIL_BYTES && first.tail.ends_with(b"\n1000\n"));
    let read = |stdout_from| TaskRead {
        task_id: "talks".into(),
        stdout_from,
        stderr_from: 0,
        max_bytes: 10,
    };
    let begins = host.ask(read(0)).await.expect("a part");
    assert_eq!(
        (begins.state, &begins.stdout.bytes[..]),
        (GuestTaskState::Running, &b"1\n2\n3\n4\n5\n"[..])
    );
    assert_eq!((begins.stdout.kept_bytes, begins.stdout.total_bytes), (3893, 3893));
    std::fs::write(format!("{}1", go.display()), "").expect("go");
    loop {
        let more = progress().await;
        assert!(more.stdout_bytes > 3893 || more.stderr_bytes > 0, "said only when it is news");
        if (more.stdout_bytes, more.stderr_bytes) == (3898, 4) {
            break;
        }
    }
    let ends = host.ask(read(3893)).await.expect("a part");
    assert_eq!((&ends.stdout.bytes[..], &ends.stderr.bytes[..]), (&b"last\n"[..], &b"err\n"[..]));
    assert_eq!(host.ask(read(u64::MAX)).await.expect("a part").stdout.from, 3898);
    std::fs::write(format!("{}2", go.display()), "").expect("go");
    results(&host, 1).await;
    assert_eq!(host.ask(read(0)).await.expect("a part").state, GuestTaskState::Done);
    let strange = TaskRead { task_id: "strange".into(), ..read(0) };
    assert_eq!(host.ask(strange).await.expect_err("unknown").code, GuestCode::UnknownTask);
    let silent = format!("{}; true", wait(3));
    host.ask(task("silent", &silent)).await.expect("taken");
    let nothing = host.ask(TaskRead { task_id: "silent".into(), ..read(5) }).await.expect("a part");
    assert_eq!((nothing.stdout.from, nothing.stdout.total_bytes), (0, 0));
    std::fs::write(format!("{}3", go.display()), "").expect("go");
    results(&host, 2).await;
}
