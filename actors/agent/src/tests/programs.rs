//! Programs in place of turns, over a real journal: a whole life, a gateway that asks nothing twice, and daemons that
//! die while the program waits.

use hivekeep_kernel::ExecutionId;
use hivekeep_ports::TaskOutcome;
use hivekeep_runtime::log;
use hivekeep_testkit::eventually;
use serde_json::{Value, json};

use super::{
    Stage,
    fakes::says,
    machine::{RelayPlay, whole},
    tasks::write,
};
use crate::execution::state::{ExecutionState, Record};

const PATH: &str = "/v1/responses";

fn body(text: &str) -> String {
    json!({ "model": "m", "input": text }).to_string()
}

fn exited(exit_code: i32) -> TaskOutcome {
    TaskOutcome::Exited { exit_code }
}

impl Stage {
    /// A stage with an agent `coder` that is codex, and an execution of it that has begun.
    pub(super) async fn with_program(spec: &str) -> (Self, String) {
        let tools = ["fs.read", "fs.write", "hold", "cmd.run"].map(str::to_owned);
        let stage = Self::new(tools).await;
        stage.models.answer(|_| says("", &[]));
        let text = format!(
            "apiVersion: 100monkeys.ai/v1\nkind: Agent\nmetadata: {{ name: coder, version: 1.0.0 }}\nspec:\n  \
             runtime: {{ language: python, version: '3.11', program: codex }}\n  \
             task: {{ instruction: Do it. }}\n{spec}"
        );
        stage.good("create", json!({ "manifest_yaml": text })).await;
        let started = stage.good("aegis.task.execute", json!({ "agent_id": "coder" })).await;
        (stage, started["execution_id"].as_str().expect("an id").to_owned())
    }

    async fn requests(&self, id: &str) -> Value {
        let state = self.good("aegis.task.status", json!({ "execution_id": id })).await;
        state["model_requests"].clone()
    }

    /// Status and body of the answer to a request of the program.
    pub(super) async fn asks(&self, text: &str) -> (u16, Result<String, String>) {
        whole(self.machine.sends(PATH, &body(text)).await).await
    }

    /// What the program does in its whole life.
    async fn works(&self) {
        for text in ["a", "a", "b"] {
            assert_eq!(self.asks(text).await, (200, Ok("one two".to_owned())));
        }
        self.machine.finish(exited(0), SAID, "").await;
    }

    async fn program_events(&self, id: &str) -> Vec<Value> {
        let page = json!({ "execution_id": id, "limit": 200 });
        let logs = self.good("aegis.task.logs", page).await;
        logs["events"].as_array().expect("events").clone()
    }
}

const SAID: &str = r#"{"type":"item.completed","item":{"type":"agent_message","text":"Mended."}}"#;

#[tokio::test]
async fn a_program_runs_in_its_machine_and_no_answer_is_asked_twice() {
    let (stage, id) = Stage::with_program("").await;
    stage.machine.play(|_, nth| match nth {
        0 => RelayPlay::Whole(&["one ", "two"]),
        _ => RelayPlay::Whole(&["three"]),
    });
    for _ in 0..3 {
        assert_eq!(stage.asks("a").await, (200, Ok("one two".to_owned())));
    }
    assert_eq!(stage.asks("b").await, (200, Ok("three".to_owned())));
    assert_eq!(stage.machine.relayed().len(), 2);
    let relayed = &stage.machine.relayed()[0];
    assert_eq!((relayed.provider.as_str(), &*relayed.body), ("fake", body("a").as_bytes()));
    assert_eq!(relayed.session, stage.rig.session, "who asked for the execution pays");
    let counted = json!({ "asked": 2, "answered_from_record": 2, "cut": 0 });
    assert_eq!(stage.requests(&id).await, counted);

    stage.machine.finish(exited(0), &format!("{SAID}\n"), "a warning").await;
    let end = stage.end(&id).await;
    assert_eq!((&end["status"], &end["last_output"]), (&json!("completed"), &json!("Mended.")));
    assert_eq!((&end["tokens"], &end["model_requests"]), (&json!(30), &counted));
    let assigned = stage.machine.assigned();
    assert_eq!(assigned.len(), 1);
    let task = &assigned[0];
    assert!(task.command.contains("'codex' 'exec'") && task.command.contains("'Do it.'"));
    assert_eq!(task.env["OPENAI_API_KEY"], "placeholder");
    let events = stage.program_events(&id).await;
    let types: Vec<_> = events.iter().map(|it| it["event_type"].as_str().expect("one")).collect();
    assert_eq!(types[2], "machine_ready", "without a network");
    let (types, events) = (&types[1..], &events[1..]);
    let replayed = "llm_answer_repeated";
    let asked = ["llm_request_sent", "llm_interaction"];
    assert_eq!(types[3..5], asked);
    assert_eq!(types[5..9], [replayed, replayed, asked[0], asked[1]]);
    assert_eq!(types[9..11], ["program_ended", "execution_completed"]);
    assert_eq!(events[4]["payload"]["input_tokens"], 10);
    assert!(!json!(events).to_string().contains("one two"), "answers are kept, and not shown");
}

