//! Programs that speak the Agent Client Protocol: a whole life, daemons that die at any record, and programs that do not
//! keep to it.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hivekeep_kernel::{CallCx, ExecutionId, JobId, Layer, ToolError, WorkspaceId, lock};
use hivekeep_ports::{
    CommandEnd, CommandLimits, CommandRunner, CommandSpec, EntryPoint, PlaceProcess, ProcessOutput,
    ProcessSpan, ProcessSpec, ProcessState, ProcessWindow, TerminalSize,
};
use hivekeep_runtime::log;
use hivekeep_testkit::eventually;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    Stage,
    fakes::says,
    machine::{RelayPlay, whole},
    tasks::write,
};
use crate::execution::state::{ExecutionState, Record};

/// Frames that a program says to one of ours.
type Script = dyn Fn(&Value) -> Vec<Value> + Send + Sync;

struct FakeProcess {
    shown: PlaceProcess,
    input: Vec<u8>,
    read: usize,
    output: Vec<u8>,
}

/// Machine whose processes are scripts. It outlives a daemon. Cheap to clone.
#[derive(Clone)]
pub(super) struct FakePrograms(Arc<ProgramsState>);

struct ProgramsState {
    processes: Mutex<Vec<FakeProcess>>,
    script: Mutex<Option<Arc<Script>>>,
    news: watch::Sender<u64>,
}

impl Default for FakePrograms {
    fn default() -> Self {
        let (processes, script) = Default::default();
        Self(Arc::new(ProgramsState { processes, script, news: watch::channel(0).0 }))
    }
}

impl FakePrograms {
    fn play(&self, script: impl Fn(&Value) -> Vec<Value> + Send + Sync + 'static) {
        *lock(&self.0.script) = Some(Arc::new(script));
    }

    /// Frames that the last process got.
    fn heard(&self) -> Vec<Value> {
        let processes = lock(&self.0.processes);
        let input = processes.last().map(|one| one.input.clone()).unwrap_or_default();
        let lines = input.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).expect("a frame")).collect()
    }

    /// Methods of our requests to the last process.
    fn asked(&self) -> Vec<String> {
        let heard = self.heard().into_iter();
        heard.filter_map(|frame| Some(frame["method"].as_str()?.to_owned())).collect()
    }

    fn processes(&self) -> Vec<PlaceProcess> {
        lock(&self.0.processes).iter().map(|one| one.shown.clone()).collect()
    }

    /// Has the last process say something.
    fn says(&self, frame: &Value) {
        let mut processes = lock(&self.0.processes);
        let last = processes.last_mut().expect("a process");
        last.output.extend(format!("{frame}\n").bytes());
        drop(processes);
        self.0.news.send_modify(|count| *count += 1);
    }

    /// Has the first process go on with what it had said, and no other.
    fn runs_again(&self) {
        for (nth, one) in lock(&self.0.processes).iter_mut().enumerate() {
            let ended = ProcessState::Signalled(15);
            one.shown.state = if nth == 0 { ProcessState::Running } else { ended };
        }
    }

    fn ends(&self) {
        lock(&self.0.processes).last_mut().expect("one").shown.state = ProcessState::Exited(1);
        self.0.news.send_modify(|count| *count += 1);
    }
}

#[async_trait]
impl CommandRunner for FakePrograms {
    async fn run(
        &self,
        _: &CallCx,
        _: WorkspaceId,
        _: CommandSpec,
        _: CommandLimits,
    ) -> Result<CommandEnd, ToolError> {
        Err(ToolError::internal("nobody waits"))
    }

    async fn entry_point(&self, _: &CallCx, _: WorkspaceId) -> Result<EntryPoint, ToolError> {
        Err(ToolError::internal("there is none"))
    }

    async fn start(
        &self,
        _: &CallCx,
        workspace: WorkspaceId,
        process: ProcessSpec,
    ) -> Result<PlaceProcess, ToolError> {
        let shown = PlaceProcess {
            id: JobId::new(),
            workspace,
            place: process.place,
            argv: process.command.argv,
            workdir: process.command.workdir,
            terminal: false,
            pid: 1,
            started_unix_ms: 0,
            state: ProcessState::Running,
            ended_unix_ms: None,
        };
        let (input, output) = Default::default();
        let process = FakeProcess { shown: shown.clone(), input, read: 0, output };
        lock(&self.0.processes).push(process);
        Ok(shown)
    }

    async fn processes(&self, _: &CallCx) -> Vec<PlaceProcess> {
        self.processes()
    }

