//! The tools of agents over a real journal, for two users and an operator.

mod acp;
mod after;
mod asking;
mod best;
mod chat;
mod commands;
mod compaction;
mod context;
mod corpus;
mod fakes;
mod forks;
mod growth;
mod judges;
mod machine;
pub(crate) mod machines;
mod mail;
mod port;
mod program_forks;
mod programs;
mod relatives;
mod schedules;
mod standstill;
mod storm;
mod talk;
mod tasks;

use std::sync::Arc;

use hivekeep_kernel::{
    Effect, Progress, SessionId, ToolCall, ToolError, ToolInfo, ToolSpec, User, view::ToolView,
};
use hivekeep_ports::{
    ChildSessions, Models, OutboundRequests, Places, WorkspaceFiles, WorkspaceForks,
    WorkspaceStandstill,
};
use hivekeep_runtime::{
    Family, WaiterLimit,
    tool_catalogue::{CataloguedTool, ToolCatalogue},
};
use hivekeep_testkit::{FakeUsers, Rig, RigServices, context};
use serde_json::{Value, json};
use tokio::{sync::oneshot, time::Duration};

use self::{
    after::FakeOutbound,
    fakes::{FakeChildren, FakeModels},
    machine::FakeMachine,
    machines::{FakeMachines, bounds},
};
use crate::{AgentFamily, Options};

/// Catalogue of tools that are names alone.
struct Named(Arc<Vec<CataloguedTool>>);

impl ToolCatalogue for Named {
    fn tools(&self) -> Arc<Vec<CataloguedTool>> {
        self.0.clone()
    }
}

fn named(names: impl IntoIterator<Item = String>) -> Named {
    let template = AgentFamily::tools()[1].spec;
    let tool = |name: String| {
        // One that is not known to work in no machine may work in one.
        let no_machine = ["aegis.", "web."].iter().any(|family| name.starts_with(family));
        let family = if no_machine { "agents" } else { "fs" };
        let effect = if name.ends_with("read") { Effect::Read } else { Effect::Write };
        let name = Box::leak(name.into_boxed_str());
        let spec = ToolSpec { name, family, effect, ..template };
        CataloguedTool { spec: Box::leak(Box::new(spec)), server: None, tool: Value::Null }
    };
    Named(Arc::new(names.into_iter().map(tool).collect()))
}

/// The rig's session is the first user's, the other one the second's, whose tier allows one agent.
struct Stage {
    rig: Rig<AgentFamily>,
    other: SessionId,
    models: FakeModels,
    children: FakeChildren,
    machines: FakeMachines,
    machine: FakeMachine,
    outbound: FakeOutbound,
}

impl Stage {
    async fn new(tools: impl IntoIterator<Item = String>) -> Self {
        let (other, catalogue) = (SessionId::new(), Arc::new(named(tools)));
        let users = FakeUsers::all(User::Uid(0)).and(other, User::Uid(1));
        let (models, children) = (FakeModels::default(), FakeChildren::default());
        let (all_models, all_children) = (models.clone(), children.clone());
        let machines = FakeMachines::default();
        let all_machines = machines.clone();
        let machine = FakeMachine::default();
        machines.run(&machine);
        let offered = machine.clone();
        let outbound = FakeOutbound::default();
        let receiver = Arc::new(outbound.clone());
        let services = RigServices {
            sessions: Arc::new(users.allowed(User::Uid(1), "agents", 1)),
            tools: Arc::new(machines.clone()),
            offer: Arc::new(move |ports| {
                ports.offer::<dyn ToolCatalogue>(catalogue.clone());
                ports.offer::<dyn Models>(Arc::new(all_models.clone()));
                ports.offer::<dyn ChildSessions>(Arc::new(all_children.clone()));
                ports.offer::<dyn Places>(Arc::new(all_machines.clone()));
                ports.offer::<dyn WorkspaceFiles>(Arc::new(all_machines.clone()));
                ports.offer::<dyn WorkspaceForks>(Arc::new(all_machines.clone()));
                ports.offer::<dyn WorkspaceStandstill>(Arc::new(all_machines.clone()));
                ports.offer(Arc::new(bounds()));
                ports.offer(WaiterLimit::new(64, 64));
                offered.offer(ports);
                ports.offer::<dyn OutboundRequests>(receiver.clone());
            }),
        };
        Self {
            rig: Rig::new(Options::default(), services).await,
            other,
            models,
            children,
            machines,
            machine,
            outbound,
        }
    }

