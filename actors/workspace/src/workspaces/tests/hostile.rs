//! A guest that has turned against its daemon, over a Unix socket: it costs its own workspace a
//! link, and nobody anything else.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use hivekeep_kernel::WorkspaceId;
use hivekeep_link::fake::RequestBehaviour;
use hivekeep_ports::{NetworkMode, TaskAssignment, Tasks};
use hivekeep_protocol::{
    self as wire, Argv, Exit, Frame, FrameKind, FromGuest, GuestError, GuestEvent,
    TaskResultsReply, TaskStreamOutput, ToGuest, encode,
    limits::{DATA_CHUNK_BYTES, MAX_JOBS, MAX_PAYLOAD_BYTES, MAX_TASK_RESULTS, MAX_TASKS},
};
use hivekeep_store::SubscriptionItem;
use serde_json::json;

use super::{
    stage::{Stage, guest},
    wires::Wires,
};
use crate::tasks::TasksHandle;

/// Bytes in place of the answer to the call with this id.
type Attack = fn(u32) -> Vec<u8>;

fn frame(kind: FrameKind, id: u32, payload: Vec<u8>) -> Vec<u8> {
    Frame { kind, id, payload }.to_bytes()
}

/// A frame whose head promises more than there may be.
fn oversized(id: u32) -> Vec<u8> {
    let mut bytes = frame(FrameKind::Reply, id, vec![0; 64]);
    let size = u32::try_from(MAX_PAYLOAD_BYTES + 1).unwrap();
    bytes[..4].copy_from_slice(&size.to_be_bytes());
    bytes
}

/// The largest frames of an event's kind, then one that may not be.
fn flood(_: u32) -> Vec<u8> {
    let hint = frame(FrameKind::Event, 0, encode(&GuestEvent::TasksChanged).unwrap());
    let mut bytes = hint.repeat(200_000);
    bytes.extend(frame(FrameKind::Event, 0, vec![9; MAX_PAYLOAD_BYTES]));
    bytes
}

/// An answer that promises more elements than it has bytes.
fn hollow(id: u32) -> Vec<u8> {
    frame(FrameKind::Reply, id, vec![0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f])
}

const ATTACKS: &[(&str, Attack)] = &[
    ("rubbish", |_| vec![0xa5; 100_000]),
    ("oversized", oversized),
    ("hollow", hollow),
    ("malformed", |id| frame(FrameKind::Reply, id, vec![0xff; 40])),
    ("flood", flood),
    ("stranger", |id| frame(FrameKind::Reply, id.wrapping_add(77), vec![0; 8])),
    ("chunk", |id| frame(FrameKind::Data, id, vec![1; DATA_CHUNK_BYTES + 2])),
    ("host", |id| frame(FrameKind::Request, id, vec![0; 8])),
    ("silence", |_| Vec::new()),
];

/// Attacks when it is told by which name, and is like any other guest else.
fn turncoat(request: &ToGuest) -> RequestBehaviour {
    let word = match request {
        ToGuest::RunCommand(exec) => match &exec.argv {
            Argv::Shell(script) => script.strip_prefix("attack "),
            Argv::Direct(_) => None,
        },
        ToGuest::TaskPut(put) => put.task_id.strip_prefix("attack "),
        _ => None,
    };
    match word.map(|word| ATTACKS.iter().find(|(name, _)| *name == word).expect("a known one")) {
        Some(("silence", _)) => RequestBehaviour::HangUp,
        Some((_, attack)) => RequestBehaviour::raw(*attack),
        None => guest(request),
    }
}

async fn stage(script: impl Fn(&ToGuest) -> RequestBehaviour + Send + Sync + 'static) -> Stage {
    Stage::with(Wires::new(NetworkMode::Off { reason: "off".to_owned() }), script).await
}

fn task(task_id: String) -> TaskAssignment {
    TaskAssignment {
        message_id: "m".into(),
        task_id,
        command: "true".into(),
        workdir: None,
        env: BTreeMap::new(),
        timeout_secs: 300,
    }
}