    async fn output(
        &self,
        cx: &CallCx,
        id: JobId,
        window: ProcessWindow,
    ) -> Result<ProcessOutput, ToolError> {
        let mut news = self.0.news.subscribe();
        loop {
            {
                let processes = lock(&self.0.processes);
                let one = processes.iter().find(|one| one.shown.id == id).expect("a process");
                let from =
                    usize::try_from(window.stdout_from).expect("small").min(one.output.len());
                let bytes = one.output[from..].to_vec();
                if !bytes.is_empty() || one.shown.state != ProcessState::Running {
                    let end = one.output.len() as u64;
                    let from = from as u64;
                    let stdout = ProcessSpan { from, bytes, end, total_bytes: end };
                    let stderr = ProcessSpan::default();
                    return Ok(ProcessOutput { process: one.shown.clone(), stdout, stderr });
                }
            }
            // As the dispatcher does: the end goes first.
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(cx.deadline) => {
                    return Err(ToolError::deadline(Layer::Actor, 60));
                }
                told = news.changed() => told.expect("it is held"),
            }
        }
    }

    async fn input(
        &self,
        _: &CallCx,
        id: JobId,
        bytes: Vec<u8>,
        _: bool,
    ) -> Result<(u64, bool), ToolError> {
        let script = lock(&self.0.script).clone().expect("a script");
        let mut processes = lock(&self.0.processes);
        let one = processes.iter_mut().find(|one| one.shown.id == id).expect("a process");
        if one.shown.state != ProcessState::Running {
            return Err(ToolError::internal("it has ended"));
        }
        one.input.extend(&bytes);
        while let Some(end) = one.input[one.read..].iter().position(|byte| *byte == b'\n') {
            let line = &one.input[one.read..one.read + end];
            let frame: Value = serde_json::from_slice(line).expect("a whole frame");
            one.read += end + 1;
            for said in script(&frame) {
                one.output.extend(format!("{said}\n").bytes());
            }
        }
        drop(processes);
        self.0.news.send_modify(|count| *count += 1);
        Ok((bytes.len() as u64, false))
    }

    async fn resize(&self, _: &CallCx, _: JobId, _: TerminalSize) -> Result<(), ToolError> {
        Err(ToolError::internal("it has no terminal"))
    }

    async fn signal(
        &self,
        _: &CallCx,
        _: JobId,
        _: i32,
    ) -> Result<(PlaceProcess, bool), ToolError> {
        Err(ToolError::internal("nobody signals"))
    }

    async fn stop(
        &self,
        cx: &CallCx,
        id: JobId,
        _: std::time::Duration,
    ) -> Result<(PlaceProcess, bool), ToolError> {
        if cx.cancel.is_cancelled() {
            return Err(ToolError::cancelled());
        }
        let mut processes = lock(&self.0.processes);
        let one = processes.iter_mut().find(|one| one.shown.id == id).expect("a process");
        one.shown.state = ProcessState::Signalled(15);
        let shown = one.shown.clone();
        drop(processes);
        self.0.news.send_modify(|count| *count += 1);
        Ok((shown, false))
    }
}

const NOT_LOADING: fn(&Value) -> Vec<Value> = |frame| greeting(frame, false);

fn result(frame: &Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": frame["id"], "result": result })
}

