//! Logs over a real journal.

use hivekeep_kernel::SessionId;
use hivekeep_machine::Isolation;
use hivekeep_store::Options;
use tokio::sync::oneshot;

use super::*;
use crate::{name::WorkspaceName, records::WorkspaceSpec};

fn plan() -> Planned {
    let id = WorkspaceId::new();
    let spec = WorkspaceSpec {
        image: "base".to_owned(),
        isolation: Isolation::Vm,
        vcpus: 1,
        memory_mb: 256,
        disk_gb: 1,
    };
    Planned::new(id, WorkspaceName::default_for(id), SessionId::new(), spec).expect("randomness")
}

fn journal(folder: &std::path::Path) -> Journal {
    Journal::open(Options::at(folder)).expect("it opens").0
}

async fn set(logs: &WorkspaceLogSet, id: WorkspaceId, name: &str) -> Result<(), ToolError> {
    let (written, outcome) = oneshot::channel();
    let vars = [(name.to_owned(), Some("1".to_owned()))].into();
    let decision = Decision::record(Record::EnvSet { vars });
    logs.decide(id, decision, move |durable| drop(written.send(durable)))?;
    Ok(outcome.await.expect("it has an outcome")?)
}

fn code(outcome: Result<(), ToolError>) -> String {
    outcome.expect_err("it is refused").code.into_owned()
}

#[tokio::test]
async fn a_log_goes_on_with_every_incarnation_and_every_daemon_until_it_is_forgotten() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    let logs = || WorkspaceLogSet::new(journal.clone(), folder.path().join("disks"));
    let (first, plan) = (logs(), plan());
    let id = plan.id;
    assert_eq!(code(set(&first, id, "A").await), "workspace_state");
    first.plan(plan).await.expect("it is written");
    set(&first, id, "A").await.expect("it is written");
    // Work of an incarnation before, beside the one that begins.
    assert_eq!(first.begin(id).await.expect("it is there").env.len(), 1);
    set(&first, id, "B").await.expect("it is written");
    assert_eq!(first.begin(id).await.expect("it is there").env.len(), 2);

    let next = logs();
    next.open_all().await.expect("readable");
    assert_eq!(next.states().iter().map(|ledger| ledger.plan.id).collect::<Vec<_>>(), [id]);
    assert_eq!(ledgers(&journal).expect("readable")[0].env.len(), 2);
    next.forget(id).await.expect("it is forgotten");
    assert_eq!(code(set(&next, id, "C").await), "workspace_state");
    assert_eq!(code(next.forget(id).await), "workspace_state");
    assert_eq!(code(next.begin(id).await.map(drop)), "workspace_state");
    assert!(next.states().is_empty() && journal.streams("workspace/").expect("read").is_empty());
}

#[tokio::test]
async fn a_workspace_that_cannot_be_forgotten_is_not_called_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    let logs = WorkspaceLogSet::new(journal.clone(), folder.path().join("disks"));
    let plan = plan();
    let id = plan.id;
    logs.plan(plan).await.expect("it is written");
    journal.close().await;
    assert_eq!(code(logs.forget(id).await), "journal_failed");
    assert_eq!(code(set(&logs, id, "A").await), "journal_failed");
    assert_eq!(logs.states().len(), 1);
}

#[tokio::test]
async fn a_stream_without_a_plan_is_said_to_be_unreadable() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    let stream = log::stream::<Ledger>(WorkspaceId::new()).expect("a name");
    let record = serde_json::to_vec(&Record::StartWanted).expect("JSON");
    journal.append(&stream, vec![record]).await.expect("it is written");
    let logs = WorkspaceLogSet::new(journal.clone(), folder.path().join("disks"));
    let refused = logs.open_all().await.expect_err("it has no plan");
    assert_eq!(ToolError::from(refused).code, "state_unreadable");
}