#[tokio::test]
async fn an_attack_costs_its_own_workspace_a_link() {
    let stage = stage(turncoat).await;
    let (traitor, friend) = (stage.create("traitor").await, stage.create("friend").await);
    let tasks = TasksHandle::new(stage.daemon.shared.clone());
    let id: WorkspaceId = traitor.parse().unwrap();
    let exec = |workspace: &str, command: String| {
        stage.call("exec", json!({ "workspace_id": workspace, "command": command }))
    };
    for (number, (name, _)) in ATTACKS.iter().enumerate() {
        let attacked = async {
            match number % 2 {
                0 => exec(&traitor, format!("attack {name}")).await.map(drop),
                _ => tasks.put(id, task(format!("attack {name}"))).await.map(drop),
            }
        };
        let beside = exec(&friend, format!("echo beside {name}"));
        let (attacked, beside) = tokio::join!(attacked, beside);
        assert_eq!(attacked.unwrap_err().code, "link_lost", "{name}");
        assert_eq!(beside.expect("it is another guest")["exit_code"], 0, "{name}");
        let after = exec(&traitor, "echo after".to_owned()).await;
        assert_eq!(after.expect("there is a new link")["exit_code"], 0, "{name}");
    }
    let info = stage.call("workspace_info", json!({ "workspace_id": traitor })).await.unwrap();
    assert_eq!(info["state"], "running");
    stage.call("workspace_destroy", json!({ "workspace_id": traitor })).await.unwrap();
}

/// The frames with which a guest tells that a job ended, so many times over, and of its tasks.
fn ends(job_id: &str, times: usize) -> Vec<u8> {
    let summary = wire::JobSummary { exit: Some(Exit::Code(0)), ..running(job_id) };
    let ended = encode(&GuestEvent::JobEnded(summary)).unwrap();
    let mut bytes = frame(FrameKind::Event, 0, ended).repeat(times);
    bytes.extend(frame(FrameKind::Event, 0, encode(&GuestEvent::TasksChanged).unwrap()));
    bytes
}

fn running(job_id: &str) -> wire::JobSummary {
    let (exit, interrupted, started_unix_ms, finished_unix_ms) = (None, false, 0, None);
    let job_id = job_id.to_owned();
    wire::JobSummary { job_id, exit, interrupted, started_unix_ms, finished_unix_ms }
}

fn report(summary: wire::JobSummary) -> RequestBehaviour {
    let empty = || wire::Spool { from: 0, bytes: vec![], kept_bytes: 0, total_bytes: 0 };
    let report = wire::JobReport { summary, stdout: empty(), stderr: empty() };
    RequestBehaviour::Reply(Ok(FromGuest::JobPoll(report)))
}

/// A guest that begins every job, tells that it ended each time a command is run whose script is
/// the job's id, and does this when it is asked; how often it was.
async fn ending(
    polled: impl Fn(&str) -> RequestBehaviour + Send + Sync + 'static,
) -> (Stage, Arc<AtomicUsize>) {
    let polls = Arc::new(AtomicUsize::new(0));
    let count = polls.clone();
    let script = move |request: &ToGuest| match request {
        ToGuest::JobStart(_) => {
            let started = wire::JobStarted { pid: 7, existed: false };
            RequestBehaviour::Reply(Ok(FromGuest::JobStart(started)))
        }
        ToGuest::JobPoll(poll) => {
            count.fetch_add(1, SeqCst);
            polled(&poll.job_id)
        }
        ToGuest::RunCommand(exec) => match &exec.argv {
            Argv::Shell(id) if id.starts_with("job_") => {
                let id = id.clone();
                RequestBehaviour::raw(move |call| {
                    let done = hivekeep_link::fake::exec_done(0, 0);
                    let reply: Result<_, GuestError> = Ok(FromGuest::RunCommand(done));
                    let reply = frame(FrameKind::Reply, call, encode(&reply).unwrap());
                    [ends(&id, 20_000), reply].concat()
                })
            }
            _ => guest(request),
        },
        other => guest(other),
    };
    (stage(script).await, polls)
}