fn request(id: &str, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn update(update: Value) -> Value {
    let params = json!({ "sessionId": "s", "update": update });
    json!({ "jsonrpc": "2.0", "method": "session/update", "params": params })
}

fn piece(text: &str) -> Value {
    let content = json!({ "type": "text", "text": text });
    update(json!({ "sessionUpdate": "agent_message_chunk", "content": content }))
}

fn greeting(frame: &Value, loads: bool) -> Vec<Value> {
    match frame["method"].as_str() {
        Some("initialize") => {
            let can = json!({ "loadSession": loads });
            vec![result(frame, json!({ "protocolVersion": 1, "agentCapabilities": can }))]
        }
        Some("session/new") => vec![result(frame, json!({ "sessionId": "s" }))],
        Some("session/load") => vec![piece("said before"), result(frame, json!({}))],
        _ => Vec::new(),
    }
}

/// Program that writes a file when it may, and says so.
fn worker(frame: &Value) -> Vec<Value> {
    let answered = |id: &str| frame["id"] == id && frame.get("method").is_none();
    match frame["method"].as_str() {
        Some("session/prompt") => {
            let options = json!([
                { "optionId": "always", "name": "Always", "kind": "allow_always" },
                { "optionId": "yes", "name": "Yes", "kind": "allow_once" },
                { "optionId": "no", "name": "No", "kind": "reject_once" },
            ]);
            let call = json!({ "toolCallId": "t", "title": "Write a.txt", "kind": "edit" });
            let params = json!({ "sessionId": "s", "toolCall": call, "options": options });
            let begun =
                json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "title": "Write a.txt" });
            vec![
                piece("I "),
                piece("write."),
                update(begun),
                request("p", "session/request_permission", params),
            ]
        }
        None if answered("p") => {
            let path = if frame["result"]["outcome"]["optionId"] == "yes" {
                "/workspace/a.txt"
            } else {
                "/etc/passwd"
            };
            let params = json!({ "sessionId": "s", "path": path, "content": "a" });
            vec![request("w", "fs/write_text_file", params)]
        }
        None if answered("w") => {
            let how = if frame.get("error").is_some() { "refused" } else { "done" };
            let end = json!({ "jsonrpc": "2.0", "id": 2, "result": { "stopReason": "end_turn" } });
            vec![piece("It is "), piece(how), end]
        }
        _ => greeting(frame, true),
    }
}

impl Stage {
    /// A stage with an agent whose program speaks the protocol, and an execution of it.
    async fn with_acp(
        script: impl Fn(&Value) -> Vec<Value> + Send + Sync + 'static,
    ) -> (Self, String) {
        Self::bounded_acp("", script).await
    }

    async fn bounded_acp(
        bound: &str,
        script: impl Fn(&Value) -> Vec<Value> + Send + Sync + 'static,
    ) -> (Self, String) {
        let stage = Self::for_acp().await;
        stage.machine.programs().play(script);
        let text = "apiVersion: 100monkeys.ai/v1\nkind: Agent\nmetadata: { name: talker, version: 1.0.0 }\nspec:\n  \
            runtime: { language: python, version: '3.11', command: { argv: [talker], wire: responses, protocol: acp } }\n  \
            task: { instruction: Write a file. }\n  tools: [fs.read]\n";
        stage.good("create", json!({ "manifest_yaml": format!("{text}{bound}") })).await;
        let started = stage.good("aegis.task.execute", json!({ "agent_id": "talker" })).await;
        (stage, started["execution_id"].as_str().expect("an id").to_owned())
    }

    async fn for_acp() -> Self {
        let stage = Self::new(["fs.read", "fs.write", "agent_permit"].map(str::to_owned)).await;
        stage.models.answer(|_| says("", &[]));
        stage
    }

    async fn failed(script: impl Fn(&Value) -> Vec<Value> + Send + Sync + 'static) -> Value {
        let (stage, id) = Self::with_acp(script).await;
        let end = stage.end(&id).await;
        assert_eq!(end["status"], "failed", "{end}");
        eventually("it is ended", async || {
            stage
                .machine
                .programs()
                .processes()
                .iter()
                .all(|one| one.state != ProcessState::Running)
        })
        .await;
        end["error_code"].clone()
    }
}

#[tokio::test]
async fn a_program_is_prompted_permitted_and_its_last_words_are_the_result() {
    let (stage, id) = Stage::with_acp(worker).await;
    let end = stage.end(&id).await;
    assert_eq!((&end["status"], &end["last_output"]), (&json!("completed"), &json!("It is done")));
    let programs = stage.machine.programs();
    assert_eq!(programs.asked(), ["initialize", "session/new", "session/prompt"]);
    let heard = programs.heard();
    assert_eq!(heard[0]["params"]["clientCapabilities"]["fs"]["readTextFile"], true, "{heard:?}");
    let server = &heard[1]["params"]["mcpServers"][0];
    assert_eq!(
        (&server["command"], &server["args"][0]),
        (&json!("/run/hivekeep/guest"), &json!("mcp"))
    );
    assert_eq!(heard[2]["params"]["prompt"][0]["text"], "Write a file.");
    let process = &programs.processes()[0];
    assert!(process.argv[2].contains("exec 'talker'"), "{:?}", process.argv);
    assert_eq!((stage.children.calls("agent_permit"), stage.children.calls("fs.write")), (1, 1));
    let logs = json!({ "execution_id": id, "limit": 200 });
    let events = stage.good("aegis.task.logs", logs).await;
    let events = events["events"].as_array().expect("events").clone();
    let told = events.iter().filter(|event| event["event_type"] == "program_update");
    let told: Vec<_> = told.map(|event| event["payload"]["content"]["text"].clone()).collect();
    assert_eq!(told, [json!("I write."), json!(null), json!("It is done")]);
    let message = json!({ "execution_id": id, "message": "x" });
    assert_eq!(stage.refused("agent_continue", message).await.code, "run_over");
}

