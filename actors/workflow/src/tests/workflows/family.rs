//! The family of workflows, mounted beside agents that answer as their names say.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use hivekeep_kernel::{
    CallCx, ExecutionId, Layer, Progress, SessionId, ToolCall, ToolError, User, lock,
    view::ToolView,
};
use hivekeep_ports::{
    ChildSessions, ConfiguredModel, EmbedRequest, Embeddings, ExecutionOrder, ExecutionResult,
    Executions, InternalCall, ModelRequest, ModelSource, ModelStream, ModelUsage, ModelUse, Models,
    OrderedAgent, Places, TaskOutputs, Tasks, Tools,
};
use hivekeep_runtime::{
    WaiterLimit,
    tool_catalogue::{CataloguedTool, ToolCatalogue},
};
use hivekeep_testkit::{FakeUsers, Rig, RigServices, context};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::{Options, WorkflowFamily, tests::guest::FakeGuest};

/// Names of the agents that are there.
const AGENTS: [&str; 8] = [
    "coder",
    "manifest-judge",
    "strict",
    "vague",
    "code-writer",
    "result-writer",
    "code-quality-judge",
    "workflow-creator",
];

#[derive(Default)]
struct World {
    no_models: AtomicBool,
    /// Inputs of the executions, in their order.
    questions: Mutex<Vec<Value>>,
    begun: Mutex<BTreeMap<ExecutionId, String>>,
    guest: FakeGuest,
}

/// Agents, models and runtimes.
#[derive(Clone, Default)]
pub(super) struct AgentsBeside(Arc<World>);

impl AgentsBeside {
    pub(super) fn forget_models(&self) {
        self.0.no_models.store(true, SeqCst);
    }

    pub(super) fn questions(&self) -> Vec<Value> {
        lock(&self.0.questions).clone()
    }

    fn known(name: &str) -> Result<(), ToolError> {
        match AGENTS.contains(&name) {
            true => Ok(()),
            false => Err(ToolError::foreign(Layer::Resolve, "agent_not_found", "there is none")),
        }
    }
}

#[async_trait]
impl Tools for AgentsBeside {
    async fn call(
        &self,
        call: InternalCall,
        tool: &'static str,
        args: Value,
    ) -> Result<Value, ToolError> {
        match tool {
            "aegis.agent.list" => {
                let row = |name| json!({ "id": format!("agent_{name}"), "name": name });
                Ok(json!({ "agents": AGENTS.map(row) }))
            }
            "aegis.agent.export" => {
                let name = args["name"].as_str().expect("a name");
                Self::known(name)?;
                let text = format!(
                    "apiVersion: 100monkeys.ai/v1\nkind: Agent\nmetadata: {{ name: {name}, version: \
                     1.0.0 }}\nspec:\n  runtime: {{ language: python, version: '3.11' }}\n  task: {{ \
                     instruction: Do it. }}\n"
                );
                Ok(json!({ "manifest_yaml": text }))
            }
            "aegis.runtime.list" => {
                let row = |version: &str, deprecated| json!({ "image": format!("docker.io/python:{version}"), "deprecated": deprecated });
                let rows = match args["language"].as_str() {
                    Some("python") => {
                        vec![row("3.9", true), row("3.12", false), row("3.13", false)]
                    }
                    _ => Vec::new(),
                };
                Ok(json!({ "runtimes": rows, "languages": [] }))
            }
            _ => Tools::call(&self.0.guest, call, tool, args).await,
        }
    }
}

#[async_trait]
impl Executions for AgentsBeside {
    async fn begin(&self, _: &CallCx, order: ExecutionOrder) -> Result<(), ToolError> {
        let OrderedAgent::Deployed { name, .. } = order.agent else { panic!("a manifest") };
        Self::known(&name)?;
        self.resolve("default", ModelUse::Generate)?;
        lock(&self.0.questions).push(Value::Object(order.input));
        lock(&self.0.begun).insert(order.id, name);
        Ok(())
    }

    async fn ended(&self, id: ExecutionId) -> Result<ExecutionResult, ToolError> {
        let name = lock(&self.0.begun)[&id].clone();
        let output = match name.as_str() {
            "vague" => "It is good.".to_owned(),
            "strict" => json!({ "score": 0.1, "confidence": 1, "reasoning": "Bad." }).to_string(),
            "code-writer" => {
                let mends = lock(&self.0.begun).values().filter(|it| *it == "code-writer").count();
                let code = match mends {
                    1 => "import sys; sys.exit(3)",
                    _ => "import os, json; print(2 * json.loads(os.environ['INTENT_INPUTS'])['n'])",
                };
                json!({ "code": code }).to_string()
            }
            "result-writer" => {
                let asked = self.questions().pop().unwrap_or_default();
                format!("It is {}.", asked["output"].as_str().unwrap_or_default().trim())
            }
            _ => json!({ "score": 0.9, "confidence": 0.8, "reasoning": "Good." }).to_string(),
        };
        Ok(ExecutionResult::Completed { output, judged: None })
    }

