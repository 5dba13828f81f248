//! What fails, is cancelled or dies leaves nothing, or says what it left.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use hivekeep_kernel::{Address, Census, RestartPolicy, TeamId, ToolError, entity::spawn_root};
use hivekeep_runtime::log::{Decision, LogRecord};
use serde_json::json;

use super::stage::{Stage, eventually, plan, speech};
use crate::{
    Options, inbox,
    records::{self, MemberPlan, Plan, Record, State},
    shared::OnBehalfOf,
    tasks::ledger,
    team::{self, TeamActor},
};

#[tokio::test]
async fn when_one_member_fails_none_is_left() {
    let stage = Stage::new().await;
    stage.fake.with(|world| world.fails = Some("-bad-"));
    let mut args = plan("crew", &["a", "b", "c"]);
    args["roles"][1]["role"] = json!("bad");
    let error = stage.refused(args).await;
    assert_eq!((error.code.as_ref(), &error.details["member"]), ("boot_failed", &json!("b")));
    assert!(stage.fake.names().is_empty() && stage.teams().await.is_empty());
    assert_eq!(stage.journal.streams("").expect("read").len(), 0);
    stage.create("crew", &["a"]).await;
}

#[tokio::test]
async fn a_cancelled_creation_is_undone_after_what_it_had_begun() {
    let stage = Stage::new().await;
    stage.fake.with(|world| world.slow = Duration::from_millis(150));
    let running = stage.begin(plan("crew", &["a", "b", "c"]));
    eventually("it makes", async || stage.fake.with(|world| world.running) > 0).await;
    running.cancel.cancel();
    let error = running.answer().await.expect_err("cancelled");
    assert_eq!(error.code, "cancelled");
    assert_eq!(stage.fake.with(|world| world.running), 0, "nothing comes to light afterwards");
    assert!(stage.fake.names().is_empty() && stage.teams().await.is_empty());
}

#[tokio::test]
async fn what_cannot_be_removed_is_named_and_removed_later() {
    let stage = Stage::new().await;
    let made = stage.create("crew", &["a", "b"]).await;
    let stuck = made["members"][1]["workspace_name"].as_str().expect("a name").to_owned();
    stage.fake.with(|world| world.stuck.insert(stuck.clone()));
    let destroy = json!({ "action": "destroy", "name": "crew" });
    let error = stage.refused(destroy.clone()).await;
    assert_eq!(
        (error.code.as_ref(), &error.details["left"]),
        ("team_not_destroyed", &json!([stuck]))
    );
    let rows = &error.details["members"];
    assert_eq!((&rows[0]["destroyed"], &rows[1]["destroyed"]), (&json!(true), &json!(false)));
    assert_eq!(stage.teams().await[0]["state"], "destroying");
    assert_eq!(stage.refused(super::stage::speech("a", "b", "x")).await.code, "team_state");
    // The next daemon goes on with it, in vain; then it can be removed.
    let stage = stage.crashed().await;
    assert_eq!(stage.teams().await[0]["state"], "destroying");
    stage.fake.with(|world| world.stuck.clear());
    stage.call(destroy).await;
    assert!(stage.fake.names().is_empty());
}

#[tokio::test]
async fn a_failed_creation_that_cannot_be_undone_says_what_is_left() {
    let stage = Stage::new().await;
    stage.fake.with(|world| world.fails = Some("-bad-"));
    let mut args = plan("crew", &["a", "b"]);
    args["roles"][1]["role"] = json!("bad");
    // Nobody knows the name before it is made.
    let every: Vec<_> = (0..=u16::MAX).map(|digits| format!("crew-hand-{digits:04x}")).collect();
    stage.fake.with(|world| world.stuck.extend(every));
    let error = stage.refused(args).await;
    assert_eq!(error.details["left"].as_array().map(Vec::len), Some(1), "{error}");
    stage.fake.with(|world| world.stuck.clear());
    stage.call(json!({ "action": "destroy", "name": "crew" })).await;
    assert!(stage.fake.names().is_empty() && stage.teams().await.is_empty());
}