/// Starts a job and has its guest tell of its end; returns when all of it was heard.
async fn told_of_an_end(stage: &Stage, workspace: &str) -> String {
    let start = json!({ "workspace_id": workspace, "action": "start", "command": "true" });
    let job = stage.call("exec_background", start).await.unwrap();
    let job = job["job_id"].as_str().unwrap().to_owned();
    let tasks = TasksHandle::new(stage.daemon.shared.clone());
    let id: WorkspaceId = workspace.parse().unwrap();
    let before = tasks.hints(id).await.unwrap().count();
    let tell = json!({ "workspace_id": workspace, "command": job });
    stage.call("exec", tell).await.unwrap();
    while tasks.hints(id).await.unwrap().count() == before {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    job
}

#[tokio::test]
async fn a_job_is_looked_at_once_at_a_time_however_often_its_end_is_told() {
    let (stage, polls) = ending(|_| RequestBehaviour::Ignore).await;
    let workspace = stage.create("w").await;
    told_of_an_end(&stage, &workspace).await;
    stage.until(|| polls.load(SeqCst) > 0).await;
    // Whoever may be asking as well has asked by then: each is a task that waits for nothing.
    let beside = json!({ "workspace_id": workspace, "command": "echo" });
    stage.call("exec", beside).await.unwrap();
    assert_eq!(polls.load(SeqCst), 1);
}

#[tokio::test]
async fn the_end_of_a_job_is_recorded_once() {
    let over = |job_id: &str| wire::JobSummary { exit: Some(Exit::Code(0)), ..running(job_id) };
    let (stage, _polls) = ending(move |job_id| report(over(job_id))).await;
    let workspace = stage.create("w").await;
    let mut events = stage.daemon.shared.daemon.journal.events().subscribe(None, 1024);
    told_of_an_end(&stage, &workspace).await;
    stage.once(&workspace, |info| info["running_jobs"] == json!([])).await;
    // What is told after a removal comes after whatever was told of the job.
    stage.call("workspace_destroy", json!({ "workspace_id": workspace })).await.unwrap();
    let mut ends = 0;
    loop {
        match events.next().await.expect("the journal is there") {
            SubscriptionItem::Event(event) if event.kind == "job.ended" => ends += 1,
            SubscriptionItem::Event(event) if event.kind == "workspace.destroyed" => break,
            _ => {}
        }
    }
    assert_eq!(ends, 1);
}

#[tokio::test]
async fn a_guest_that_takes_any_number_of_jobs_is_given_no_more_than_it_may_keep() {
    let (stage, _polls) = ending(|job_id| report(running(job_id))).await;
    let workspace = stage.create("w").await;
    let start = json!({ "workspace_id": workspace, "action": "start", "command": "true" });
    // Together, so that they are written together.
    let started: Vec<_> = (0..MAX_JOBS)
        .map(|_| stage.send("exec_background", start.clone(), |_| {}).unwrap())
        .collect();
    for job in started {
        job.await.unwrap().expect("it may have this one");
    }
    let refused = stage.call("exec_background", start).await.unwrap_err();
    assert_eq!((refused.code.as_ref(), refused.retryable), ("guest_busy", true));
}

/// Every result that a page has room for, and all of them made up.
fn made_up(request: &ToGuest) -> RequestBehaviour {
    let result = |number: u64| wire::GuestTaskResult {
        number,
        task_id: format!("t{number}"),
        message_id: if number == 5 { "m" } else { "n" }.to_owned(),
        outcome: wire::GuestTaskOutcome::Ended(Exit::Code(0)),
        workdir: Some("/workspace/../../etc".into()),
        stdout: TaskStreamOutput {
            head: b"mine".to_vec(),
            total_bytes: u64::MAX,
            path: Some("/workspace/../etc/shadow".into()),
        },
        stderr: TaskStreamOutput::default(),
        elapsed_ms: u64::MAX,
    };
    match request {
        ToGuest::TaskResults(asked) => {
            let most = asked.after + u64::from(asked.limit);
            let results = (asked.after + 1..=most).map(result).collect();
            let page =
                TaskResultsReply { results, more: true, queued: u32::MAX, running: u32::MAX };
            RequestBehaviour::Reply(Ok::<_, GuestError>(FromGuest::TaskResults(page)))
        }
        other => guest(other),
    }
}

#[tokio::test]
async fn of_results_that_are_made_up_only_the_one_that_was_asked_for_is_taken() {
    let stage = stage(made_up).await;
    let id: WorkspaceId = stage.create("liar").await.parse().unwrap();
    let tasks = TasksHandle::new(stage.daemon.shared.clone());
    let sent = BTreeMap::from([("t5".to_owned(), "m".to_owned())]);
    let (mut after, mut taken, mut dropped) = (0, Vec::new(), 0);
    for _ in 0..MAX_TASKS / MAX_TASK_RESULTS {
        let page = tasks.results(id, after, u32::MAX, &sent).await.expect("a page");
        assert!((page.queued as usize, page.running as usize) <= (MAX_TASKS, MAX_TASKS));
        assert_eq!(page.next_after, after + MAX_TASK_RESULTS as u64, "the limit is the host's");
        (after, dropped) = (page.next_after, dropped + page.dropped);
        taken.extend(page.results);
    }
    let [one] = &taken[..] else { panic!("{taken:?}") };
    assert_eq!((one.task_id.as_str(), one.number), ("t5", 5));
    assert_eq!(
        (&one.capture.stdout.path, one.capture.stdout.truncated),
        (&None, true),
        "the path leads outside"
    );
    assert_eq!(dropped as usize, MAX_TASKS - 1);
}
