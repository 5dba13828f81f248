//! The best of several forks over a real journal: judged alike, also where the daemon dies at each record; and the files
//! that they differ in.

use std::collections::BTreeMap;

use hivekeep_ports::{ModelMessage, ModelRequest};
use hivekeep_testkit::eventually;
use serde_json::{Value, json};

use super::{
    Stage,
    fakes::says,
    forks::brief,
    judges::{Said, asked_in, asker, judges, payloads, prompt, records_of},
    tasks::{TOOLS, opened, working, write},
};
use crate::execution::state::Record;

/// Forks say what they are told; a judge scores that, `mild` more than `strict`.
fn telling(request: &ModelRequest) -> Said {
    let told = |message: &ModelMessage| match message {
        ModelMessage::User(text) => text.strip_prefix("Say ").map(str::to_owned),
        _ => None,
    };
    let good = |words: &str| prompt(request).contains(words);
    match (asker(request), request.messages.iter().rev().find_map(told)) {
        ("strict", _) if good("nothing") => says("?", &[]),
        (judge, _) if judge != "worker" => {
            let score = if good("gold") { 0.8 } else { 0.2 };
            judges(if judge == "mild" { score + 0.1 } else { score }, "Read.")
        }
        (_, Some(words)) => says(&words, &[]),
        _ => working(request),
    }
}

/// A stage with two judges, and forks of one execution that say these words.
async fn forked(words: &[&str], best_of: Value) -> (Stage, String, Vec<String>) {
    let stage = Stage::judged(&["strict", "mild"], "").await;
    stage.models.answer(telling);
    let source = stage.begun("Now").await;
    stage.closed(&source).await;
    let said = |word: &&str| json!({ "instruction": format!("Say {word}") });
    let variations: Vec<_> = words.iter().map(said).collect();
    let more = json!({ "at": { "turn": 1 }, "variations": variations, "best_of": best_of });
    let forks = stage.forked(&source, more).await;
    for fork in &forks {
        stage.closed(fork).await;
    }
    (stage, source, forks)
}

fn by_both() -> Value {
    json!({ "judges": ["strict", "mild"], "criteria": "It glitters." })
}

#[tokio::test]
async fn the_best_of_several_forks_is_the_one_with_the_highest_score() {
    let (stage, source, forks) = forked(&["lead", "gold", "gold, too", "nothing"], by_both()).await;
    let compare =
        async |ids: &[&String]| stage.good("agent_compare", json!({ "execution_ids": ids })).await;
    let all: Vec<_> = [&source].into_iter().chain(&forks).collect();
    let compared = compare(&all).await;
    let column = |key: &str| {
        let rows = compared["executions"].as_array().expect("rows").iter();
        rows.map(|row| row[key].clone()).collect::<Vec<_>>()
    };
    let [low, high] =
        [0.25, 0.85].map(|mean| move |it: &Value| (it.as_f64().unwrap_or(9.0) - mean).abs() < 1e-9);
    let scores = column("score");
    assert!(low(&scores[1]) && high(&scores[2]) && high(&scores[3]), "{scores:?}");
    assert_eq!([&scores[0], &scores[4]], [&Value::Null; 2], "neither judged, nor by all");
    assert_eq!(column("status")[3..], [json!("completed"), json!("failed")]);
    assert_eq!(compared["best"], json!(forks[1]), "the first of those with the same score");
    assert_eq!(stage.status(&forks[3]).await["error_code"], "judge_unavailable");
    let why = stage.status(&forks[3]).await["last_error"].as_str().expect("text").to_owned();
    assert!(why.contains("no judgment by best_of, so"), "{why}");
    let judged = |of: &str| stage.models.asked().iter().filter(|it| asker(it) == of).count();
    assert_eq!((judged("strict"), judged("mild")), (4, 4), "one each");
    let asked = stage.models.asked();
    let of_judge = asked.iter().find(|it| asker(it) == "mild").expect("asked");
    assert!(prompt(of_judge).contains("It glitters."), "{}", prompt(of_judge));
    let verdict = payloads(&stage.events(&forks[0]).await, "validation_completed")[0].clone();
    assert_eq!((&verdict["type"], &verdict["passed"]), (&json!("multi_judge"), &json!(true)));

    // Of forks that are judged otherwise, or that go on, none is the best.
    let other = json!({ "judges": ["mild"], "criteria": "It is heavy." });
    let more = json!({ "at": { "turn": 1 }, "variations": [{ "instruction": "Say gold" }], "best_of": other });
    let apart = stage.forked(&forks[1], more).await.remove(0);
    stage.closed(&apart).await;
    assert_eq!(stage.status(&apart).await["status"], "completed");
    assert_eq!(judged("strict"), 4, "the judges of its source are not its own");
    assert_eq!(compare(&[&forks[0], &apart]).await["best"], Value::Null);
    stage.models.be_silent(true);
    let more = json!({ "at": { "turn": 1 }, "best_of": by_both() });
    let running = stage.forked(&source, more).await.remove(0);
    assert_eq!(compare(&[&forks[0], &running]).await["best"], Value::Null);
    stage.good("aegis.task.cancel", json!({ "execution_id": running })).await;
    stage.closed(&running).await;
    assert_eq!(compare(&[&forks[0], &running]).await["best"], json!(forks[0]));
    assert_eq!(compare(&[&source, &running]).await["best"], Value::Null, "none completed");
}