    async fn cancel(&self, _: ExecutionId) -> Result<bool, ToolError> {
        Ok(true)
    }
}

#[async_trait]
impl Models for AgentsBeside {
    fn configured(&self) -> Vec<ConfiguredModel> {
        Vec::new()
    }

    fn resolve(&self, model: &str, _: ModelUse) -> Result<Vec<ModelSource>, ToolError> {
        match self.0.no_models.load(SeqCst) {
            true => Err(ToolError::foreign(Layer::Actor, "llm_not_configured", "no model is set")),
            false => Ok(vec![ModelSource {
                provider: "fake".to_owned(),
                provider_kind: "scripted",
                model: model.to_owned(),
            }]),
        }
    }

    fn worst_case(&self, _: &ModelRequest) -> Result<ModelUsage, ToolError> {
        unreachable!("workflows ask no models")
    }

    fn stream(&self, _: ModelRequest) -> Result<ModelStream, ToolError> {
        unreachable!("workflows ask no models")
    }

    async fn embed(&self, _: EmbedRequest) -> Result<Embeddings, ToolError> {
        unreachable!("workflows ask no models")
    }
}

impl ToolCatalogue for AgentsBeside {
    fn tools(&self) -> Arc<Vec<CataloguedTool>> {
        Arc::default()
    }
}

/// The rig's session is the first user's, the other one the second's.
pub(super) struct Stage {
    pub(super) rig: Rig<WorkflowFamily>,
    pub(super) agents: AgentsBeside,
    pub(super) guest: FakeGuest,
    other: SessionId,
}

impl Stage {
    pub(super) async fn new() -> Self {
        let (agents, other) = (AgentsBeside::default(), SessionId::new());
        let guest = agents.0.guest.clone();
        let (offered, machines) = (agents.clone(), guest.clone());
        let services = RigServices {
            sessions: Arc::new(FakeUsers::all(User::Uid(0)).and(other, User::Uid(1))),
            tools: Arc::new(agents.clone()),
            offer: Arc::new(move |ports| {
                ports.offer::<dyn ChildSessions>(Arc::new(machines.clone()));
                ports.offer::<dyn Places>(Arc::new(machines.clone()));
                ports.offer::<dyn Tasks>(Arc::new(machines.clone()));
                ports.offer::<dyn TaskOutputs>(Arc::new(machines.clone()));
                ports.offer::<dyn Executions>(Arc::new(offered.clone()));
                ports.offer::<dyn Models>(Arc::new(offered.clone()));
                ports.offer::<dyn ToolCatalogue>(Arc::new(offered.clone()));
                ports.offer(WaiterLimit::new(64, 64));
            }),
        };
        Self { rig: Rig::new(Options::default(), services).await, agents, guest, other }
    }

    async fn call_as(
        &self,
        session: SessionId,
        view: ToolView,
        tool: &str,
        args: Value,
    ) -> Result<Value, ToolError> {
        let tool = match tool.starts_with("aegis.") {
            true => tool.to_owned(),
            false => format!("aegis.workflow.{tool}"),
        };
        let (info, target) = self.rig.route(&tool, &args).expect("known");
        let limit = Duration::from_secs(60);
        let mut cx = context(session, info.spec.name, limit, Progress::default());
        cx.view = Arc::new(view);
        let (reply, answer) = oneshot::channel();
        let call = ToolCall { tool: &info.spec, cx, args, reply: reply.into() };
        target.deliver(call).expect("it is there");
        answer.await.expect("answered")
    }

    pub(super) async fn as_operator(&self, tool: &str, args: Value) -> Result<Value, ToolError> {
        self.call_as(self.rig.session, ToolView::operator(), tool, args).await
    }

    pub(super) async fn as_other(&self, tool: &str, args: Value) -> Result<Value, ToolError> {
        self.call_as(self.other, ToolView::default(), tool, args).await
    }

    pub(super) async fn good(&self, tool: &str, args: Value) -> Value {
        let answer = self.call_as(self.rig.session, ToolView::default(), tool, args).await;
        answer.unwrap_or_else(|error| panic!("{tool}: {error}"))
    }

    pub(super) async fn refused(&self, tool: &str, args: Value) -> ToolError {
        let answer = self.call_as(self.rig.session, ToolView::default(), tool, args).await;
        answer.expect_err(tool)
    }
}

/// A manifest, with what a text may have that no value of it shows.
pub(super) fn manifest(name: &str, version: &str) -> String {
    format!(
        "# Kept as it is: ä, trailing spaces  \r\napiVersion: 100monkeys.ai/v1\nkind: Workflow\n\
         metadata: {{ name: {name}, version: {version}, description: Does it, labels: {{ team: core }} }}\n\
         spec:\n  initial_state: WORK\n  states:\n    \
         WORK: {{ kind: System, command: 'true', transitions: [] }}"
    )
}

pub(super) fn create(name: &str, version: &str) -> Value {
    json!({ "manifest_yaml": manifest(name, version) })
}
