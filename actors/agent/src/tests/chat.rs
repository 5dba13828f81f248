//! Chats: messages that are answered one after the other, a failure between them, and a daemon that dies.

use std::time::Duration;

use hivekeep_kernel::{Progress, ToolError, User};
use hivekeep_ports::{ChatEvents, ChatRole, ChatStatus, Chats, ModelMessage};
use hivekeep_testkit::{context, eventually};
use serde_json::json;

use super::{
    Stage,
    fakes::{says, turns},
};

const PATIENCE: Duration = Duration::from_secs(60);

fn texts(messages: &[ModelMessage]) -> Vec<&str> {
    let text = |message: &'_ ModelMessage| match message {
        ModelMessage::User(_) => "user",
        ModelMessage::Assistant { .. } => "assistant",
        ModelMessage::ToolResult { .. } => "result",
    };
    messages.iter().map(text).collect()
}

impl Stage {
    async fn waits_for_message(&self, id: &str) {
        let state = async || self.good("aegis.task.status", json!({ "execution_id": id })).await;
        eventually("it waits", async || state().await["waiting_for"] == "message").await;
    }

    async fn said(&self, id: &str, message: &str) {
        self.good("agent_continue", json!({ "execution_id": id, "message": message })).await;
    }
}

#[tokio::test]
async fn a_chat_waits_for_each_message_and_remembers_those_before() {
    let mut stage = Stage::with_worker("").await;
    stage.rig.options.chat_agent = "worker".to_owned();
    stage.rig = stage.rig.crashed().await;
    stage.models.answer(|request| match turns(request) {
        0 => says("", &[("fs_read", json!({}))]),
        1 => says("First.", &[]),
        2 => Err(ToolError::internal("the wire is cut")),
        _ => says("Third.", &[]),
    });
    let cx = || context(stage.rig.session, "ide_session_create", PATIENCE, Progress::default());
    let chats = || stage.rig.daemon.ports.need::<dyn Chats>().expect("offered");
    let opened = chats().open(&cx(), "talk").await.expect("opened");
    let id = opened.id.clone();
    stage.waits_for_message(&id).await;
    assert!(stage.models.asked().is_empty(), "nothing was said");

    stage.said(&id, "one").await;
    eventually("it answers", async || stage.models.asked().len() == 2).await;
    stage.waits_for_message(&id).await;
    stage.said(&id, "two").await;
    eventually("it is asked", async || stage.models.asked().len() == 3).await;
    stage.waits_for_message(&id).await;
    let state = stage.good("aegis.task.status", json!({ "execution_id": id })).await;
    assert_eq!((&state["status"], &state["error_code"]), (&json!("running"), &json!("internal")));

    stage.models.answer(|_| says("Third.", &[]));
    stage.rig = stage.rig.crashed().await;
    let cx = || context(stage.rig.session, "ide_session_create", PATIENCE, Progress::default());
    let chats = || stage.rig.daemon.ports.need::<dyn Chats>().expect("offered");
    let sent = chats().send(&cx(), &id, "three").await.expect("sent");
    assert!(sent.is_some());
    eventually("it answers", async || stage.models.asked().len() == 4).await;
    stage.waits_for_message(&id).await;
    let asked = stage.models.asked();
    assert_eq!(texts(&asked[0].messages), ["user", "user"], "the task, and what was said");
    assert_eq!(
        texts(&asked[3].messages),
        ["user", "user", "assistant", "result", "assistant", "user", "user"],
        "all of it, once"
    );
    assert_eq!(asked[3].messages[5..], ["two", "three"].map(|it| ModelMessage::User(it.into())));

    let listed = chats().list(&cx()).await.expect("listed");
    assert_eq!(listed.len(), 1);
    assert_eq!((&*listed[0].name, listed[0].status), ("talk", ChatStatus::Waiting));
    let messages = chats().messages(&cx(), &id, 4).await.expect("read").expect("its own");
    let said: Vec<_> = messages.iter().map(|it| (it.role, &*it.content)).collect();
    assert_eq!(said[0], (ChatRole::User, "two"));
    assert_eq!(said[1].0, ChatRole::Error);
    assert_eq!(said[2..], [(ChatRole::User, "three"), (ChatRole::Assistant, "Third.")]);
    let follow = async |mut events: Box<dyn ChatEvents>| {
        let mut all = Vec::new();
        loop {
            let some = events.next().await.expect("read");
            if some.is_empty() {
                return all;
            }
            all.extend(some.into_iter().map(|it| (it.sequence, it.event_type)));
        }
    };
    let (owner, chats_now) = (User::Uid(0), chats());
    let events = |from| chats_now.events(owner, &id, from).expect("its own");
    let followed = tokio::spawn({
        let events = events(0);
        async move { follow(events).await }
    });
    assert!(chats().events(User::Uid(1), &id, 0).is_none(), "another user's");
    assert!(chats().events(owner, "exec_0", 0).is_none());
    let hidden = stage.as_other("agent_continue", json!({ "execution_id": id, "message": "x" }));
    assert_eq!(hidden.await.expect_err("another user").code, "execution_not_found");
    stage.good("aegis.task.cancel", json!({ "execution_id": id })).await;
    assert_eq!(stage.end(&id).await["status"], "cancelled");
    let all = followed.await.expect("followed");
    let logged = stage.events(&id).await;
    let logged: Vec<_> = logged.iter().map(|it| &it["event_type"]).collect();
    assert_eq!(json!(all.iter().map(|(_, what)| what).collect::<Vec<_>>()), json!(logged));
    assert!(all.iter().map(|(sequence, _)| *sequence).eq(1..=all.len() as u64));
    assert_eq!(follow(events(3)).await, all[3..], "from where somebody left");
    let listed = chats().list(&cx()).await.expect("listed");
    assert!(listed[0].status.is_over());
}