#[tokio::test]
async fn daemons_that_die_while_the_program_waits_lose_and_repeat_nothing() {
    let (mut stage, id) = Stage::with_program("").await;
    stage.machine.play(|_, nth| match nth {
        0 => RelayPlay::Hang("one "),
        1 => RelayPlay::Whole(&["one ", "two"]),
        _ => RelayPlay::Down,
    });
    let mut begun = stage.machine.sends(PATH, &body("a")).await;
    assert_eq!(begun.body.recv().await.expect("a piece").expect("good"), "one ");
    stage.rig = stage.rig.crashed().await;
    assert!(begun.body.recv().await.is_none_or(|piece| piece.is_err()), "it does not end in order");
    assert_eq!(stage.asks("a").await, (200, Ok("one two".to_owned())));
    let counted = json!({ "asked": 2, "answered_from_record": 0, "cut": 1 });
    assert_eq!(stage.requests(&id).await, counted);
    for died in 1..=2 {
        stage.rig = stage.rig.crashed().await;
        assert_eq!(stage.asks("a").await, (200, Ok("one two".to_owned())));
        let counted = json!({ "asked": 2, "answered_from_record": died, "cut": 1 });
        assert_eq!(stage.requests(&id).await, counted);
    }
    assert_eq!(stage.machine.relayed().len(), 2);
    assert_eq!(stage.machine.assigned().len(), 1, "the program runs once");
    // It ends while no daemon runs.
    let machine = stage.machine.clone();
    machine.finish(exited(0), SAID, "").await;
    stage.rig = stage.rig.crashed().await;
    assert_eq!(stage.end(&id).await["last_output"], "Mended.");
}

#[tokio::test]
async fn a_daemon_that_dies_at_any_record_asks_for_no_whole_answer_again() {
    let (stage, id) = Stage::with_program("").await;
    stage.machine.play(|_, _| RelayPlay::Whole(&["one ", "two"]));
    stage.works().await;
    assert_eq!(stage.end(&id).await["status"], "completed");
    let last = async || stage.program_events(&id).await.pop().expect("events");
    eventually("its session ends", async || last().await["event_type"] == "session_closed").await;
    let parsed: ExecutionId = id.parse().expect("an id");
    let stream = log::stream::<ExecutionState>(parsed).expect("a name");
    let journal = &stage.rig.daemon.journal;
    let records = log::read_records::<ExecutionState>(journal, &stream).await.expect("read");
    for kept in 1..=records.len() {
        let mut again = Stage::usual().await;
        again.models.answer(|_| says("", &[]));
        again.machine.play(|_, _| RelayPlay::Whole(&["one ", "two"]));
        write(&again, parsed, &records[..kept]).await;
        again.rig = again.rig.crashed().await;
        let status =
            async || again.as_operator("aegis.task.status", json!({ "execution_id": id })).await;
        let over = eventually("it is over", async || {
            status().await.is_ok_and(|state| state["status"] == "completed")
        });
        let works = async {
            again.works().await;
            std::future::pending().await
        };
        tokio::select! {
            () = over => {}
            () = works => {}
        }
        let at = |count: &dyn Fn(&Record) -> bool| {
            records[..kept].iter().filter(|record| count(record)).count()
        };
        let answered = at(&|record| matches!(record, Record::ModelAnswered { .. }));
        let asked = at(&|record| matches!(record, Record::ModelAsked { .. }));
        let ended = at(&|record| matches!(record, Record::ProgramEnded { .. }));
        let left = if ended > 0 { 0 } else { 2 - answered };
        assert_eq!(again.machine.relayed().len(), left, "no whole answer is asked twice: {kept}");
        let counted = status().await.expect("there")["model_requests"].clone();
        assert_eq!(counted["cut"], asked - answered, "at {kept}: {counted}");
        assert_eq!(counted["asked"], asked + left, "at {kept}: {counted}");
    }
}

