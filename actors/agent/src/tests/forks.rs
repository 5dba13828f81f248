//! Forks, rewinds, comparisons and replays over a real journal.

use hivekeep_kernel::{SessionId, ToolError, view::ToolView};
use hivekeep_ports::{ModelAnswer, ModelMessage, ModelRequest};
use hivekeep_testkit::eventually;
use serde_json::{Value, json};

use super::{
    Stage,
    fakes::{says, turns},
    tasks::{TOOLS, opened, types, working, write},
};
use crate::execution::{
    forks::ForkRecord,
    state::{ExecutionState, Record},
};

impl Stage {
    pub(super) async fn forked(&self, id: &str, more: Value) -> Vec<String> {
        let mut asked = json!({ "execution_id": id });
        asked.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
        let begun = self.good("agent_fork", asked).await;
        assert_eq!(begun["forked_from"], id);
        let ids = begun["execution_ids"].as_array().expect("ids").iter();
        ids.map(|id| id.as_str().expect("an id").to_owned()).collect()
    }

    async fn rewound(&self, id: &str, to: Value, instruction: Option<&str>) -> Value {
        let asked = json!({ "execution_id": id, "to": to, "instruction": instruction });
        self.good("agent_rewind", asked).await
    }
}

/// As [`working`], but for those who are told to be brief.
pub(super) fn brief(request: &ModelRequest) -> Result<ModelAnswer, ToolError> {
    match request.messages.contains(&ModelMessage::User("Be brief.".to_owned())) {
        true => says("Short.", &[]),
        false => working(request),
    }
}

#[tokio::test]
async fn forks_share_turns_and_pay_for_their_own() {
    let stage = Stage::with_worker("").await;
    stage.models.answer(brief);
    let id = stage.begun("Mend it").await;
    let whole = stage.closed(&id).await;
    let asked = stage.models.asked();
    let at = json!({ "iteration": 1, "turn": 2 });
    let variations = json!([{ "instruction": "Be brief.", "model": "other" }]);
    let more = json!({ "at": at, "count": 2, "variations": variations });
    let forks = stage.forked(&id, more).await;
    let [short, plain] = &forks[..] else { panic!("{forks:?}") };
    for (fork, said) in [(short, "Short."), (plain, "Done.")] {
        let end = stage.end(fork).await;
        assert_eq!((&end["status"], &end["last_output"]), (&json!("completed"), &json!(said)));
        assert_eq!((&end["tokens"], &end["forked_from"]), (&json!(15), &json!(id)), "its own turn");
    }
    assert_eq!((stage.children.calls("fs.write"), stage.children.calls("fs.read")), (2, 2));
    let all = stage.models.asked();
    assert_eq!(all.len(), asked.len() + 2, "no shared turn is asked again");
    let of_model = |model: &str| all[3..].iter().find(|it| it.model == model).expect("asked");
    let (varied, same) = (of_model("other"), of_model("default"));
    assert_eq!(same.messages, asked[2].messages);
    let last = ModelMessage::User("Be brief.".to_owned());
    assert_eq!(varied.messages, [&asked[2].messages[..], &[last]].concat());

    let events = stage.closed(short).await;
    let shared = &types(&whole)[2..9];
    let expected = [
        &["execution_started"][..],
        shared,
        &["execution_forked", "message_received", "session_opened", "llm_interaction"],
        &["execution_completed", "session_closed"],
    ];
    assert_eq!(types(&events), expected.concat());
    let forked = &events[8]["payload"];
    assert_eq!((&forked["forked_from"], &forked["at"]), (&json!(id), &at));

    let ids = json!({ "execution_ids": [id, short, plain] });
    let compared = stage.good("agent_compare", ids.clone()).await;
    let row = |at: usize, key: &str| compared["executions"][at][key].clone();
    assert_eq!(
        [row(1, "turns"), row(1, "calls"), row(1, "tokens")],
        [json!(3), json!(4), json!(15)]
    );
    assert_eq!((row(0, "tokens"), row(1, "model")), (json!(45), json!("other")));
    let answers = json!(["Done.", "Short.", "Done."]);
    let expected = json!({ "iteration": 1, "turn": 3, "answers": answers });
    assert_eq!(compared["first_difference"], expected);
    let stranger = stage.begun("Mend it").await;
    stage.closed(&stranger).await;
    let apart = json!({ "execution_ids": [id, stranger] });
    assert_eq!(stage.good("agent_compare", apart).await["first_difference"], Value::Null);

    for (run, requests) in [(&id, 3), (short, 1)] {
        let replayed = stage.good("agent_replay", json!({ "execution_id": run })).await;
        assert_eq!((&replayed["same"], &replayed["requests"]), (&json!(true), &json!(requests)));
    }
    let of_it = || json!({ "execution_id": id });
    let back = json!({ "execution_id": id, "to": { "turn": 1 } });
    for (tool, args) in [
        ("agent_fork", of_it()),
        ("agent_rewind", back.clone()),
        ("agent_compare", ids),
        ("agent_replay", of_it()),
    ] {
        let hidden = stage.as_other(tool, args).await.expect_err(tool);
        assert_eq!(hidden.code, "execution_not_found", "{tool}");
    }
    assert_eq!(stage.refused("agent_rewind", back).await.code, "run_over");
    for (more, code) in [
        (json!({ "turn": 4 }), "turn_unknown"),
        (json!({ "iteration": 2 }), "turn_unknown"),
        (json!({}), "invalid_input"),
    ] {
        let asked = json!({ "execution_id": id, "at": more });
        assert_eq!(stage.refused("agent_fork", asked).await.code, code, "{more}");
    }
    let more = json!({ "execution_id": id, "count": 1, "variations": [{}, {}] });
    assert_eq!(stage.refused("agent_fork", more).await.code, "invalid_input");
    stage.as_operator("aegis.task.remove", of_it()).await.expect("removed");
    assert_eq!(stage.events(short).await, events, "a fork needs no source");
}