#[tokio::test]
async fn a_chat_begins_with_a_task_and_shows_the_calls_of_its_turn() {
    let stage = Stage::with_worker("").await;
    stage.models.answer(|request| match turns(request) {
        0 => says("", &[("fs_read", json!({})), ("hold", json!({})), ("fs_write", json!({}))]),
        _ => says("Done.", &[]),
    });
    let asked = json!({ "agent_id": "worker", "intent": "Look around", "chat": true });
    let id = stage.good("aegis.task.execute", asked).await["execution_id"].clone();
    let id = id.as_str().expect("an id");
    eventually("it holds", async || stage.children.calls("hold") == 1).await;
    let cx = context(stage.rig.session, "ide_plan_status", PATIENCE, Progress::default());
    let chats = stage.rig.daemon.ports.need::<dyn Chats>().expect("offered");
    let plan = async || chats.plan(&cx, id).await.expect("read").expect("its own");
    eventually("one is done", async || {
        let steps = serde_json::to_value(plan().await.steps).expect("JSON");
        steps
            == json!([
                { "name": "fs_read", "status": "completed" },
                { "name": "hold", "status": "running" },
                { "name": "fs_write", "status": "pending" },
            ])
    })
    .await;
    stage.children.release();
    stage.waits_for_message(id).await;
    assert_eq!(plan().await.status, ChatStatus::Waiting);
    let messages = chats.messages(&cx, id, 10).await.expect("read").expect("its own");
    let said: Vec<_> = messages.iter().map(|it| (it.role, &*it.content)).collect();
    assert_eq!(said, [(ChatRole::User, "Look around"), (ChatRole::Assistant, "Done.")]);
}

