//! Streams as earlier daemons wrote them, and what follows a swarm's end.

use hivekeep_kernel::{ToolError, WorkspaceId};
use hivekeep_runtime::log::{LogRecord, load};
use hivekeep_store::{Journal, Options};
use serde_json::json;

use super::*;

fn plan() -> SwarmPlan {
    let task = |name: &str| TaskPlan {
        name: name.to_owned(),
        command: "true".to_owned(),
        workdir: None,
        env: Default::default(),
        workspace: format!("swarm-{name}"),
    };
    SwarmPlan {
        id: SwarmId::new(),
        owner: SessionId::new(),
        at: DateTime::UNIX_EPOCH,
        golden: WorkspaceId::new(),
        snapshot: "s".to_owned(),
        tasks: vec![task("a"), task("b")],
        env: Default::default(),
        contexts: Vec::new(),
        max_parallel: 2,
        timeout_secs: 60,
        cleanup: true,
        allow_internet: None,
        merge: None,
    }
}

fn left(name: &str, id: Option<WorkspaceId>) -> SwarmWorkerLeft {
    let (workspace_name, error) = (name.to_owned(), "stuck".to_owned());
    SwarmWorkerLeft { workspace_name, workspace_id: id, error }
}

fn cleaned(left: Vec<SwarmWorkerLeft>, at: Option<DateTime<Utc>>) -> Record {
    Record::Cleaned { left, kept: Vec::new(), at }
}

fn failed(task: usize) -> Record {
    Record::TaskEnded { task, end: TaskEnd::Failed(Box::new(ToolError::cancelled())) }
}

fn follow(records: Vec<Record>) -> Result<SwarmState, Record> {
    let mut records = records.into_iter();
    let mut state = SwarmState::begin(records.next().expect("one"))?;
    records.try_for_each(|record| state.apply(record)).map(|()| state)
}

fn over(state: &SwarmState) -> &FinishedSwarm {
    match state {
        SwarmState::Finished(over) => over,
        SwarmState::Running(_) => panic!("it runs"),
    }
}

#[test]
fn the_end_counts_its_forks_and_is_followed_by_removals_and_late_cancellations() {
    let at = Some(DateTime::UNIX_EPOCH);
    let (one, two) = (WorkspaceId::new(), WorkspaceId::new());
    let made = |task, workspace| Record::WorkerMade { task, workspace, fork_ms: 1 };
    let begun =
        [Record::Planned(Box::new(plan())), made(0, one), failed(0), made(1, two), failed(1)];
    let with = |more: &[Record]| follow(begun.iter().chain(more).cloned().collect());

    let running = with(&[cleaned(Vec::new(), None)]).expect("it follows");
    assert!(matches!(running, SwarmState::Running(_)), "an earlier daemon ends it by a snapshot");
    assert!(!running.fold_due(9));

    let stuck = cleaned(vec![left("swarm-a", Some(one)), left("swarm-x", None)], at);
    let state = with(std::slice::from_ref(&stuck)).expect("it follows");
    let summary = &over(&state).result.summary;
    assert_eq!((summary.workers_destroyed, summary.workers_left), (1, 1));
    assert!(state.fold_due(1) && !state.fold_due(0) && state.holds().is_none());

    let state = with(&[stuck.clone(), Record::Cancelled, cleaned(Vec::new(), at)]);
    let state = state.expect("they follow");
    let summary = &over(&state).result.summary;
    assert_eq!((summary.workers_destroyed, summary.workers_left), (2, 0));
    assert!(with(&[stuck.clone(), Record::Merging]).is_err(), "nothing else follows its end");
    assert!(with(&[stuck, cleaned(Vec::new(), None)]).is_err());
    let snapshot = state.fold().expect("it is over");
    assert_eq!(SwarmState::unfold(&snapshot), Ok(state));
}

#[tokio::test]
async fn streams_of_earlier_daemons_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = Journal::open(Options::at(folder.path())).expect("it opens").0;
    let mut plan = plan();
    plan.merge = Some(MergePlan {
        strategy: crate::tools::SwarmMergeStrategy::Sequential,
        target: plan.golden,
    });
    plan.tasks[0].command = "x".repeat(700_000);
    // One that runs: pieces of 256 KiB behind their marks.
    let whole = Record::Planned(Box::new(plan.clone())).encode().expect("plain data");
    let mut pieces: Vec<_> = whole.chunks(256 * 1024).map(|piece| [b"+", piece].concat()).collect();
    pieces.last_mut().expect("one")[0] = b'.';
    pieces.push(br#".{"record":"worker_made","task":1,"workspace":"ws_0198c0dea11c7000800000000000000a","fork_ms":7}"#.to_vec());
    pieces.push(br#".{"record":"cancelled"}"#.to_vec());
    pieces.push(br#".{"record":"merging"}"#.to_vec());
    pieces.push(br#".{"record":"cleaned","left":[]}"#.to_vec());
    journal.append(&stream(plan.id), pieces).await.expect("written");
    let loaded = load::<SwarmState>(&journal, &stream(plan.id)).expect("readable").expect("there");
    let SwarmState::Running(state) = loaded.state else { panic!("it runs") };
    assert_eq!(*state.plan, plan);
    assert_eq!((state.tasks[1].fork_ms, state.cancelled, state.merging), (7, true, true));
    assert_eq!(state.left, Some(Vec::new()));

    // One that is over: a snapshot, and a cancellation that came behind it.
    let id = SwarmId::new();
    let result = json!({
        "swarm_id": id, "state": "completed", "tasks": [], "golden_workspace": plan.golden,
        "summary": {
            "total_tasks": 0, "succeeded": 0, "failed": 0, "pending": 0, "total_elapsed_ms": 1,
            "workers_destroyed": 0, "workers_left": 0,
        },
        "snapshot_name": "s", "started_at": plan.at, "ended_at": plan.at,
    });
    let kept = json!({ "owner": plan.owner, "result": result }).to_string();
    let upto = journal.append(&stream(id), vec![b".{}".to_vec()]).await.expect("written");
    journal.snapshot(&stream(id), upto, kept.into_bytes()).await.expect("written");
    let late = br#".{"record":"cancelled"}"#.to_vec();
    journal.append(&stream(id), vec![late]).await.expect("written");
    let loaded = load::<SwarmState>(&journal, &stream(id)).expect("readable").expect("there");
    assert_eq!(over(&loaded.state).result.state, "completed");
}
