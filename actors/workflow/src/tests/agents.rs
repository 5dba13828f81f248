//! Programs and models in steps: executions that are begun once for their ids and outlive daemons, and a model
//! that says what it is asked.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use hivekeep_kernel::{CallCx, ExecutionId, Layer, ToolError, codes, lock};
use hivekeep_plan::{
    plan::NodeIndex,
    progress::{NodeOutcome, NodePhase, RunOutcome::*},
};
use hivekeep_ports::{
    ConfiguredModel, EmbedRequest, Embeddings, ExecutionOrder, ExecutionResult, Executions,
    ModelAnswer, ModelMessage, ModelRequest, ModelSource, ModelStop, ModelStream, ModelToolCall,
    ModelUsage, ModelUse, Models, OrderedAgent, OrderedProgram,
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};

use super::{ALL, Stage};
use crate::run::RunFold;

/// Executions of programs. A prompt `hold` waits until it is released or cancelled, `fail` fails, and all others are
/// said again.
#[derive(Clone, Default)]
pub(super) struct FakeAgents(Arc<AgentsWorld>);

#[derive(Default)]
struct AgentsWorld {
    orders: Mutex<BTreeMap<ExecutionId, ExecutionOrder>>,
    /// Number of calls to begin one, those that were refused among them.
    asked: Mutex<usize>,
    cancelled: Mutex<Vec<ExecutionId>>,
    /// True for the prompts that wait.
    released: watch::Sender<bool>,
    questions: Mutex<Vec<ModelRequest>>,
    /// Tools that a model calls, by the number of its answers before; without any more it calls none.
    calls: Mutex<Vec<(String, Value)>>,
}

impl FakeAgents {
    fn programs(&self) -> Vec<OrderedProgram> {
        let orders = lock(&self.0.orders);
        let program = |order: &ExecutionOrder| match &order.agent {
            OrderedAgent::Program(program) => (**program).clone(),
            other => panic!("{other:?}"),
        };
        orders.values().map(program).collect()
    }

    fn prompts(&self) -> Vec<Value> {
        lock(&self.0.orders).values().map(|order| order.input["prompt"].clone()).collect()
    }

    /// Has models that are offered tools call these, one behind the other.
    pub(super) fn call(&self, calls: &[(&str, Value)]) {
        *lock(&self.0.calls) =
            calls.iter().map(|(n, args)| ((*n).to_owned(), args.clone())).collect();
    }

    pub(super) fn questions(&self) -> Vec<ModelRequest> {
        lock(&self.0.questions).clone()
    }
}

#[async_trait]
impl Executions for FakeAgents {
    async fn begin(&self, _: &CallCx, order: ExecutionOrder) -> Result<(), ToolError> {
        *lock(&self.0.asked) += 1;
        if let OrderedAgent::Program(program) = &order.agent
            && program.program == "missing"
        {
            return Err(ToolError::foreign(Layer::Actor, "program_unknown", "no such program"));
        }
        if *lock(&self.0.asked) == 1 {
            let full = ToolError::new(Layer::Quota, codes::TOO_MANY_RUNS, "as many as may");
            return Err(full.retryable());
        }
        lock(&self.0.orders).entry(order.id).or_insert(order);
        Ok(())
    }

    async fn ended(&self, id: ExecutionId) -> Result<ExecutionResult, ToolError> {
        let order = lock(&self.0.orders).get(&id).cloned();
        let missing = || ToolError::foreign(Layer::Actor, "execution_not_found", "not there");
        let order = order.ok_or_else(missing)?;
        let prompt = order.input["prompt"].as_str().expect("a prompt").to_owned();
        if prompt == "write" {
            let OrderedAgent::Program(program) = &order.agent else { panic!("{order:?}") };
            std::fs::create_dir_all(&program.home).expect("made");
            std::fs::write(&program.env["DAGU_OUTPUT_FILE"], "y=it is\n").expect("written");
        }
        if prompt == "hold" {
            let mut released = self.0.released.subscribe();
            released.wait_for(|released| *released).await.expect("it is held");
        }
        if lock(&self.0.cancelled).contains(&id) {
            return Ok(ExecutionResult::Cancelled);
        }
        Ok(match prompt.as_str() {
            "fail" => {
                ExecutionResult::Failed { error: ToolError::invalid("no luck"), judged: None }
            }
            _ => ExecutionResult::Completed { output: prompt, judged: None },
        })
    }