#[tokio::test]
async fn what_is_being_made_is_not_destroyed_and_its_parent_goes_on() {
    let stage = Stage::new().await;
    stage.create("top", &["a"]).await;
    stage.fake.with(|world| world.slow = Duration::from_millis(300));
    let mut below = plan("low", &["b"]);
    below["parent_team"] = json!("top");
    let running = stage.begin(below);
    eventually("it makes", async || stage.fake.with(|world| world.running) == 1).await;
    let destroy = json!({ "action": "destroy", "name": "top" });
    assert_eq!(stage.refused(destroy.clone()).await.code, "team_state");
    running.answer().await.expect("made");
    let mut another = plan("other", &["c"]);
    another["parent_team"] = json!("top");
    stage.call(another).await;
    assert_eq!(stage.call(destroy).await["members"].as_array().map(Vec::len), Some(3));
    assert!(stage.fake.names().is_empty() && stage.teams().await.is_empty());
}

#[tokio::test]
async fn a_plan_without_its_end_is_undone_at_the_next_start() {
    let stage = Stage::new().await;
    stage.fake.with(|world| world.slow = Duration::from_millis(100));
    let running = stage.begin(plan("crew", &["a", "b", "c"]));
    eventually("it makes", async || stage.fake.with(|world| world.begun) > 0).await;
    let stage = stage.crashed().await;
    drop(running);
    stage.until_none().await;
    // What the dead daemon had begun is over by then or is still counted by its own tools.
    eventually("none runs", async || stage.fake.with(|world| world.running) == 0).await;
    assert_eq!(stage.journal.streams("").expect("read").len(), 0);
}

#[tokio::test]
async fn a_team_whose_actor_dies_is_undone_after_what_that_had_begun() {
    let stage = Stage::new().await;
    stage.fake.with(|world| world.slow = Duration::from_millis(600));
    let running = stage.begin(plan("crew", &["a", "b"]));
    eventually("it makes", async || stage.fake.with(|world| world.running) == 2).await;
    stage.kill_teams();
    assert_eq!(running.answer().await.expect_err("its actor died").code, "internal");
    stage.until_none().await;
    assert_eq!(stage.fake.with(|world| (world.begun, world.running)), (2, 0));
    assert!(stage.fake.names().is_empty(), "what was begun came to light afterwards");
    // One that was ready goes on.
    stage.fake.with(|world| world.slow = Duration::ZERO);
    stage.create("crew", &["a", "b"]).await;
    stage.say("a", "b", "x").await;
    stage.kill_teams();
    eventually("it is back", async || {
        let got = stage.begin(json!({ "action": "receive", "name": "crew", "agent": "b" }));
        got.answer().await.is_ok_and(|got| super::stage::said(&got) == ["x"])
    })
    .await;
}

#[tokio::test]
async fn a_team_whose_members_streams_cannot_be_read_can_be_removed() {
    let stage = Stage::new().await;
    let made = stage.create("crew", &["a", "b"]).await;
    let id = made["team_id"].as_str().expect("an id").parse().expect("an id");
    for number in 0..2 {
        for stream in [inbox::stream(id, number), ledger::stream(id, number)] {
            stage.journal.append(&stream, vec![b"no record".to_vec()]).await.expect("written");
        }
    }
    let stage = stage.crashed().await;
    let receive = json!({ "action": "receive", "name": "crew", "agent": "b" });
    assert_eq!(stage.refused(receive).await.code, "actor_unavailable");
    assert_eq!(stage.refused(speech("a", "b", "x")).await.code, "actor_unavailable");
    let picture = stage.watcher.picture("crew", false).await.expect("a picture");
    assert!(picture.members.iter().all(|seen| seen.inbox.is_none()));
    let rows = stage.shared.census.rows();
    assert!(rows.iter().any(|row| row.kind == "team" && row.last_error.is_some()), "{rows:?}");
    stage.call(json!({ "action": "destroy", "name": "crew" })).await;
    assert!(stage.fake.names().is_empty());
    assert_eq!(stage.journal.streams("").expect("read").len(), 0);
}