#[tokio::test]
async fn judges_of_forks_that_cannot_be_asked_are_told_before_any_is_begun() {
    let stage = Stage::judged(&["mild"], "").await;
    stage.deploy("typed", "Judge.", "  input_schema: { required: [essay] }\n").await;
    stage.models.answer(brief);
    let id = stage.begun("Now").await;
    stage.closed(&id).await;
    let total = stage.good("aegis.task.list", json!({})).await["total"].clone();
    let chat = json!({ "agent_id": "worker", "chat": true, "intent": "Now" });
    let chat = stage.good("aegis.task.execute", chat).await["execution_id"].clone();
    stage.waits_for(chat.as_str().expect("an id"), "message").await;
    for (source, judges, code, said) in [
        (&json!(id), json!(["mild", "nobody"]), "agent_not_found", "`best_of.judges[1]`"),
        (&json!(id), json!(["typed"]), "input_invalid", "`best_of.judges[0]`"),
        (&json!(id), json!([]), "invalid_input", "no judges"),
        (&chat, json!(["mild"]), "invalid_input", "no output of a chat"),
    ] {
        let best_of = json!({ "judges": judges, "criteria": "c" });
        let asked = json!({ "execution_id": source, "at": { "turn": 1 }, "best_of": best_of });
        let refused = stage.refused("agent_fork", asked).await;
        assert!(refused.code == code && refused.message.contains(said), "{refused}");
    }
    let now = stage.good("aegis.task.list", json!({})).await["total"].as_u64();
    assert_eq!(now, total.as_u64().map(|it| it + 1), "the chat alone");
}

/// The verdict on a fork is found once, and no judge is asked twice, wherever the daemon dies.
#[tokio::test]
async fn a_daemon_that_dies_in_a_judged_fork_asks_no_judge_twice() {
    let (stage, _, forks) = forked(&["gold"], by_both()).await;
    let (id, records) = stage.records(&forks[0]).await;
    let mut of_judges = BTreeMap::new();
    for judge in asked_in(&records) {
        stage.closed(&judge.to_string()).await;
        of_judges.insert(judge, records_of(&stage, judge).await);
    }
    assert_eq!(of_judges.len(), 2);
    let begun = records.iter().position(|it| matches!(it, Record::Account { .. })).expect("told");
    for (kept, whole) in (begun + 1..=records.len()).flat_map(|kept| [(kept, true), (kept, false)])
    {
        let mut again = Stage::judged(&["strict", "mild"], "").await;
        again.models.answer(telling);
        let (prefix, rest) = records.split_at(kept);
        write(&again, id, prefix).await;
        let ended = |about: &Value| {
            prefix.iter().any(|it| {
                let record = json!(it);
                record["about"]["judging"] == "ended" && record["about"]["execution"] == *about
            })
        };
        let mut open = 0;
        for judge in asked_in(prefix) {
            let is_open = !ended(&json!(judge));
            open += usize::from(is_open && !whole);
            if whole || !is_open {
                write(&again, judge, &of_judges[&judge]).await;
            }
        }
        again.children.adopt(again.rig.session, &forks[0], opened(prefix), &TOOLS);
        again.rig = again.rig.crashed().await;
        eventually("it is over", async || again.status(&forks[0]).await["status"] == "completed")
            .await;
        let judged = again.models.asked().iter().filter(|it| asker(it) != "worker").count();
        assert_eq!(judged, asked_in(rest).len() + open, "at {kept}, {whole}");
        let ids = json!({ "execution_ids": [forks[0], forks[0]] });
        let compared = again.as_operator("agent_compare", ids).await.expect("compared");
        assert_eq!(compared["best"], json!(forks[0]), "at {kept}, {whole}");
        assert_eq!(asked_in(&records_of(&again, id).await).len(), 2, "at {kept}, {whole}");
    }
}