    async fn cancel(&self, id: ExecutionId) -> Result<bool, ToolError> {
        if !lock(&self.0.orders).contains_key(&id) {
            return Err(ToolError::foreign(Layer::Actor, "execution_not_found", "not there"));
        }
        lock(&self.0.cancelled).push(id);
        self.0.released.send_replace(true);
        Ok(true)
    }
}

#[async_trait]
impl Models for FakeAgents {
    fn configured(&self) -> Vec<ConfiguredModel> {
        Vec::new()
    }

    fn resolve(&self, _: &str, _: ModelUse) -> Result<Vec<ModelSource>, ToolError> {
        Ok(Vec::new())
    }

    fn worst_case(&self, _: &ModelRequest) -> Result<ModelUsage, ToolError> {
        Ok(ModelUsage::default())
    }

    fn stream(&self, request: ModelRequest) -> Result<ModelStream, ToolError> {
        lock(&self.0.questions).push(request.clone());
        if request.model == "down/m" {
            return Err(ToolError::foreign(Layer::Actor, "llm_unavailable", "it is down"));
        }
        let (_, deltas) = mpsc::channel(1);
        let (end, answer) = oneshot::channel();
        let before = |it: &&ModelMessage| matches!(it, ModelMessage::Assistant { .. });
        let before = request.messages.iter().filter(before).count();
        let called = lock(&self.0.calls).get(before).cloned().filter(|_| !request.tools.is_empty());
        let call = called.filter(|(name, _)| !name.is_empty()).map(|(name, arguments)| {
            ModelToolCall { id: format!("c{before}"), name, arguments, signature: None }
        });
        let text = match request.messages.last() {
            Some(ModelMessage::User(text)) => text.clone(),
            _ => String::new(),
        };
        let stop = if text == "cut" || request.model == "cut/m" {
            ModelStop::MaxTokens
        } else {
            ModelStop::End
        };
        let _the_asker_may_have_gone = end.send(Ok(ModelAnswer {
            source: ModelSource {
                provider: "fake".to_owned(),
                provider_kind: "scripted",
                model: request.model.clone(),
            },
            text: format!("{{\"said\": \"{text}\"}}"),
            calls: call.into_iter().collect(),
            structured: None,
            stop,
            usage: ModelUsage::default(),
            attempts: 1,
            failed: Vec::new(),
        }));
        Ok(ModelStream::new(deltas, answer))
    }

    async fn embed(&self, _: EmbedRequest) -> Result<Embeddings, ToolError> {
        Err(ToolError::internal("nothing is embedded"))
    }
}

fn error(run: &RunFold) -> String {
    let found = run.left.values().find_map(|left| left.error.clone());
    found.map(|error| error.message).unwrap_or_default()
}