#[tokio::test]
async fn nothing_is_kept_of_teams_that_are_gone() {
    let stage = Stage::new().await;
    stage.create("crew", &["a", "b"]).await;
    let id = stage.team("crew").await;
    let view = id.ask(Duration::from_secs(60), team::Msg::Look).await.expect("it answers");
    drop(id);
    stage.call(json!({ "action": "destroy", "name": "crew" })).await;
    // A call that began before comes late.
    let caller = OnBehalfOf::own(stage.session, Duration::from_secs(60));
    stage.shared.tools.workspaces(view.state.plan.id, &caller).await.expect("listed");
    assert_eq!(stage.shared.tools.origins(), 0);
}

/// The journal as a crash at each point leaves it, with as many members made by then.
#[tokio::test]
async fn every_point_of_a_creation_and_a_removal_ends_in_nothing_or_in_a_team() {
    for (wanted, ready, made) in [
        (false, false, 0),
        (false, false, 1),
        (false, false, 2),
        (false, true, 2),
        (true, true, 2),
        (true, true, 1),
        (true, true, 0),
    ] {
        let stage = Stage::new().await;
        let told = stage.create("crew", &["a", "b"]).await;
        let ids = told["member_workspace_ids"].clone();
        let id = told["team_id"].as_str().expect("an id").parse().expect("an id");
        let journal = stage.journal.clone();
        let stream = records::stream(id);
        let State { plan, .. }: State = hivekeep_runtime::log::load::<State>(&journal, &stream)
            .expect("read")
            .expect("there")
            .state;
        let names: Vec<_> = plan.members.iter().map(|member| member.workspace.clone()).collect();
        journal.forget(&stream).await.expect("forgotten");
        let mut written = vec![Record::Planned(Box::new(Plan { ..plan }))];
        if ready {
            let workspaces = serde_json::from_value(ids).expect("ids");
            written.push(Record::Ready { workspaces });
        }
        if wanted {
            written.push(Record::Ending { unmade: BTreeSet::new() });
        }
        journal
            .append(&stream, written.iter().map(|it| it.encode().expect("plain data")).collect())
            .await
            .expect("written");
        stage.fake.with(|world| {
            world.workspaces.retain(|name, _| names[..made].contains(name));
        });
        drop(journal);
        let stage = stage.crashed().await;
        if ready && !wanted {
            let status = stage.call(json!({ "action": "status", "name": "crew" })).await;
            assert_eq!(status["members"][1]["agent_status"], "ready");
        } else {
            stage.until_none().await;
            assert!(stage.fake.names().is_empty(), "{wanted} {ready} {made}");
            assert_eq!(stage.journal.streams("").expect("read").len(), 0);
        }
    }
}

#[tokio::test]
async fn another_workspace_that_has_a_members_name_is_not_removed_with_the_others() {
    let stage = Stage::new().await;
    stage.fake.with(|world| world.claimed = Some("-odd-"));
    let mut args = plan("crew", &["a", "b"]);
    args["roles"][1]["role"] = json!("odd");
    // The plan stays, for one member cannot be removed.
    let every: Vec<_> = (0..=u16::MAX).map(|digits| format!("crew-hand-{digits:04x}")).collect();
    stage.fake.with(|world| world.stuck.extend(every));
    let error = stage.refused(args).await;
    assert_eq!((error.code.as_ref(), &error.details["member"]), ("name_taken", &json!("b")));
    assert_eq!(error.details["left"].as_array().map(Vec::len), Some(1), "{error}");
    let another = stage.fake.names().into_iter().find(|name| name.contains("-odd-"));
    assert!(another.is_some(), "it is another's");
    // Nor by a daemon that knows it from the journal.
    let stage = stage.crashed().await;
    stage.fake.with(|world| world.stuck.clear());
    stage.call(json!({ "action": "destroy", "name": "crew" })).await;
    assert_eq!(stage.fake.names(), Vec::from_iter(another));
}

