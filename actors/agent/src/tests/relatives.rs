//! Parents and children: what one learns of the other, and what they share.

use hivekeep_kernel::{SessionId, view::ToolView};
use hivekeep_testkit::eventually;
use serde_json::{Value, json};

use super::{
    Stage,
    fakes::{says, turns},
    tasks::{TOOLS, opened, types, write},
};
use crate::execution::state::{ExecutionState, Record};

impl Stage {
    /// Session of an execution.
    fn session_of(&self, id: &str) -> SessionId {
        let opened = self.children.opened();
        opened.iter().find(|(_, child)| child.name == id).expect("it is opened").0
    }

    /// Begins an execution from the session of another one.
    async fn below(&self, above: &str, intent: &str) -> Result<String, hivekeep_kernel::ToolError> {
        let asked = json!({ "agent_id": "worker", "intent": intent });
        let session = self.session_of(above);
        let begun = self.call_as(session, ToolView::default(), "aegis.task.execute", asked).await?;
        Ok(begun["execution_id"].as_str().expect("an id").to_owned())
    }

    async fn told_of(&self, id: &str, event_type: &str) -> Vec<Value> {
        let events = self.events(id).await.into_iter();
        events.filter(|it| it["event_type"] == event_type).map(|it| it["payload"].clone()).collect()
    }

    /// A stage where agents that are asked to hold do, and others end at once.
    async fn holding(spec: &str) -> Self {
        let stage = Self::with_worker(spec).await;
        stage.models.answer(|request| {
            let holds = format!("{:?}", request.messages[0]).contains("hold");
            match (holds, turns(request)) {
                (true, 0) => says("", &[("hold_read", json!({}))]),
                (_, 0) => says("", &[("fs_read", json!({}))]),
                _ => says("Done.", &[]),
            }
        });
        stage
    }

    async fn held(&self, n: usize) {
        eventually("it holds", async || self.children.calls("hold.read") == n).await;
    }
}

#[tokio::test]
async fn an_end_of_a_child_is_told_and_an_end_of_a_parent_ends_its_children() {
    let stage = Stage::holding("").await;
    let top = stage.begun("hold").await;
    stage.held(1).await;
    let quick = stage.below(&top, "quick").await.expect("begun");
    eventually("it is told", async || stage.told_of(&top, "child_ended").await.len() == 1).await;
    let ended = stage.told_of(&top, "child_ended").await.remove(0);
    assert_eq!(ended["execution_id"], quick);
    assert_eq!((&ended["agent"], &ended["status"]), (&json!("worker"), &json!("completed")));
    assert_eq!(ended["used"], json!({ "tokens": 30 }));

    let middle = stage.below(&top, "hold").await.expect("begun");
    stage.held(2).await;
    let lowest = stage.below(&middle, "hold").await.expect("begun");
    stage.held(3).await;
    let deep = stage.below(&lowest, "hold").await.expect_err("too deep");
    assert_eq!(deep.code, "execution_too_deep");
    stage.good("aegis.task.cancel", json!({ "execution_id": top })).await;
    for id in [&top, &middle, &lowest] {
        assert_eq!(stage.end(id).await["status"], "cancelled");
        eventually("its session ends", async || {
            stage.children.ended().contains(&stage.session_of(id))
        })
        .await;
    }
    let late = stage.below(&top, "late").await;
    assert!(late.is_err(), "nothing begins below what is over: {late:?}");
}