#[tokio::test]
async fn a_program_is_a_step_and_its_text_the_steps_output() {
    let stage = Stage::new().await;
    let text = r#"
type: chain
working_dir: .
params: [{ name: who, default: claude }]
harness: { provider: codex, model: gpt, fallback: [{ provider: missing }] }
steps:
- id: x
  action: harness.run
  env: [{ TOKEN: t }]
  with: { prompt: '{"y": "a ''b''"}', stdin: "", provider: "${params.who}", yolo: true, max_turns: 3, zone: [a, b], zz: false, fallback: [] }
  stdout: { outputs: { decode: json } }
  timeout_sec: 60
- id: z
  action: harness.run
  with: { prompt: write, provider: codex }
  outputs: [{ name: y }]
- { id: end, run: "printf '%s %s' '${x.outputs.y}' '${steps.z.outputs.y}' > y" }
"#;
    let text = text.replace("a ''b''", "ab");
    let run = stage.ran(&text, Value::Null).await;
    assert_eq!(run.outcome(), Some(Succeeded), "{:#?}", run.left);
    assert_eq!(stage.file("y").as_deref(), Some("ab it is"));
    let programs = stage.agents.programs();
    let program = programs.iter().find(|it| it.program == "claude").expect("it is begun");
    let names = (program.program.as_str(), program.model.as_deref(), program.place.as_str());
    assert_eq!(names, ("claude", Some("gpt"), "here"));
    assert_eq!(program.arguments, ["--max-turns", "3", "--zone", "a", "--zone", "b"]);
    assert_eq!((program.folder.as_str(), program.env["TOKEN"].as_str()), (".", "t"));
    assert!(program.home.starts_with(&stage.guest.scratch()), "{}", program.home);
    assert_eq!(program.root, stage.guest.folder().display().to_string());
}

#[tokio::test]
async fn others_stand_in_for_a_program_that_fails_and_what_is_not_obeyed_is_refused() {
    let stage = Stage::new().await;
    let own = "harnesses:\n  echo: { binary: sh, prefix_args: [-c, 'cat; printf %s \"$*\"', sh], prompt_mode: flag, \
        prompt_flag: -p, flag_style: single_dash, option_flags: { model: --as } }\n  \
        in: { binary: cat, prompt_mode: stdin }\n";
    for (with, outcome, wanted) in [
        ("prompt: hi, provider: codex", Succeeded, "hi"),
        ("prompt: hi, provider: missing, fallback: [{ provider: claude }]", Succeeded, "hi"),
        ("prompt: hi, provider: codex, stdin: more", Succeeded, "hi\n\nmore"),
        ("prompt: fail, provider: codex, fallback: [{ provider: in }]", Succeeded, "fail"),
        (
            "prompt: \"it's\", provider: echo, model: m, x: 1, stdin: in",
            Succeeded,
            "in-p it's --as m -x 1",
        ),
        ("prompt: a, provider: in, stdin: b", Succeeded, "a\n\nb"),
        ("prompt: fail, provider: codex", Failed, "no luck"),
        ("prompt: hi, provider: missing", Failed, "no such program"),
        ("prompt: hi", Failed, "`provider` names no program"),
        ("prompt: hi, provider: codex, yolo: false", Failed, "`yolo` cannot be obeyed"),
        ("prompt: hi, provider: opencode, managed: true", Failed, "`managed` cannot be obeyed"),
        ("prompt: hi, provider: codex, x: { y: 1 }", Failed, "`x` cannot be obeyed"),
        ("prompt: hi, provider: codex, fallback: [claude]", Failed, "is a list of"),
    ] {
        let text = format!(
            "{own}working_dir: .\nsteps: [{{ id: a, action: harness.run, with: {{ {with} }}, output: OUT }}]"
        );
        let run = stage.ran(&text, Value::Null).await;
        let said = run.left.values().find_map(|left| left.variables.get("OUT").cloned());
        assert_eq!(run.outcome(), Some(outcome), "{with}: {:#?}", run.left);
        match outcome {
            Succeeded => assert_eq!(said.as_deref(), Some(wanted), "{with}"),
            _ => assert!(error(&run).contains(wanted), "{with}: {}", error(&run)),
        }
    }
    let text = "steps: [{ id: a, action: harness.run, stdout: file, with: { prompt: a, provider: codex } }]";
    assert!(stage.refusal(text).await.contains("`stdout` as a file"));
}

