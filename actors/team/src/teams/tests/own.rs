//! Whose a team is, while it is made, taken over and removed.

use std::time::Duration;

use hivekeep_kernel::{Address, SessionId, TeamId, ToolError};
use hivekeep_runtime::log::LogRecord;
use serde_json::json;
use tokio::sync::oneshot;

use super::stage::{Stage, eventually, plan};
use crate::{
    records::{self, Record},
    team::{self, Takeover},
};

async fn own(team: &Address<team::Msg>, by: SessionId, from: SessionId) -> Result<(), ToolError> {
    let own = |reply| team::Msg::Own(Takeover { by, from }, reply);
    team.ask(Duration::from_secs(60), own).await.expect("the team answers")
}

#[tokio::test]
async fn a_team_that_is_removed_is_not_taken_over_and_leaves_no_stream() {
    let stage = Stage::new().await;
    stage.create("crew", &["a"]).await;
    let team = stage.team("crew").await;
    stage.fake.with(|world| world.slow_end = Duration::from_millis(200));
    // Its manager is not told: the team is there yet when it is gone.
    let (reply, ended) = oneshot::channel();
    team.send(team::Msg::End(reply)).expect("it is there");
    eventually("it is being removed", async || {
        stage.fake.with(|world| !world.asked_to_remove.is_empty())
    })
    .await;
    let other = SessionId::new();
    let error = own(&team, other, stage.session).await.expect_err("it is being removed");
    assert_eq!((error.code.as_ref(), error.retryable), ("team_state", true));
    assert!(ended.await.expect("it answers").all());
    assert_eq!(own(&team, other, stage.session).await.expect_err("gone").code, "team_state");
    let want = team.ask(Duration::from_secs(60), team::Msg::WantEnd).await.expect("it answers");
    want.expect("that is so");
    // Asked again, it says the same.
    let again = team.ask(Duration::from_secs(60), team::Msg::End).await.expect("it answers");
    assert!(again.all());
    assert_eq!(stage.journal.streams("").expect("read").len(), 0);
}

#[tokio::test]
async fn a_removal_waits_for_a_record_that_is_being_written() {
    let stage = Stage::new().await;
    stage.create("crew", &["a"]).await;
    let (team, heir) = (stage.team("crew").await, SessionId::new());
    stage.fake.adopt(heir);
    // One after the other in the mailbox: the first is being written when the others come.
    let (owned, ended) = (oneshot::channel(), oneshot::channel());
    let take = Takeover { by: heir, from: stage.session };
    team.send(team::Msg::Own(take, owned.0)).expect("there");
    team.send(team::Msg::End(ended.0)).expect("there");
    owned.1.await.expect("it answers").expect("it is the heir's");
    // In the heir's name: the session of before may not.
    assert!(ended.1.await.expect("it answers").all());
    assert_eq!(stage.journal.streams("").expect("read").len(), 0);
}

#[tokio::test]
async fn a_team_is_taken_only_from_whoever_had_it_when_that_was_looked_at() {
    let stage = Stage::new().await;
    stage.create("crew", &["a"]).await;
    let (team, heir, late) = (stage.team("crew").await, SessionId::new(), SessionId::new());
    let looks = async || {
        let view = team.ask(Duration::from_secs(60), team::Msg::Look).await.expect("it answers");
        view.state.owner
    };
    let (first, second) =
        tokio::join!(own(&team, heir, stage.session), own(&team, late, stage.session));
    first.expect("the first has it");
    assert_eq!(second.expect_err("it is another's by then").code, "not_owner");
    assert_eq!(looks().await, heir);
    own(&team, heir, stage.session).await.expect("it has it already");
}

#[tokio::test]
async fn each_event_names_the_session_that_operates_the_team_then() {
    let stage = Stage::new().await;
    stage.create("crew", &["a", "b"]).await;
    stage.say("a", "b", "1").await;
    let (team, heir) = (stage.team("crew").await, SessionId::new());
    own(&team, heir, stage.session).await.expect("it has it");
    let said =
        json!({ "action": "message", "name": "crew", "agent": "a", "to": "b", "content": "2" });
    stage.begin_as(heir, said).answer().await.expect("said");
    let mut events = stage.journal.events().subscribe(Some(hivekeep_store::Seq::FIRST), 64);
    let mut told = Vec::new();
    while told.len() < 4 {
        if let hivekeep_store::SubscriptionItem::Event(event) = events.next().await.expect("runs")
            && ["team.created", "message.put", "team.adopted"].contains(&event.kind.as_str())
        {
            told.push((event.kind.clone(), event.data["session"].clone()));
        }
    }
    let of = |kind: &str, session: SessionId| (kind.to_owned(), json!(session));
    let (before, after) = (stage.session, heir);
    let expected = [
        of("team.created", before),
        of("message.put", before),
        of("team.adopted", after),
        of("message.put", after),
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_team_is_listed_to_its_user_alone() {
    let stage = Stage::new().await;
    stage.create("crew", &["a"]).await;
    let (stranger, heir) = (SessionId::new(), SessionId::new());
    stage.fake.with(|world| world.strangers.insert(stranger));
    let listed = async |session: SessionId| {
        let list = stage.begin_as(session, json!({ "action": "list" }));
        list.answer().await.expect("listed")["count"].clone()
    };
    assert_eq!((listed(stranger).await, listed(heir).await), (json!(0), json!(1)));
    own(&stage.team("crew").await, stranger, stage.session).await.expect("it is the stranger's");
    assert_eq!((listed(stranger).await, listed(heir).await), (json!(1), json!(0)));
}

#[tokio::test]
async fn a_team_that_is_being_made_is_not_taken_over() {
    let stage = Stage::new().await;
    stage.fake.with(|world| world.slow = Duration::from_millis(300));
    let running = stage.begin(plan("crew", &["a"]));
    eventually("it makes", async || stage.fake.with(|world| world.running) == 1).await;
    stage.fake.with(|world| world.ended.insert(stage.session));
    let status = json!({ "action": "status", "name": "crew" });
    let error = stage.begin_as(SessionId::new(), status).answer().await.expect_err("not yet");
    assert_eq!(error.code, "team_state");
    running.answer().await.expect("made");
    assert_eq!(stage.teams().await[0]["owned"], true);
}

#[tokio::test]
async fn a_stream_without_a_plan_keeps_no_daemon_from_starting() {
    let stage = Stage::new().await;
    stage.create("crew", &["a"]).await;
    let debris = records::stream(TeamId::new());
    let record = Record::Owned { by: SessionId::new(), user: None }.encode().expect("plain data");
    stage.journal.append(&debris, vec![record]).await.expect("written");
    let stage = stage.crashed().await;
    assert_eq!(stage.teams().await.len(), 1);
    assert!(!stage.journal.streams("team/").expect("read").contains(&debris));
}