#[tokio::test]
async fn what_a_child_uses_counts_for_its_parent() {
    // The parent uses 15 for the turn that holds, a child wants 20 and then 40 more for its second turn.
    let stage = Stage::holding("  execution: { budget: { tokens: 60 } }\n").await;
    let top = stage.begun("hold").await;
    stage.held(1).await;
    let child = stage.below(&top, "quick").await.expect("begun");
    stage.waits_for(&child, "budget").await;
    let reached = stage.told_of(&child, "budget_reached").await.remove(0);
    assert_eq!((&reached["of"], &reached["used"]), (&json!(top), &json!(30)));
    let at_the_child = json!({ "execution_id": child, "budget": { "tokens": 100 } });
    let elsewhere = stage.refused("agent_continue", at_the_child).await;
    assert_eq!(elsewhere.code, "budget_of_parent");
    assert_eq!(elsewhere.details["execution_id"], json!(top));
    let asked = stage.models.asked().len();
    stage.continued(&top, json!({ "budget": { "tokens": 5 } })).await;
    assert_eq!(stage.status(&child).await["waiting_for"], "budget", "it is not enough");
    assert_eq!(stage.models.asked().len(), asked);
    stage.continued(&top, json!({ "budget": { "tokens": 20 } })).await;
    assert_eq!(stage.end(&child).await["status"], "completed");
    assert_eq!(stage.told_of(&child, "execution_continued").await.len(), 1, "it is woken once");
    eventually("it is told", async || !stage.told_of(&top, "child_ended").await.is_empty()).await;
    let used = stage.status(&top).await["budget"].clone();
    assert_eq!(used, json!([{ "kind": "tokens", "used": 45, "limit": 85 }]));
    // 45 are used by both, and a turn of the parent may come to 40.
    stage.children.release();
    assert_eq!(stage.end(&top).await["status"], "completed");
}

#[tokio::test]
async fn a_parent_learns_at_the_next_start_what_it_missed() {
    let stage = Stage::holding("").await;
    let top = stage.begun("hold").await;
    stage.held(1).await;
    let child = stage.below(&top, "quick").await.expect("begun");
    eventually("it is told", async || !stage.told_of(&top, "child_ended").await.is_empty()).await;
    stage.closed(&child).await;
    let read = async |id: &str| {
        let stream = hivekeep_runtime::log::stream::<ExecutionState>(id).expect("a name");
        let journal = &stage.rig.daemon.journal;
        let read = hivekeep_runtime::log::read_records::<ExecutionState>(journal, &stream);
        read.await.expect("read")
    };
    let (of_top, of_child) = (read(&top).await, read(&child).await);
    let is_over = |record: &Record| matches!(record, Record::Ended { .. });
    let end = of_child.iter().position(is_over).expect("it ended") + 1;
    // The daemon died behind the child's end, before or after the parent knew of its beginning, and of its end.
    for known in 0..=2 {
        let mut again = Stage::holding("").await;
        let kept = of_top.len() - 2 + known;
        write(&again, top.parse().expect("an id"), &of_top[..kept]).await;
        write(&again, child.parse().expect("an id"), &of_child[..end]).await;
        for (id, records) in [(&top, &of_top[..kept]), (&child, &of_child[..end])] {
            again.children.adopt(again.rig.session, id, opened(records), &TOOLS);
        }
        again.rig = again.rig.crashed().await;
        again.closed(&child).await;
        let told = async |what| again.told_of(&top, what).await.len();
        assert_eq!((told("child_started").await, told("child_ended").await), (1, 1), "{known}");
    }
}

#[tokio::test]
async fn one_that_is_given_up_and_removed_leaves_no_session_and_is_told() {
    let stage = Stage::holding("").await;
    let top = stage.begun("hold").await;
    stage.held(1).await;
    stage.models.answer(|_| panic!("the model's client is broken"));
    let child = stage.below(&top, "quick").await.expect("begun");
    eventually("it is given up", async || {
        stage.status(&child).await["error_code"] == "execution_given_up"
    })
    .await;
    let session = stage.session_of(&child);
    assert!(!stage.children.ended().contains(&session));
    let removed = stage.as_operator("aegis.task.remove", json!({ "execution_id": child })).await;
    assert_eq!(removed.expect("answered")["removed"], true);
    assert!(stage.children.ended().contains(&session));
    let ended = stage.told_of(&top, "child_ended").await;
    assert_eq!((ended.len(), &ended[0]["status"]), (1, &json!("removed")));
    assert!(types(&stage.events(&top).await).contains(&"child_started"));
}