#[tokio::test]
async fn what_was_cut_is_asked_again_and_what_was_refused_is_no_cut() {
    let (stage, id) = Stage::with_program("").await;
    stage.machine.play(|_, nth| match nth {
        0 => RelayPlay::Cut("one "),
        1 => RelayPlay::Refuse(429),
        2 => RelayPlay::Down,
        _ => RelayPlay::Whole(&["one ", "two"]),
    });
    assert_eq!(stage.asks("a").await, (200, Err("one ".to_owned())));
    assert_eq!(stage.asks("a").await.0, 429);
    let (status, told) = stage.asks("a").await;
    assert_eq!(status, 503);
    assert!(told.expect("whole").contains("llm_unavailable"));
    assert_eq!(stage.asks("a").await, (200, Ok("one two".to_owned())));
    let counted = json!({ "asked": 4, "answered_from_record": 0, "cut": 1 });
    assert_eq!(stage.requests(&id).await, counted);
}

#[tokio::test]
async fn a_flood_and_other_paths_and_models_are_refused_and_the_same_request_is_one() {
    let (stage, id) = Stage::with_program("").await;
    stage.machine.play(|_, _| RelayPlay::Hang("one"));
    for (target, body, status, code) in [
        ("/v1/chat/completions", body("a"), 404, "path_not_allowed"),
        ("/v1/files", body("a"), 404, "path_not_allowed"),
        (PATH, r#"{"model":"other"}"#.to_owned(), 404, "model_not_allowed"),
        (PATH, "{".to_owned(), 400, "invalid_input"),
    ] {
        let (came, told) = whole(stage.machine.sends(target, &body).await).await;
        let told: Value = serde_json::from_str(&told.expect("whole")).expect("JSON");
        assert_eq!((came, &told["error"]["code"]), (status, &json!(code)), "{target}");
    }
    let mut open = Vec::new();
    for nth in 0..8 {
        open.push(stage.machine.sends(PATH, &body(&nth.to_string())).await);
        open.push(stage.machine.sends(PATH, &body(&nth.to_string())).await);
    }
    let (status, told) = stage.asks("more").await;
    assert_eq!(status, 429);
    assert!(told.expect("whole").contains("busy"));
    assert_eq!(stage.machine.relayed().len(), 8, "each once");
    // The program goes, and with it everything that it asked for.
    stage.machine.finish(exited(0), "", "").await;
    assert_eq!(stage.end(&id).await["status"], "completed");
}

#[tokio::test]
async fn a_program_that_fails_is_told_why_in_its_next_iteration() {
    let iterative = "  execution: { mode: iterative, max_iterations: 2 }\n";
    let (stage, id) = Stage::with_program(iterative).await;
    stage.machine.finish(exited(3), "", "no such file").await;
    eventually("another runs", async || stage.machine.assigned().len() == 2).await;
    let second = stage.machine.assigned().pop().expect("two");
    assert!(second.command.contains("no such file"), "{}", second.command);
    stage.machine.finish(TaskOutcome::Interrupted, "", "").await;
    let end = stage.end(&id).await;
    assert_eq!((&end["status"], &end["error_code"]), (&json!("failed"), &json!("program_failed")));
    assert!(end["last_error"].as_str().expect("text").contains("interrupted"), "{end}");
}

#[tokio::test]
async fn a_cancelled_execution_ends_its_program() {
    let (stage, id) = Stage::with_program("").await;
    eventually("it runs", async || stage.machine.assigned().len() == 1).await;
    stage.good("aegis.task.cancel", json!({ "execution_id": id })).await;
    eventually("it is ended", async || !stage.machine.cancelled().is_empty()).await;
    assert_eq!(stage.end(&id).await["status"], "cancelled");
}

#[tokio::test]
async fn a_program_is_not_begun_with_a_model_that_it_cannot_speak_to() {
    let (stage, _) = Stage::with_program("").await;
    let text = "apiVersion: 100monkeys.ai/v1\nkind: Agent\nmetadata: { name: g, version: 1.0.0 }\nspec:\n  \
        runtime: { language: python, version: '3.11', program: gemini }\n  task: { instruction: Do it. }\n";
    stage.good("create", json!({ "manifest_yaml": text })).await;
    let refused = stage.refused("aegis.task.execute", json!({ "agent_id": "g" })).await;
    assert_eq!(refused.code, "program_model_unfit");
}

#[tokio::test]
async fn a_programs_budget_is_kept_before_each_request_and_counts_what_was_cut() {
    let (mut stage, id) = Stage::with_program("  execution: { budget: { tokens: 100 } }\n").await;
    stage.machine.play(|_, nth| match nth {
        1 => RelayPlay::Cut("one "),
        _ => RelayPlay::Whole(&["one ", "two"]),
    });
    let wanted = body("a").len() as u64 + 5;
    assert_eq!(wanted, 30);
    assert_eq!(stage.asks("a").await.0, 200);
    assert!(stage.asks("b").await.1.is_err());
    stage.rig = stage.rig.crashed().await;
    // 15 are used, and what was cut counts whole.
    let used = async |stage: &Stage| {
        let status = json!({ "execution_id": id });
        stage.good("aegis.task.status", status).await["budget"][0]["used"].clone()
    };
    assert_eq!(used(&stage).await, 15 + wanted);
    assert_eq!(stage.asks("b").await.0, 200);
    assert_eq!(used(&stage).await, 30 + wanted);
    // At the bound a request is held, also by the next daemon, and what is recorded costs nothing.
    let long = "c".repeat(30);
    let machine = stage.machine.clone();
    let held = tokio::spawn(async move { whole(machine.sends(PATH, &body(&long)).await).await });
    let waits = async |stage: &Stage| {
        let status = stage.good("aegis.task.status", json!({ "execution_id": id })).await;
        status["waiting_for"] == "budget"
    };
    eventually("it waits", async || waits(&stage).await).await;
    assert_eq!(stage.asks("a").await.0, 200);
    stage.rig = stage.rig.crashed().await;
    held.abort();
    assert!(waits(&stage).await);
    let message = json!({ "execution_id": id, "message": "Hurry." });
    assert_eq!(stage.refused("agent_continue", message).await.code, "invalid_input");
    let long = "c".repeat(30);
    let (asked, added) = tokio::join!(stage.asks(&long), async {
        assert_eq!(stage.machine.relayed().len(), 3);
        stage
            .good("agent_continue", json!({ "execution_id": id, "budget": { "tokens": 100 } }))
            .await
    });
    assert_eq!((asked.0, added["waiting_for"].clone()), (200, Value::Null));
    assert_eq!(stage.machine.relayed().len(), 4);
    stage.machine.finish(exited(0), SAID, "").await;
    assert_eq!(stage.end(&id).await["status"], "completed");
}

#[tokio::test]
async fn what_a_program_says_and_how_it_exits_is_judged_and_told_to_its_next_iteration() {
    let (stage, id) = Stage::with_program(
        "  execution:\n    mode: iterative\n    max_iterations: 4\n    validation:\n    \
         - { type: exit_code, expected: 3 }\n    - { type: regex, pattern: Mended }\n    \
         - { type: regex, pattern: warn, target: stderr }\n",
    )
    .await;
    let no = SAID.replace("Mended.", "No.");
    for (nth, (status, said, stderr, why)) in [
        (0, SAID, "", "ended with exit code 0, 3 is expected"),
        (3, no.as_str(), "", "validation[1]"),
        (3, SAID, "", "validation[2]"),
        (3, SAID, "a warning", ""),
    ]
    .into_iter()
    .enumerate()
    {
        stage.machine.finish(exited(status), said, stderr).await;
        if !why.is_empty() {
            eventually("another runs", async || stage.machine.assigned().len() == nth + 2).await;
            let next = stage.machine.assigned().pop().expect("some").command;
            assert!(next.contains(why), "{nth}: {next}");
        }
    }
    let end = stage.end(&id).await;
    assert_eq!((&end["status"], &end["last_output"]), (&json!("completed"), &json!("Mended.")));
}

const TOOLS: &str =
    "  tools: [fs.read, fs.write, hold]\n  execution: { budget: { tool_calls: 3 } }\n";

fn message(id: u64, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

impl Stage {
    /// Answer to a call of a tool by MCP, with the number of its request.
    async fn calls_tool(&self, number: &str, name: &str, arguments: Value) -> (String, bool) {
        let call = json!({ "name": name, "arguments": arguments });
        let text = self.mcp(number, "tools/call", &call).await;
        let text: Value = serde_json::from_str(&text.expect("whole")).expect("JSON");
        let result = &text["result"];
        let told = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{text}"));
        (told.to_owned(), result["isError"] == true)
    }

    async fn mcp(&self, number: &str, method: &str, params: &Value) -> Result<String, String> {
        let message = message(1, method, params);
        whole(self.machine.sends_numbered("/mcp", number, &message).await).await.1
    }
}

#[tokio::test]
async fn a_program_has_the_tools_of_its_execution_and_each_call_is_made_once_and_counted() {
    let (mut stage, id) = Stage::with_program(TOOLS).await;
    let told = stage.mcp("", "initialize", &json!({ "protocolVersion": "2025-03-26" })).await;
    assert!(told.expect("whole").contains("\"protocolVersion\":\"2025-03-26\""));
    let listed = stage.mcp("", "tools/list", &json!({})).await.expect("whole");
    assert!(
        listed.contains("fs_read") && listed.contains("fs_write") && !listed.contains("cmd_run")
    );
    for (method, code) in [("resources/list", "-32601"), ("tools/call", "-32602")] {
        assert!(stage.mcp("", method, &json!({})).await.expect("whole").contains(code), "{method}");
    }
    let (status, body) = whole(stage.machine.sends("/mcp", "{").await).await;
    assert!(status == 200 && body.expect("whole").contains("-32700"));
    let notice = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string();
    assert_eq!(whole(stage.machine.sends("/mcp", &notice).await).await, (202, Ok(String::new())));

    for _ in 0..2 {
        let (text, failed) = stage.calls_tool("p-1", "fs_write", json!({ "n": 1 })).await;
        assert!(text.contains("fs.write") && !failed, "{text}");
    }
    assert_eq!(stage.children.calls("fs.write"), 1, "the same request is one call");
    let (text, failed) = stage.calls_tool("p-2", "cmd_run", json!({})).await;
    assert!(failed && text.contains("agent_tool_unknown"), "{text}");
    // A daemon that dies in a call knows of it, and makes it no second time.
    let machine = stage.machine.clone();
    let call = message(7, "tools/call", &json!({ "name": "hold" }));
    let cut =
        tokio::spawn(
            async move { whole(machine.sends_numbered("/mcp", "p-3", &call).await).await },
        );
    eventually("it is called", async || stage.children.calls("hold") == 1).await;
    stage.rig = stage.rig.crashed().await;
    cut.abort();
    let (text, failed) = stage.calls_tool("p-3", "hold", json!({})).await;
    assert!(failed && text.contains("whether it took effect is not known"), "{text}");
    assert_eq!(stage.children.calls("hold"), 1);
    // The fourth is beyond the budget: it is held.
    let (made, _) = tokio::join!(stage.calls_tool("p-4", "fs_read", json!({})), async {
        let status = async || stage.good("aegis.task.status", json!({ "execution_id": id })).await;
        eventually("it waits", async || status().await["waiting_for"] == "budget").await;
        assert_eq!(stage.children.calls("fs.read"), 0);
        stage
            .good("agent_continue", json!({ "execution_id": id, "budget": { "tool_calls": 1 } }))
            .await
    });
    assert!(!made.1, "{made:?}");
    stage.machine.finish(exited(0), SAID, "").await;
    let end = stage.end(&id).await;
    assert_eq!((&end["status"], &end["last_output"]), (&json!("completed"), &json!("Mended.")));
    let events = stage.program_events(&id).await;
    let count = |kind: &str| events.iter().filter(|event| event["event_type"] == kind).count();
    let (called, done) = (count("program_called"), count("tool_invocation_completed"));
    assert_eq!((called, done, count("tool_invocation_interrupted")), (4, 2, 1));
}

#[tokio::test]
async fn a_call_that_was_begun_before_a_bound_is_made_once() {
    let bound = "  tools: [hold]\n  execution: { budget: { tokens: 40 } }\n";
    let (mut stage, id) = Stage::with_program(bound).await;
    stage.machine.play(|_, _| RelayPlay::Whole(&["one ", "two"]));
    let call = message(7, "tools/call", &json!({ "name": "hold" }));
    let machine = stage.machine.clone();
    let cut =
        tokio::spawn(
            async move { whole(machine.sends_numbered("/mcp", "p-1", &call).await).await },
        );
    eventually("it is called", async || stage.children.calls("hold") == 1).await;
    assert_eq!(stage.asks("a").await.0, 200);
    let (machine, long) = (stage.machine.clone(), body(&"c".repeat(30)));
    let held = tokio::spawn(async move { machine.sends(PATH, &long).await });
    stage.waits_for(&id, "budget").await;
    stage.rig = stage.rig.crashed().await;
    cut.abort();
    held.abort();
    stage.continued(&id, json!({ "budget": { "tokens": 500 } })).await;
    let twice = eventually("it is made", async || stage.children.calls("hold") == 2);
    let (text, failed) = tokio::select! {
        told = stage.calls_tool("p-1", "hold", json!({})) => told,
        () = twice => panic!("it is made twice"),
    };
    assert!(failed && text.contains("whether it took effect is not known"), "{text}");
    stage.machine.finish(exited(0), SAID, "").await;
    assert_eq!(stage.end(&id).await["status"], "completed");
}

#[tokio::test]
async fn a_call_of_a_program_is_judged_before_it_is_made() {
    let (stage, id) = Stage::with_program(
        "  tools: [fs.write]\n  execution:\n    tool_validation:\n    \
         - { type: semantic, judge_agent: tool-call-judge, criteria: None. }\n",
    )
    .await;
    stage.models.answer(|_| says(r#"{ "score": 0.1, "confidence": 1, "reasoning": "Bad." }"#, &[]));
    let (text, failed) = stage.calls_tool("p-1", "fs_write", json!({ "n": 1 })).await;
    assert!(failed && text.contains("call_rejected") && text.contains("Bad."), "{text}");
    assert_eq!(stage.children.calls("fs.write"), 0);
    stage.machine.finish(exited(0), SAID, "").await;
    assert_eq!(stage.end(&id).await["status"], "completed");
}