#[tokio::test]
async fn an_agent_is_written_by_one_that_is_shipped_and_nobody_replaces_it() {
    let stage = Stage::with_worker("").await;
    let asked = || json!({ "input": "Sort my notes" });
    assert_eq!(stage.refused("aegis.agent.generate", asked()).await.code, "llm_not_configured");
    assert_eq!(stage.good("aegis.task.list", json!({})).await["total"], 0);
    stage.models.answer(|request| {
        let again = turns(request) > 0
            || matches!(&request.messages[0], ModelMessage::User(text) if text.contains("Previous"));
        let named = "```json\n{\"agent_id\": \"agent_1\", \"name\": \"sorter\", \"version\": \"1.0.0\"}\n```";
        says(if again { named } else { "I wrote it." }, &[])
    });
    let started = stage.good("aegis.agent.generate", asked()).await;
    let id = started["execution_id"].as_str().expect("an id");
    let end = stage.end(id).await;
    assert_eq!((&end["status"], &end["iteration_count"]), (&json!("completed"), &json!(2)));
    let ModelMessage::User(prompt) = &stage.models.asked()[0].messages[0] else { panic!("asked") };
    assert!(prompt.contains("Task: Sort my notes"), "{prompt}");
    for shipped in ["agent-creator", "assistant"] {
        let found = stage.good("export", json!({ "name": shipped })).await;
        let gone = stage.as_operator("delete", json!({ "agent_id": found["id"] })).await;
        assert!(gone.is_err(), "{shipped} is the daemon's");
    }
}

#[tokio::test]
async fn a_chat_is_stopped_in_an_answer_in_a_call_and_before_either_and_goes_on_with_the_next_message()
 {
    let mut stage = Stage::with_worker("").await;
    stage.models.answer(|request| match turns(request) {
        0 => says("", &[("hold", json!({})), ("fs_write", json!({}))]),
        _ => says("Done.", &[]),
    });
    let asked = json!({ "agent_id": "worker", "intent": "Look around", "chat": true });
    let id = stage.good("aegis.task.execute", asked).await["execution_id"].clone();
    let id = id.as_str().expect("an id").to_owned();
    let stop = || json!({ "execution_id": id, "stop": true });
    eventually("it holds", async || stage.children.calls("hold") == 1).await;
    stage.good("agent_continue", stop()).await;
    stage.waits_for_message(&id).await;
    stage.good("agent_continue", stop()).await;
    stage.models.be_silent(true);
    stage.said(&id, "two").await;
    let state = async || stage.good("aegis.task.status", json!({ "execution_id": id })).await;
    eventually("it asks", async || state().await["iteration_count"] == 2).await;
    stage
        .good("agent_continue", json!({ "execution_id": id, "stop": true, "message": "three" }))
        .await;
    eventually("it asks again", async || state().await["iteration_count"] == 3).await;
    stage.good("agent_continue", stop()).await;
    stage.waits_for_message(&id).await;

    stage.rig = stage.rig.crashed().await;
    stage.waits_for_message(&id).await;
    stage.models.be_silent(false);
    stage.said(&id, "four").await;
    eventually("it answers", async || stage.models.asked().len() == 2).await;
    stage.waits_for_message(&id).await;
    let asked = &stage.models.asked()[1].messages;
    assert_eq!(
        texts(asked),
        ["user", "assistant", "result", "result", "user", "user", "user"],
        "each call has a result"
    );
    let ModelMessage::ToolResult { content, is_error: true, .. } = &asked[3] else {
        panic!("{:?}", asked[3])
    };
    assert!(content.starts_with("stopped: "), "{content}");
    assert_eq!(stage.children.calls("fs_write"), 0, "no call of a stopped turn is begun");
    let logs = json!({ "execution_id": id, "limit": 200 });
    let logs = stage.good("aegis.task.logs", logs).await;
    let stops = logs["events"].as_array().expect("events").iter();
    assert_eq!(stops.filter(|event| event["event_type"] == "chat_stopped").count(), 3);

    let plain = json!({ "agent_id": "worker", "intent": "Look" });
    stage.models.be_silent(true);
    let plain = stage.good("aegis.task.execute", plain).await["execution_id"].clone();
    let refused = json!({ "execution_id": plain, "stop": true });
    assert_eq!(stage.refused("agent_continue", refused).await.code, "invalid_input");
}