/// A fork is begun with its copies or not at all, and goes on from each later record without asking for them again.
#[tokio::test]
async fn a_daemon_that_dies_in_a_fork_goes_on_from_it() {
    let stage = Stage::with_worker("").await;
    stage.models.answer(brief);
    let source = stage.begun("Mend it").await;
    stage.closed(&source).await;
    let more = json!({ "at": { "turn": 1 }, "variations": [{ "instruction": "Go on." }] });
    let fork = stage.forked(&source, more).await.remove(0);
    stage.closed(&fork).await;
    let (id, records) = stage.records(&fork).await;
    let is_origin = |record: &Record| matches!(record, Record::Fork { about, .. } if matches!(**about, ForkRecord::Inherited(_)));
    let begun = records.iter().position(is_origin).expect("a fork") + 2;
    for kept in begun..=records.len() {
        let mut again = Stage::with_worker("").await;
        again.models.answer(brief);
        write(&again, id, &records[..kept]).await;
        let session = opened(&records[..kept]);
        again.children.adopt(again.rig.session, &fork, session, &TOOLS);
        again.rig = again.rig.crashed().await;
        eventually("it is over", async || again.status(&fork).await["status"] == "completed").await;
        let asks = records[kept..].iter().filter(|it| matches!(it, Record::Answered { .. }));
        assert_eq!(again.models.asked().len(), asks.count(), "at {kept}");
        assert_eq!(again.children.calls("fs.read"), 0, "at {kept}");
        assert_eq!(again.status(&fork).await["tokens"], 30, "at {kept}");
    }
}

fn holding(request: &ModelRequest) -> Result<ModelAnswer, ToolError> {
    match (brief(request), turns(request)) {
        (Ok(answer), _) if answer.text == "Short." => Ok(answer),
        (_, 0) => says("", &[("fs_write", json!({ "n": 1 }))]),
        (_, 1) => says("", &[("hold_read", json!({})), ("hold_read", json!({}))]),
        _ => says("Done.", &[]),
    }
}