#[tokio::test]
async fn a_daemon_that_dies_at_any_record_goes_on_with_the_process_and_prompts_once() {
    let (stage, id) = Stage::with_acp(worker).await;
    assert_eq!(stage.end(&id).await["status"], "completed");
    let parsed: ExecutionId = id.parse().expect("an id");
    let stream = log::stream::<ExecutionState>(parsed).expect("a name");
    let closed = async || {
        let records = log::read_records::<ExecutionState>(&stage.rig.daemon.journal, &stream).await;
        matches!(records.expect("read").last(), Some(Record::Closed { .. }))
    };
    eventually("its session ends", closed).await;
    let journal = &stage.rig.daemon.journal;
    let records = log::read_records::<ExecutionState>(journal, &stream).await.expect("read");
    let prompted = |records: &[Record]| {
        let is =
            |record: &Record| serde_json::to_string(record).expect("JSON").contains("\"prompted\"");
        records.iter().any(|record| is(record) && matches!(record, Record::Acp { .. }))
    };
    for kept in 1..=records.len() {
        let again = Stage::for_acp().await;
        // The machine is the same: its process goes on.
        let programs = stage.machine.programs();
        again.machine.adopt(&programs);
        let before = programs.processes().len();
        programs.play(worker);
        programs.runs_again();
        write(&again, parsed, &records[..kept]).await;
        let again = Stage { rig: again.rig.crashed().await, ..again };
        let status =
            async || again.as_operator("aegis.task.status", json!({ "execution_id": id })).await;
        eventually("it is over", async || {
            status().await.is_ok_and(|state| state["status"] == "completed")
        })
        .await;
        let output = status().await.expect("there")["last_output"].clone();
        assert_eq!(output, "It is done", "at {kept}");
        let started = programs.processes().len() - before;
        let needed = !prompted(&records[..kept]);
        assert_eq!(started, usize::from(needed), "no process in place of one that goes on: {kept}");
    }
}

#[tokio::test]
async fn a_program_that_died_loads_its_session_or_fails() {
    let dies = |frame: &Value| match frame["method"].as_str() {
        Some("session/prompt") => vec![piece("I begin.")],
        _ => greeting(frame, true),
    };
    let (stage, id) = Stage::with_acp(dies).await;
    let programs = stage.machine.programs();
    eventually("it is prompted", async || programs.asked().len() == 3).await;
    programs.play(worker);
    programs.ends();
    let end = stage.end(&id).await;
    assert_eq!((&end["status"], &end["last_output"]), (&json!("completed"), &json!("It is done")));
    assert_eq!(programs.asked(), ["initialize", "session/load", "session/prompt"]);
    let prompt = programs.heard()[2]["params"]["prompt"][0]["text"].clone();
    let prompt = prompt.as_str().expect("a text");
    assert!(prompt.contains("started again") && prompt.contains("Write a file."), "{prompt}");

    let (stage, id) = Stage::with_acp(NOT_LOADING).await;
    let programs = stage.machine.programs();
    eventually("it is prompted", async || programs.asked().len() == 3).await;
    programs.ends();
    assert_eq!(stage.end(&id).await["error_code"], "program_failed");
    assert_eq!(programs.processes().len(), 1);
}

#[tokio::test]
async fn a_cancelled_execution_ends_its_process() {
    let (stage, id) = Stage::with_acp(NOT_LOADING).await;
    let programs = stage.machine.programs();
    eventually("it is prompted", async || programs.asked().len() == 3).await;
    stage.good("aegis.task.cancel", json!({ "execution_id": id })).await;
    let ended = async || programs.processes()[0].state != ProcessState::Running;
    eventually("it is ended", ended).await;
    assert_eq!(stage.end(&id).await["status"], "cancelled");
}

