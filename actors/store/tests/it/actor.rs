//! The journal as a supervised actor.

use fail::FailScenario;
use hivekeep_store::actor::{JournalActor, Msg};
use hivekeep_store::{Options, StopReason};
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent, call_t};
use tokio::sync::mpsc;

use crate::util::{open, stream};

/// Supervisor that forwards what happened to its children.
struct Supervisor;

impl Actor for Supervisor {
    type Msg = ();
    type State = mpsc::Sender<String>;
    type Arguments = mpsc::Sender<String>;

    async fn pre_start(
        &self,
        _: ActorRef<()>,
        events: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(events)
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        event: SupervisionEvent,
        events: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(_, error) => {
                events.try_send(format!("failed: {error}"))?
            }
            SupervisionEvent::ActorTerminated(_, _, reason) => {
                events.try_send(format!("ended: {}", reason.unwrap_or_default()))?;
            }
            _ => {}
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poisoned_journal_fails_its_actor_and_a_new_one_reopens_it() {
    let scenario = FailScenario::setup();
    let dir = tempfile::tempdir().unwrap();
    let options = Options::at(dir.path());
    let (events, mut received) = mpsc::channel(16);
    let (supervisor, _) = Actor::spawn(None, Supervisor, events).await.unwrap();
    let start = || Actor::spawn_linked(None, JournalActor, options.clone(), supervisor.get_cell());

    let (actor, _) = start().await.unwrap();
    let (journal, recovered) = call_t!(actor, Msg::Handle, 5000).unwrap();
    assert!(recovered.created);
    let name = stream("actor/a");
    journal.append(&name, vec![b"kept".to_vec()]).await.unwrap();
    let stats = call_t!(actor, Msg::Stats, 5000).unwrap();
    assert_eq!((stats.commits, stats.records, stats.streams), (1, 1, 1));
    assert!(stats.disk_bytes > 0 && stats.last_commit_ms > 0.0 && stats.poisoned.is_none());

    fail::cfg("store::commit::flush", "return").unwrap();
    journal.append(&name, vec![b"lost".to_vec()]).await.unwrap_err();
    fail::remove("store::commit::flush");
    let failed = received.recv().await.unwrap();
    assert!(failed.starts_with("failed:") && failed.contains("disk is full"), "{failed}");

    let (actor, _) = start().await.unwrap();
    let (journal, recovered) = call_t!(actor, Msg::Handle, 5000).unwrap();
    assert!(!recovered.created);
    assert_eq!(journal.replay(&name).unwrap().records[0].1, b"kept");
    assert_eq!(call_t!(actor, Msg::Close, 5000).unwrap(), StopReason::Closed);
    assert_eq!(received.recv().await.unwrap(), "ended: the journal was closed");
    open(&options).await.unwrap();
    scenario.teardown();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_store_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("journal")).unwrap();
    let started = Actor::spawn(None, JournalActor, Options::at(dir.path())).await;
    let refused = started.map(drop).unwrap_err().to_string();
    assert!(refused.contains("unreadable"), "{refused}");
}