#[tokio::test]
async fn what_is_not_asked_for_any_more_when_one_fails_is_not_removed_either() {
    let stage = Stage::with(Options { max_parallel: 1, ..Options::default() }).await;
    stage.fake.with(|world| world.fails = Some("-bad-"));
    let mut args = plan("crew", &["a", "b"]);
    args["roles"][0]["role"] = json!("bad");
    assert_eq!(stage.refused(args).await.code, "boot_failed");
    let asked = stage.fake.with(|world| world.asked_to_remove.clone());
    assert!(asked.iter().all(|name| name.contains("-bad-")) && asked.len() == 1, "{asked:?}");
}

#[tokio::test]
async fn that_a_creation_is_undone_is_recorded_before_anything_of_it_is_removed() {
    let stage = Stage::new().await;
    stage.fake.with(|world| (world.fails, world.slow) = (None, Duration::from_millis(200)));
    let running = stage.begin(plan("crew", &["a", "b"]));
    eventually("it makes", async || stage.fake.with(|world| world.running) == 2).await;
    // The members are made, and that they are is not recorded any more; nor anything else.
    stage.journal.close().await;
    let error = running.answer().await.expect_err("it cannot be recorded");
    assert_eq!(error.code, "journal_failed");
    assert_eq!(error.details["left"].as_array().map(Vec::len), Some(2), "{error}");
    assert_eq!(stage.fake.with(|world| world.asked_to_remove.len()), 0);
    let stage = stage.crashed().await;
    stage.until_none().await;
    assert!(stage.fake.names().is_empty());
}

#[tokio::test]
async fn a_team_that_was_not_whole_is_never_taken_for_a_ready_one() {
    let stage = Stage::new().await;
    let made = stage.create("crew", &["a", "b"]).await;
    let id = made["team_id"].as_str().expect("an id").parse().expect("an id");
    // As a plan that is undone for another reason than that of a member.
    stage.fake.with(|world| world.unruly = Some("-odd-"));
    let mut args = plan("other", &["a", "b"]);
    args["roles"][1]["role"] = json!("odd");
    let every: Vec<_> = (0..=u16::MAX).map(|digits| format!("other-hand-{digits:04x}")).collect();
    stage.fake.with(|world| world.stuck.extend(every));
    assert_eq!(stage.refused(args).await.code, "network_failed");
    let all = hivekeep_runtime::log::load_all::<State>(&stage.journal).expect("read").loaded;
    let words = all.iter().map(|(_, team)| &team.state);
    let words: Vec<_> = words.map(|team| (team.plan.id == id, team.word())).collect();
    assert_eq!(words, [(true, "ready"), (false, "destroying")]);
}

#[tokio::test]
async fn a_first_incarnation_that_does_not_start_is_followed_by_one_that_undoes_the_plan() {
    let stage = Stage::new().await;
    let (id, fresh) = (TeamId::new(), Arc::new(AtomicBool::new(true)));
    let manager = Arc::new(stage.teams.clone());
    let args = team::Args { shared: stage.shared.clone(), id, manager, fresh };
    let probe = Census::default().probe("team", "team", RestartPolicy::TEMPORARY);
    let place = Address::vacant(probe);
    // Nothing is recorded of it: it cannot be read.
    let (_, ended) = spawn_root::<TeamActor>(&place, args.clone()).await.expect("spawns");
    ended.await.expect("it ends");
    let member = MemberPlan {
        name: "a".to_owned(),
        role: "hand".to_owned(),
        skills: Vec::new(),
        description: None,
        workspace: "late-hand-0000".to_owned(),
    };
    let plan = Plan {
        id,
        name: "late".to_owned(),
        owner: stage.session,
        user: None,
        parent: None,
        parent_name: None,
        max_vms: 1,
        at: chrono::Utc::now(),
        members: vec![member],
        source: None,
    };
    let log = stage.shared.teams.open(records::stream(id)).await.expect("it opens");
    let planned = Decision::record(Record::Planned(Box::new(plan)));
    let planned = log.decide::<ToolError>(|_| Ok(planned)).expect("decided");
    planned.await.expect("written");
    spawn_root::<TeamActor>(&place, args).await.expect("spawns");
    eventually("the plan is undone", async || {
        stage.journal.streams("team/").expect("read").is_empty()
    })
    .await;
}