#[tokio::test]
async fn files_are_compared_with_the_checkpoint_and_a_machine_that_is_gone_is_told() {
    let stage =
        Stage::with_worker("  execution: { checkpoint: turn }\n  env: { LOG: debug }\n").await;
    stage.models.answer(brief);
    let id = stage.begun("Mend it").await;
    stage.closed(&id).await;
    let more =
        json!({ "at": { "turn": 2 }, "count": 3, "variations": [{ "instruction": "Be brief." }] });
    let forks = stage.forked(&id, more).await;
    let mut sessions = Vec::new();
    for fork in &forks {
        stage.closed(fork).await;
        sessions.push(opened(&stage.records(fork).await.1).expect("its session"));
    }
    let machine = |at: usize| stage.machines.of(sessions[at]).to_string();
    let long = "x".repeat(20_000);
    let (same, long) = (("same", "same"), ("long", long.as_str()));
    stage
        .machines
        .have(&machine(0), &[same, ("a", "one\nnew\n"), ("made", "made\n"), ("long", "y")]);
    stage.machines.have(&machine(1), &[same, ("a", "one\nnew\n"), ("bin", "\0"), long]);
    stage.machines.have("checkpoint", &[same, ("a", "one\nold\n"), ("bin", "\0"), long]);
    stage.machines.lose(sessions[2]);
    let started = stage.machines.calls("workspace_start").len();
    let stopped = stage.machines.calls("workspace_stop").len();
    let asked = |forks: &[String]| json!({ "execution_ids": forks, "files": true });
    let compared = stage.good("agent_compare", asked(&forks)).await;
    let errors = [0, 1, 2].map(|at| compared["executions"][at]["files_error"].clone());
    assert_eq!(errors[..2], [Value::Null, Value::Null]);
    assert!(errors[2].as_str().expect("told").contains("execution_files_gone"), "{errors:?}");
    let added = "--- a/made\n+++ b/made\n@@ -0,0 +1 @@\n+made\n";
    let changed = "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n one\n-old\n+new\n";
    let version = |of: &[usize], bytes: Option<u64>, diff: Option<&str>| {
        let ids: Vec<_> = of.iter().map(|at| &forks[*at]).collect();
        let mut version = json!({ "execution_ids": ids, "size_bytes": bytes });
        if let Some(diff) = diff {
            version["diff"] = json!(diff);
        }
        version
    };
    let file = |path: &str, bytes: Option<u64>, versions: &[Value]| json!({ "path": path, "checkpoint_bytes": bytes, "versions": versions });
    let expected = json!([
        file("a", Some(8), &[version(&[0, 1], Some(8), Some(changed))]),
        file("bin", Some(1), &[version(&[0], None, None), version(&[1], Some(1), None)]),
        file(
            "long",
            Some(20_000),
            &[version(&[0], Some(1), None), version(&[1], Some(20_000), None)]
        ),
        file("made", None, &[version(&[0], Some(5), Some(added)), version(&[1], None, None)]),
    ]);
    assert_eq!((&compared["files"]["files"], &compared["files"]["total"]), (&expected, &json!(4)));
    assert_eq!(compared["files"]["checkpoint_error"], Value::Null);
    let fork = &stage.machines.calls("fork_to_read")[0];
    assert_eq!(fork["of"]["snapshot"], "turn-0-1-2");
    assert_ne!(fork["for"], fork["of"]["owner"], "that session is over, and may make nothing");
    assert_eq!(stage.machines.calls("workspace_destroy").len(), 1);
    assert_eq!(stage.machines.calls("workspace_start").len(), started + 2);
    assert_eq!(stage.machines.calls("workspace_stop").len(), stopped + 2, "as they were");

    // Without the checkpoint they are compared with one another, and that is told.
    stage.machines.forget("checkpoint");
    let compared = stage.good("agent_compare", asked(&forks[..2])).await;
    let why = compared["files"]["checkpoint_error"].as_str().expect("told");
    assert!(why.contains("snapshot_not_found"), "{why}");
    let paths = [0, 1, 2].map(|at| compared["files"]["files"][at]["path"].clone());
    assert_eq!(paths, ["bin", "long", "made"].map(|it| json!(it)));
    let made = &compared["files"]["files"][2]["versions"];
    assert_eq!(made[1]["diff"], "--- a/made\n+++ b/made\n@@ -1 +0,0 @@\n-made\n");
    let plain = stage.good("agent_compare", json!({ "execution_ids": forks })).await;
    assert_eq!(plain.get("files"), None);
}