#[tokio::test]
async fn a_rewind_cuts_short_what_runs_and_drops_later_turns() {
    let stage = Stage::with_worker("").await;
    stage.models.answer(holding);
    let id = stage.begun("Mend it").await;
    eventually("it holds", async || stage.children.calls("hold.read") == 2).await;
    let early = json!({ "execution_id": id, "to": { "turn": 2 } });
    assert_eq!(stage.refused("agent_rewind", early).await.code, "turn_unknown");
    let rewound = stage.rewound(&id, json!({ "turn": 1 }), Some("Be brief.")).await;
    assert_eq!(rewound["machine"], "none");
    assert_eq!(rewound["at"], json!({ "iteration": 1, "turn": 1 }));
    let end = stage.end(&id).await;
    assert_eq!((&end["status"], &end["last_output"]), (&json!("completed"), &json!("Short.")));
    assert_eq!(end["tokens"], 45, "what was paid is paid");
    let asked = stage.models.asked();
    let said = ModelMessage::User("Be brief.".to_owned());
    assert_eq!(asked[2].messages, [&asked[1].messages[..], &[said]].concat());
    assert_eq!(stage.children.calls("fs.write"), 1);
    let events = stage.closed(&id).await;
    let behind = types(&events).into_iter().skip_while(|it| *it != "rewind_asked");
    let expected = [
        "rewind_asked",
        "message_received",
        "tool_invocation_failed",
        "tool_invocation_failed",
        "execution_rewound",
        "llm_interaction",
        "execution_completed",
        "session_closed",
    ];
    assert_eq!(behind.collect::<Vec<_>>(), expected, "events keep what was dropped");

    let (parsed, records) = stage.records(&id).await;
    let state = ExecutionState::of(&records).expect("they follow");
    assert_eq!(state.iterations[0].turns.len(), 2);
    for kept in 1..=records.len() {
        let mut again = Stage::with_worker("").await;
        again.models.answer(holding);
        write(&again, parsed, &records[..kept]).await;
        let session = opened(&records[..kept]);
        again.children.adopt(again.rig.session, &id, session, &TOOLS);
        again.rig = again.rig.crashed().await;
        eventually("it is over", async || {
            again.children.release();
            again.status(&id).await["status"] == "completed"
        })
        .await;
        let asked = records[..kept].iter().any(
            |record| matches!(record, Record::Fork { about, .. } if matches!(**about, ForkRecord::RewindAsked { .. })),
        );
        let end = again.status(&id).await;
        // Its message was not written by then.
        let told =
            kept > records.iter().position(|it| matches!(it, Record::Account { .. })).expect("one");
        assert_eq!(end["last_output"], if told { "Short." } else { "Done." }, "at {kept}");
        if asked && told {
            assert_eq!(again.children.calls("hold.read"), 0, "a dropped call is not made: {kept}");
        }
    }
}

#[tokio::test]
async fn a_request_is_dropped_by_a_rewind_and_a_chat_forgets_messages() {
    let stage = Stage::with_worker("").await;
    stage.models.answer(|request| says(&format!("{} messages", request.messages.len()), &[]));
    let chat = json!({ "agent_id": "worker", "chat": true });
    let chat = stage.good("aegis.task.execute", chat).await["execution_id"].clone();
    let id = chat.as_str().expect("an id").to_owned();
    for (message, answer) in [("one", "2 messages"), ("two", "4 messages")] {
        stage.waits_for(&id, "message").await;
        stage.continued(&id, json!({ "message": message })).await;
        eventually("it answers", async || stage.status(&id).await["last_output"] == answer).await;
    }
    stage.waits_for(&id, "message").await;
    stage.models.be_silent(true);
    stage.continued(&id, json!({ "message": "three" })).await;
    eventually("it asks", async || stage.status(&id).await["iteration_count"] == 3).await;
    let rewound = stage.rewound(&id, json!({ "iteration": 1, "turn": 1 }), None).await;
    assert_eq!(rewound["machine"], "none");
    assert_eq!(stage.waits_for(&id, "message").await["last_output"], "2 messages");
    stage.models.be_silent(false);
    stage.continued(&id, json!({ "message": "other" })).await;
    eventually("it answers", async || stage.status(&id).await["last_output"] == "4 messages").await;
    let said: Vec<_> = stage.models.asked().pop().expect("asked").messages;
    assert_eq!(said.last(), Some(&ModelMessage::User("other".to_owned())));
    let fork = stage.forked(&id, json!({})).await.remove(0);
    assert_eq!(stage.waits_for(&fork, "message").await["iteration_count"], 2);
}