    async fn usual() -> Self {
        Self::new(["fs.read", "cmd.run"].map(str::to_owned)).await
    }

    async fn call_as(
        &self,
        session: SessionId,
        view: ToolView,
        tool: &str,
        args: Value,
    ) -> Result<Value, ToolError> {
        let tool = match tool.contains('.') || tool.starts_with("agent_") {
            true => tool.to_owned(),
            false => format!("aegis.agent.{tool}"),
        };
        let (info, target): (&'static ToolInfo, _) = self.rig.route(&tool, &args).expect("known");
        let limit = Duration::from_secs(60);
        let mut cx = context(session, info.spec.name, limit, Progress::default());
        cx.view = Arc::new(view);
        let (reply, answer) = oneshot::channel();
        let call = ToolCall { tool: &info.spec, cx, args, reply: reply.into() };
        target.deliver(call).expect("it is there");
        answer.await.expect("answered")
    }

    async fn call(&self, tool: &str, args: Value) -> Result<Value, ToolError> {
        self.call_as(self.rig.session, ToolView::default(), tool, args).await
    }

    async fn as_operator(&self, tool: &str, args: Value) -> Result<Value, ToolError> {
        self.call_as(self.rig.session, ToolView::operator(), tool, args).await
    }

    async fn as_other(&self, tool: &str, args: Value) -> Result<Value, ToolError> {
        self.call_as(self.other, ToolView::default(), tool, args).await
    }

    async fn good(&self, tool: &str, args: Value) -> Value {
        self.call(tool, args).await.unwrap_or_else(|error| panic!("{tool}: {error}"))
    }

    async fn refused(&self, tool: &str, args: Value) -> ToolError {
        self.call(tool, args).await.expect_err(tool)
    }
}

/// A manifest, with what a text may have that no value of it shows.
fn manifest(name: &str, version: &str, instruction: &str) -> String {
    format!(
        "# Kept as it is: ä, trailing spaces  \r\napiVersion: 100monkeys.ai/v1\nkind: Agent\n\
         metadata: {{ name: {name}, version: {version}, description: Does it, labels: {{ team: core }} }}\n\
         spec:\n  runtime: {{ language: python, version: '3.11' }}\n  tools: [fs.read, cmd_run]\n  \
         task:\n    instruction: {instruction}"
    )
}

fn create(name: &str, version: &str) -> Value {
    json!({ "manifest_yaml": manifest(name, version, "Review the change.") })
}

/// Rows of a list without what is shipped with the daemon.
fn own_rows(mut listed: Value) -> Vec<Value> {
    let Value::Array(mut rows) = listed["agents"].take() else { panic!("{listed}") };
    rows.retain(|row| row["scope"] != "global");
    rows
}

#[tokio::test]
async fn what_is_shipped_is_everybodys_and_nobody_changes_it() {
    let stage = Stage::usual().await;
    let export = || json!({ "name": "code-quality-judge" });
    let shipped = stage.good("export", export()).await;
    for id in [shipped["id"].clone(), "agent_00000000000000000000000000000009".into()] {
        let delete = json!({ "agent_id": id });
        let refused = stage.as_operator("delete", delete).await.expect_err("it is not theirs");
        assert_eq!(refused.code, "agent_not_found");
    }
    let mine = json!({ "manifest_yaml": manifest("code-quality-judge", "0.1.0", "Judge it.") });
    assert_eq!(stage.refused("update", mine.clone()).await.code, "agent_not_found");
    stage.good("create", mine).await;
    assert_eq!(stage.good("export", export()).await["version"], "0.1.0", "the nearest");
    assert_eq!(stage.as_other("export", export()).await.expect("still there"), shipped);
}

#[tokio::test]
async fn each_version_is_exported_byte_for_byte_also_after_a_crash() {
    let mut stage = Stage::usual().await;
    let missing = stage.refused("update", create("reviewer", "1.9.0")).await;
    assert_eq!(missing.code, "agent_not_found");
    let first = stage.good("create", create("reviewer", "1.9.0")).await;
    assert_eq!((&first["deployed"], &first["version"]), (&json!(true), &json!("1.9.0")));
    let exists = stage.refused("create", create("reviewer", "1.9.0")).await;
    assert_eq!(exists.code, "version_exists");
    assert!(exists.next_step.is_some_and(|next| next.contains("increment")));
    let second = stage.good("update", create("reviewer", "1.10.0")).await;
    assert_eq!(second["agent_id"], first["agent_id"]);
    stage.good("create", create("reviewer", "0.1.0")).await;
    let text = manifest("reviewer", "1.9.0", "Review it anew.");
    stage.good("update", json!({ "manifest_yaml": text, "force": true })).await;
    stage.rig = stage.rig.crashed().await;
    for (version, expected) in [
        (None, manifest("reviewer", "1.10.0", "Review the change.")),
        (Some("1.9.0"), text),
        (Some("0.1.0"), manifest("reviewer", "0.1.0", "Review the change.")),
    ] {
        let asked = json!({ "name": "reviewer", "version": version });
        let exported = stage.good("export", asked).await;
        assert_eq!(exported["manifest_yaml"], expected);
        assert_eq!(exported["id"], first["agent_id"]);
    }
    let unknown = stage.refused("export", json!({ "name": "reviewer", "version": "7.0.0" })).await;
    assert_eq!(unknown.code, "manifest_version_not_found");
    assert_eq!(unknown.details["versions"], json!(["0.1.0", "1.9.0", "1.10.0"]));
    let row = own_rows(stage.good("list", json!({})).await).remove(0);
    let expected = json!({
        "id": first["agent_id"], "name": "reviewer", "version": "1.10.0", "status": "active",
        "description": "Does it", "labels": { "team": "core" }, "scope": "user", "owner": "uid:0",
    });
    assert_eq!(row, expected);
}

#[tokio::test]
async fn an_agent_of_a_stranger_is_not_there_and_an_operators_is_everybodys() {
    let stage = Stage::usual().await;
    let own = stage.good("create", create("reviewer", "1.0.0")).await["agent_id"].clone();
    for (tool, args) in [
        ("export", json!({ "name": "reviewer" })),
        ("export", json!({ "name": own })),
        ("delete", json!({ "agent_id": own })),
        ("delete", json!({ "agent_id": "reviewer" })),
        ("update", create("reviewer", "1.1.0")),
    ] {
        let refused = stage.as_other(tool, args).await.expect_err(tool);
        assert_eq!(refused.code, "agent_not_found", "{tool}");
        assert!(!refused.to_text().contains("uid:0"), "{refused}");
    }
    assert!(own_rows(stage.as_other("list", json!({})).await.expect("listed")).is_empty());
    let query = json!({ "query": "reviewer", "include_platform_templates": false });
    let found = stage.as_other("search", query).await.expect("searched");
    assert_eq!((&found["total"], &found["search_mode"]), (&json!(0), &json!("lexical")));

    stage.as_operator("create", create("reviewer", "2.0.0")).await.expect("the tenant's");
    stage.as_other("create", create("mine", "1.0.0")).await.expect("the first");
    let full = stage.as_other("create", create("more", "1.0.0")).await.expect_err("the tier");
    assert_eq!(full.code, "manifest_registry_full");
    let version =
        async |outcome: Result<Value, ToolError>| outcome.expect("seen")["version"].take();
    let reviewer = || json!({ "name": "reviewer" });
    assert_eq!(version(stage.as_other("export", reviewer()).await).await, "2.0.0");
    assert_eq!(version(stage.call("export", reviewer()).await).await, "1.0.0", "the nearest");
    let scopes = async |listed: Result<Value, ToolError>| {
        let rows = own_rows(listed.expect("listed")).into_iter();
        rows.map(|row| row["scope"].as_str().expect("one").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(scopes(stage.call("list", json!({})).await).await, ["user", "tenant"]);
    assert_eq!(
        scopes(stage.as_operator("list", json!({})).await).await,
        ["user", "user", "tenant"]
    );
    stage.as_operator("delete", json!({ "agent_id": own })).await.expect("an operator may");
    assert_eq!(version(stage.call("export", reviewer()).await).await, "2.0.0");
    let again = stage.good("create", create("reviewer", "1.0.0")).await;
    assert_ne!(again["agent_id"], own, "a new one");
}

#[tokio::test]
async fn what_is_not_a_manifest_is_refused_by_its_problems() {
    let stage = Stage::usual().await;
    let refused = async |text: String| {
        let refused = stage.refused("create", json!({ "manifest_yaml": text })).await;
        assert_eq!(refused.code, "manifest_invalid");
        refused.details["problems"].as_array().expect("problems").clone()
    };
    let good = manifest("a", "1.0.0", "Do it.");
    let unknown = refused(good.replace("fs.read", "fs.raed")).await;
    assert_eq!(unknown[0]["path"], "spec.tools[0]");
    assert!(unknown[0]["message"].as_str().expect("text").contains("did you mean `fs.read`"));
    let field = refused(good.replace("  task:", "  taks: {}\n  task:")).await;
    assert_eq!((&field[0]["path"], &field[0]["line"]), (&json!("spec.taks"), &json!(8)));
    let anchors: String =
        (1..4_000).map(|n| format!("a{n}: &a{n} [*a{}, *a{}]\n", n - 1, n - 1)).collect();
    let anchors = format!("a0: &a0 [x, x]\n{anchors}{}", "# ä".repeat(40_000));
    assert!(anchors.len() > 256 << 10 && anchors.chars().count() < 256 << 10);
    for text in [anchors.clone(), anchors[..200_000].to_owned(), String::new(), "\u{0}".to_owned()]
    {
        assert_eq!(refused(text).await.len(), 1);
    }
    assert!(own_rows(stage.good("list", json!({})).await).is_empty());
    let tenant = stage.refused("search", json!({ "query": "a", "tenant_id": "other" })).await;
    assert_eq!(tenant.code, "tenant_not_found");
}

#[tokio::test]
async fn a_search_has_the_best_first_and_filters() {
    let stage = Stage::usual().await;
    for (name, instruction) in [
        ("resizer", "Resize images"),
        ("reviewer", "Review a change of code"),
        ("coder", "Write code"),
    ] {
        let text = manifest(name, "1.0.0", instruction);
        stage.good("create", json!({ "manifest_yaml": text })).await;
    }
    let names = async |more: Value| {
        let mut asked = json!({ "query": "review code", "tenant_id": "local", "include_platform_templates": false });
        asked.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
        let found = stage.good("search", asked).await;
        assert_eq!(found["tool"], "aegis.agent.search");
        let rows = found["results"].as_array().expect("rows").iter();
        rows.map(|row| row["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(json!({})).await[0], "reviewer");
    assert_eq!(names(json!({ "min_score": 0.0 })).await, ["reviewer", "coder"]);
    assert_eq!(names(json!({ "min_score": 0.0, "limit": 1 })).await, ["reviewer"]);
    assert_eq!(names(json!({ "min_score": 1.0 })).await, ["reviewer"]);
    assert_eq!(names(json!({ "labels": { "team": "core" } })).await[0], "reviewer");
    assert!(names(json!({ "labels": { "team": "x" } })).await.is_empty());
    assert!(names(json!({ "status": "paused" })).await.is_empty());
    let shipped =
        names(json!({ "include_platform_templates": true, "labels": { "role": "judge" } }));
    assert_eq!(shipped.await, ["code-quality-judge"]);
}