#[tokio::test]
async fn a_program_is_begun_once_whatever_dies_and_cancelled_with_its_step() {
    let mut stage = Stage::new().await;
    let text = "working_dir: .\nsteps: [{ id: a, action: harness.run, with: { prompt: hold, provider: codex } }, { run: touch b }]";
    let id = stage.begin(text, Value::Null).await.expect("begun");
    for _ in 0..2 {
        while stage.agents.prompts().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stage.rig = stage.rig.crashed().await;
    }
    stage.agents.0.released.send_replace(true);
    assert_eq!(stage.over(id).await.outcome(), Some(Succeeded));
    assert_eq!(stage.agents.prompts(), [json!("hold")]);
    assert!(*lock(&stage.agents.0.asked) >= 3, "each daemon asked for it");

    stage.agents.0.released.send_replace(false);
    let id = stage.begin(text, Value::Null).await.expect("begun");
    while stage.agents.prompts().len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(stage.runs().stop(ALL, id).await.expect("written"));
    let over = stage.over(id).await;
    assert_eq!(over.outcome(), Some(Aborted));
    assert_eq!(lock(&stage.agents.0.cancelled).len(), 1);
    let node = over.work().and_then(|work| work.progress.node(NodeIndex(0))).expect("it is there");
    let NodePhase::Ended(ended) = &node.phase else { panic!("{node:?}") };
    assert_eq!(ended.outcome, NodeOutcome::Aborted);
}

#[tokio::test]
async fn a_model_is_asked_as_the_step_says_and_its_answer_is_the_output() {
    let stage = Stage::new().await;
    let text = r#"
type: graph
llm: { provider: p, model: m, system: "Be ${params.how}.", temperature: 0.2 }
params: [{ name: how, default: short }]
working_dir: .
steps:
- id: a
  action: chat.completion
  with: { prompt: "${params.how}", max_tokens: 9, stream: true }
  stdout: { outputs: { decode: json } }
- id: b
  depends: a
  action: chat.completion
  with:
    model: [{ provider: down, name: m }, { provider: up, name: n, temperature: 1 }]
    system: Other.
    messages: [{ role: system, content: More. }, { role: user, content: q }, { role: assistant, content: r }, { role: user, content: "${a.outputs.said}" }]
  output: OUT
- { id: c, depends: b, run: "printf %s \"$OUT\" > out" }
"#;
    let run = stage.ran(text, Value::Null).await;
    assert_eq!(run.outcome(), Some(Succeeded), "{:#?}", run.left);
    assert_eq!(stage.file("out").as_deref(), Some("{\"said\": \"short\"}"));
    let asked = stage.agents.questions();
    let heads: Vec<_> = asked
        .iter()
        .map(|it| (it.model.as_str(), it.system.as_deref(), it.temperature, it.max_output_tokens))
        .collect();
    assert_eq!(
        heads,
        [
            ("p/m", Some("Be short."), Some(0.2), Some(9)),
            ("down/m", Some("Other.\n\nMore."), Some(0.2), None),
            ("up/n", Some("Other.\n\nMore."), Some(1.0), None),
        ]
    );
    assert_eq!(asked[2].messages.len(), 3);
    let cut = "steps: [{ id: a, action: chat.completion, with: { prompt: cut } }]";
    assert!(error(&stage.ran(cut, Value::Null).await).contains("cut short"));
    for (with, wanted) in [
        ("prompt: a, base_url: 'http://x'", "`base_url` of `chat.completion` (the operator"),
        ("prompt: a, tools: [x]", "`tools`"),
        ("prompt: a, model: [{ provider: p, name: m, top_p: 1 }]", "`top_p`"),
        ("prompt: a, colour: red", "`colour`"),
    ] {
        let text = format!("steps: [{{ id: a, action: chat.completion, with: {{ {with} }} }}]");
        let told = stage.refusal(&text).await;
        assert!(told.contains(wanted), "{with}: {told}");
    }
}

impl Stage {
    /// Message of a run that cannot begin.
    pub(super) async fn refusal(&self, text: &str) -> String {
        let run = self.ran(text, Value::Null).await;
        let events = self.runs().events(ALL, run.begun.id, 0, 100).await.expect("read").events;
        let refused = events.into_iter().find(|it| it.event.event_type == "run_refused");
        let refused = refused.unwrap_or_else(|| panic!("it is not refused: {text}"));
        refused.event.payload["error"]["message"].as_str().expect("a message").to_owned()
    }
}