#[tokio::test]
async fn a_machine_is_forked_and_restored_as_its_checkpoint() {
    let spec = "  execution: { checkpoint: turn }\n";
    let stage = Stage::with_worker(spec).await;
    stage.models.answer(holding);
    let id = stage.begun("Mend it").await;
    eventually("it holds", async || stage.children.calls("hold.read") == 2).await;
    let saved = stage.machines.calls("snapshot");
    let names: Vec<_> = saved.iter().map(|args| args["name"].clone()).collect();
    assert_eq!(names, ["turn-0-1-0", "turn-0-1-1"]);
    assert!(saved.iter().all(|args| args["action"] == "create" && args["include_memory"] == true));
    let fork = stage.forked(&id, json!({ "variations": [{ "instruction": "Be brief." }] })).await;
    assert_eq!(stage.end(&fork[0]).await["last_output"], "Short.");
    let forked = stage.machines.calls("fork").remove(0);
    let session: SessionId = opened(&stage.records(&id).await.1).expect("its session");
    assert_eq!(forked["of"]["snapshot"], "turn-0-1-1");
    assert_eq!(forked["of"]["owner"], json!(session));
    let of_fork = opened(&stage.records(&fork[0]).await.1).expect("its session");
    assert_eq!(forked["for"], json!(of_fork), "a machine of its own");

    let rewound = stage.rewound(&id, json!({ "iteration": 1 }), Some("Be brief.")).await;
    assert_eq!(rewound["machine"], "restored");
    let restored =
        stage.machines.calls("snapshot").into_iter().find(|it| it["action"] == "restore");
    assert_eq!(restored.expect("restored")["name"], "turn-0-1-0");
    stage.closed(&id).await;
    let more = json!({ "at": { "iteration": 1 }, "variations": [{ "instruction": "Be brief." }] });
    let again = stage.forked(&id, more).await;
    assert_eq!(stage.end(&again[0]).await["status"], "completed");
}