#[tokio::test]
async fn a_program_that_does_not_keep_to_the_protocol_is_a_typed_end() {
    let other = |frame: &Value| match frame["method"].as_str() {
        Some("initialize") => vec![result(frame, json!({ "protocolVersion": 2 }))],
        _ => Vec::new(),
    };
    assert_eq!(Stage::failed(other).await, "program_protocol");
    let long = |frame: &Value| match frame["method"].as_str() {
        Some("session/prompt") => vec![json!("x".repeat(1 << 20))],
        _ => greeting(frame, false),
    };
    assert_eq!(Stage::failed(long).await, "program_protocol");
    let junk = |frame: &Value| match frame["method"].as_str() {
        Some("session/prompt") => vec![json!([]); 101],
        _ => greeting(frame, false),
    };
    assert_eq!(Stage::failed(junk).await, "program_protocol");
    let refuses = |frame: &Value| match frame["method"].as_str() {
        Some("session/new") => {
            let error = json!({ "code": -32000, "message": "log in first" });
            vec![json!({ "jsonrpc": "2.0", "id": frame["id"], "error": error })]
        }
        _ => greeting(frame, false),
    };
    assert_eq!(Stage::failed(refuses).await, "program_failed");
    for (reason, code) in [
        ("refusal", "model_refused"),
        ("max_tokens", "answer_cut_short"),
        ("max_turn_requests", "turns_exhausted"),
        ("cancelled", "program_failed"),
    ] {
        let ends = move |frame: &Value| match frame["method"].as_str() {
            Some("session/prompt") => vec![result(frame, json!({ "stopReason": reason }))],
            _ => greeting(frame, false),
        };
        assert_eq!(Stage::failed(ends).await, code);
    }
}

#[tokio::test]
async fn what_a_program_asks_for_is_answered_in_bounds_while_a_person_decides() {
    let asks = |frame: &Value| match frame["method"].as_str() {
        Some("session/prompt") => {
            let call = json!({ "toolCallId": "t", "title": "hold", "kind": "execute" });
            let option = json!([{ "optionId": "no", "name": "No", "kind": "reject_once" }]);
            let params = json!({ "sessionId": "s", "toolCall": call, "options": option });
            let ask = |nth: usize| {
                request(&nth.to_string(), "session/request_permission", params.clone())
            };
            let mut all: Vec<_> = (0..17).map(ask).collect();
            all.push(request("t", "terminal/create", json!({})));
            all
        }
        _ => greeting(frame, false),
    };
    let (stage, id) = Stage::with_acp(asks).await;
    let programs = stage.machine.programs();
    let answers = || {
        let heard = programs.heard().into_iter();
        heard.filter(|frame| frame.get("method").is_none()).collect::<Vec<_>>()
    };
    eventually("the last are refused", async || answers().len() == 2).await;
    assert_eq!(answers()[0]["error"]["code"], -32603, "no more than are answered at a time");
    eventually("they wait", async || stage.children.calls("agent_permit") == 16).await;
    stage.children.release();
    eventually("the others are answered", async || answers().len() == 18).await;
    let outcome = &answers()[2]["result"]["outcome"];
    assert_eq!(outcome["outcome"], "cancelled", "it may, and the program offers no such option");
    programs.says(&json!({ "jsonrpc": "2.0", "id": 2, "result": { "stopReason": "end_turn" } }));
    assert_eq!(stage.end(&id).await["status"], "completed");
}

#[tokio::test]
async fn a_program_goes_on_after_a_standstill_that_is_longer_than_any_call() {
    let bound = "  execution: { budget: { tokens: 40 } }\n";
    let (stage, id) = Stage::bounded_acp(bound, NOT_LOADING).await;
    let programs = stage.machine.programs();
    eventually("it has its task", async || {
        programs.asked().last().is_some_and(|it| it == "session/prompt")
    })
    .await;
    stage.machine.play(|_, _| RelayPlay::Whole(&["one ", "two"]));
    let machine = stage.machine.clone();
    let long = json!({ "model": "m", "input": "c".repeat(90) }).to_string();
    let held =
        tokio::spawn(async move { whole(machine.sends("/v1/responses", &long).await).await });
    stage.waits_for(&id, "budget").await;
    eventually("it stands still", async || stage.machines.is_halted()).await;
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(300)).await;
    tokio::time::resume();
    stage.continued(&id, json!({ "budget": { "tokens": 500 } })).await;
    assert_eq!(held.await.expect("answered").0, 200);
    let end = json!({ "jsonrpc": "2.0", "id": 2, "result": { "stopReason": "end_turn" } });
    programs.says(&piece("Done."));
    programs.says(&end);
    let over = stage.end(&id).await;
    assert_eq!((&over["status"], &over["last_output"]), (&json!("completed"), &json!("Done.")));
    assert_eq!(programs.processes().len(), 1);
}