#[tokio::test]
async fn a_model_is_asked_while_its_machine_is_kept_and_calls_wait_for_that() {
    let mut stage = Stage::with_worker("  execution: { checkpoint: turn }\n").await;
    stage.models.answer(holding);
    let held = stage.machines.hold_snapshots().await;
    let id = stage.begun("Mend it").await;
    let names = |stage: &Stage| {
        let saved = stage.machines.calls("snapshot").into_iter();
        saved.map(|args| args["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    for times in 1..=2 {
        eventually("it is kept", async || names(&stage).len() == times).await;
        eventually("it is answered", async || {
            types(&stage.events(&id).await).contains(&"llm_interaction")
        })
        .await;
        assert_eq!(stage.children.calls("fs.write"), 0);
        // The next daemon keeps it as it was before the answer.
        stage.rig = stage.rig.crashed().await;
    }
    drop(held);
    eventually("it holds", async || stage.children.calls("hold.read") == 2).await;
    assert_eq!(names(&stage), ["turn-0-1-0", "turn-0-1-0", "turn-0-1-0", "turn-0-1-1"]);
    assert_eq!((stage.children.calls("fs.write"), stage.models.asked().len()), (1, 2));
}

#[tokio::test]
async fn a_machine_without_a_checkpoint_is_forked_only_as_it_is_now() {
    let stage = Stage::with_worker("  env: { LOG: debug }\n").await;
    stage.models.answer(brief);
    let id = stage.begun("Mend it").await;
    stage.closed(&id).await;
    let early = json!({ "execution_id": id, "at": { "turn": 2 } });
    let refused = stage.refused("agent_fork", early).await;
    assert_eq!(refused.code, "checkpoint_missing");
    assert!(refused.next_step.is_some_and(|next| next.contains("checkpoint: turn")));
    let fork = stage.forked(&id, json!({ "variations": [{ "instruction": "Be brief." }] })).await;
    assert_eq!(stage.end(&fork[0]).await["status"], "completed");
    assert_eq!(stage.machines.calls("fork")[0]["of"]["snapshot"], "turn-0-1-3");
}

#[tokio::test]
async fn of_many_checkpoints_the_last_32_are_kept() {
    let stage = Stage::with_worker("  execution: { checkpoint: turn }\n").await;
    stage.models.answer(|request| match turns(request) {
        35 => says("Done.", &[]),
        _ => says("", &[("fs_write", json!({}))]),
    });
    let id = stage.begun("Mend it").await;
    stage.closed(&id).await;
    let calls = stage.machines.calls("snapshot");
    let named = |action: &str| {
        let of_it = calls.iter().filter(|it| it["action"] == action);
        of_it.map(|it| it["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(named("create").len(), 36);
    let oldest: Vec<_> = (0..4).map(|turn| format!("turn-0-1-{turn}")).collect();
    assert_eq!(named("delete"), oldest);
    let gone = json!({ "execution_id": id, "at": { "turn": 3 } });
    assert_eq!(stage.refused("agent_fork", gone).await.code, "checkpoint_missing");
}

#[tokio::test]
async fn a_replay_names_the_first_request_that_is_another_one() {
    let stage = Stage::with_worker("").await;
    stage.models.answer(working);
    let id = stage.begun("Mend it").await;
    stage.closed(&id).await;
    let manifest = stage.good("export", json!({ "name": "worker" })).await;
    let text = manifest["manifest_yaml"].as_str().expect("a text");
    let calls = stage.children.calls("fs.write");
    for (version, was, is, what) in [
        ("1.0.1", "Do it.", "Do that.", "prompt"),
        ("1.0.2", "tools: [fs.read, fs_write", "tools: [fs.read", "tools"),
        ("1.0.3", "version: '3.11'", "version: '3.11', model: smart", "parameters"),
    ] {
        let text = text.replace("1.0.0", version).replace(was, is);
        stage.good("create", json!({ "manifest_yaml": text })).await;
        let asked = json!({ "execution_id": id, "version": version });
        let replayed = stage.good("agent_replay", asked).await;
        assert_eq!(replayed["same"], false);
        let difference = &replayed["difference"];
        assert_eq!((&difference["what"], &difference["turn"]), (&json!(what), &json!(1)));
        if what == "prompt" {
            assert_eq!(difference["recorded"], "Do it.\n\nTask: Mend it");
            assert_eq!(difference["now"], "Do that.\n\nTask: Mend it");
        }
    }
    assert_eq!(stage.children.calls("fs.write"), calls, "nothing is called");
}

#[tokio::test]
async fn forks_are_bounded_and_an_agent_forks_what_it_began_alone() {
    let mut stage = Stage::with_worker("").await;
    stage.rig.options.max_running = 4;
    stage.rig = stage.rig.crashed().await;
    stage.models.answer(working);
    let id = stage.begun("Mend it").await;
    stage.closed(&id).await;
    let (of_agent, _) = stage.children.opened().remove(0);
    let asked = json!({ "execution_id": id, "at": { "turn": 1 } });
    let denied = stage.call_as(of_agent, ToolView::default(), "agent_fork", asked).await;
    assert_eq!(denied.expect_err("denied").code, "continue_denied");

    stage.models.be_silent(true);
    let more = json!({ "execution_id": id, "at": { "turn": 1 }, "count": 4 });
    let refused = stage.refused("agent_fork", more).await;
    assert_eq!(refused.code, "too_many_runs", "three quarters are one user's");
    assert!(refused.message.starts_with("3 of 4 forks were begun: "), "{refused}");
    let begun = refused.details["execution_ids"].as_array().expect("ids").clone();
    assert_eq!(begun.len(), 3);
    for fork in begun {
        let cancelled = stage.good("aegis.task.cancel", json!({ "execution_id": fork })).await;
        assert_eq!(cancelled["cancelled"], true);
    }
}
