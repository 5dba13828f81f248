//! The tools over a catalogue of this family's own tools and a session that the test keeps.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use hivekeep_kernel::{
    Progress, SessionId, Tier, ToolError, ToolSpec,
    view::{NameStyle, SmallListing, ToolView},
};
use hivekeep_ports::{LateTools, SessionToolsets};
use hivekeep_runtime::{
    Family,
    tool_catalogue::{CataloguedTool, ToolCatalogue},
};
use hivekeep_testkit::{FakeUsers, Rig, RigServices, context};
use serde_json::{Value, json};

use crate::{
    DiscoveryFamily, codes,
    index::ToolIndex,
    service::Discovery,
    tools::{ToolDescribe, ToolsList, ToolsSearch, ToolsetLoad},
};

/// Name, family, title, description, a parameter.
type Row = (&'static str, &'static str, &'static str, &'static str, &'static str);

const OTHERS: [Row; 6] = [
    ("exec", "execution", "Run a command", "Run a command line in a workspace.", "command"),
    ("workspace_create", "workspaces", "Create a workspace", "Start a new machine.", "memory_mb"),
    ("git_clone", "git", "Clone a repository", "Clone a repository into a workspace.", "url"),
    ("git_push", "git", "Push a branch", "Send commits to a remote.", "branch"),
    (
        "fs.grep",
        "fs",
        "Search files",
        "Search files for lines that match an expression.",
        "pattern",
    ),
    ("daemon.stop", "operators", "Stop the daemon", "End the daemon in order.", "reason"),
];

struct Fixed(Arc<Vec<CataloguedTool>>);

impl ToolCatalogue for Fixed {
    fn tools(&self) -> Arc<Vec<CataloguedTool>> {
        self.0.clone()
    }
}

fn catalogue() -> Vec<CataloguedTool> {
    let own = DiscoveryFamily::tools().into_iter().map(|info| CataloguedTool {
        spec: &info.spec,
        server: None,
        tool: json!({
            "description": info.description(),
            "inputSchema": (info.input)().to_value(), "outputSchema": (info.output)().to_value(),
            "annotations": {},
        }),
    });
    let template = DiscoveryFamily::tools()[0];
    let others = OTHERS.into_iter().map(|(name, family, title, description, parameter)| {
        let tier = if family == "operators" { Tier::Operator } else { Tier::User };
        let spec = ToolSpec { name, family, title, tier, ..template.spec };
        let properties = json!({ parameter: { "type": "string", "description": "It." } });
        let tool = json!({
            "description": description, "inputSchema": { "properties": properties },
            "outputSchema": { "type": "object" }, "annotations": {},
        });
        CataloguedTool { spec: Box::leak(Box::new(spec)), server: None, tool }
    });
    own.chain(others).collect()
}

#[derive(Default)]
struct OneSession(Mutex<BTreeSet<String>>);

#[async_trait]
impl SessionToolsets for OneSession {
    fn loaded(&self, _: SessionId) -> BTreeSet<String> {
        self.0.lock().expect("no panic").clone()
    }

    async fn load(
        &self,
        _: SessionId,
        toolsets: BTreeSet<String>,
    ) -> Result<BTreeSet<String>, ToolError> {
        let mut loaded = self.0.lock().expect("no panic");
        Ok(toolsets.into_iter().filter(|name| loaded.insert(name.clone())).collect())
    }
}

struct Stage {
    rig: Rig<DiscoveryFamily>,
    view: ToolView,
}

impl Stage {
    async fn new(view: ToolView) -> Self {
        let offer = |ports: &hivekeep_runtime::Ports| {
            ports.offer::<dyn ToolCatalogue>(Arc::new(Fixed(Arc::new(catalogue()))));
            ports.offer::<dyn SessionToolsets>(Arc::<OneSession>::default());
        };
        let services = RigServices {
            sessions: Arc::new(FakeUsers::default()),
            tools: Arc::new(LateTools::default()),
            offer: Arc::new(offer),
        };
        Self { rig: Rig::new(Default::default(), services).await, view }
    }

    /// As the service's own function, with the view that only the dispatcher gives to a call.
    async fn ask<I: serde::de::DeserializeOwned, O: serde::Serialize, F>(
        &self,
        function: impl FnOnce(Arc<Discovery>, hivekeep_kernel::CallCx, I) -> F,
        input: Value,
    ) -> Result<Value, ToolError>
    where
        F: Future<Output = Result<O, ToolError>>,
    {
        let service = Arc::new(Discovery::new(&self.rig.daemon)?);
        let limit = Duration::from_secs(60);
        let mut cx = context(self.rig.session, "test", limit, Progress::default());
        cx.view = Arc::new(self.view.clone());
        let input = serde_json::from_value(input).expect("an input");
        function(service, cx, input).await.map(|output| serde_json::to_value(output).expect("JSON"))
    }
}

fn names(answer: &Value) -> Vec<&str> {
    let tools = answer["tools"].as_array().expect("a list").iter();
    tools.map(|tool| tool["name"].as_str().expect("a name")).collect()
}

#[test]
fn what_a_task_is_said_in_finds_its_tool_first() {
    let tools = catalogue();
    let index = ToolIndex::new(&tools);
    for (query, first) in [
        ("run a command", "exec"),
        ("How do I run commands?", "exec"),
        ("cloning repositories", "git_clone"),
        ("push my commits to the remote", "git_push"),
        ("searching in files", "fs.grep"),
        ("new machine", "workspace_create"),
        ("memory", "workspace_create"),
        ("git_push", "git_push"),
        ("fs_grep", "fs.grep"),
        ("FS.", "fs.grep"),
        ("workspac", "workspace_create"),
    ] {
        let found = index.search(query);
        let found: Vec<_> = found.into_iter().map(|at| tools[at].spec.name).collect();
        assert_eq!(found.first(), Some(&first), "{query}: {found:?}");
    }
    assert_eq!(index.search("zebra"), [0; 0]);
    assert_eq!(index.search(" \t").len(), tools.len());
}

#[tokio::test]
async fn a_caller_finds_what_it_may_call_and_nothing_else() {
    let view = ToolView {
        toolsets: Some(vec!["git".to_owned(), "operators".to_owned()]),
        ..ToolView::default()
    };
    let stage = Stage::new(ToolView { names: NameStyle::Underscored, ..view }).await;
    let all = stage.ask::<ToolsList, _, _>(Discovery::list, json!({})).await.expect("lists");
    assert_eq!((names(&all), &all["total"]), (vec!["git_clone", "git_push"], &json!(2)));
    assert_eq!(all["toolsets"], json!([{ "name": "git", "tools": 2, "listed": 2 }]));
    for query in ["stop the daemon", "daemon.stop", "run a command"] {
        let input = json!({ "query": query });
        let found = stage.ask::<ToolsSearch, _, _>(Discovery::search, input).await.expect("finds");
        assert!(names(&found).iter().all(|name| name.starts_with("git")), "{query}: {found}");
    }
    for name in ["daemon.stop", "exec", "git_clon"] {
        let input = json!({ "name": name });
        let refused = stage.ask::<ToolDescribe, _, _>(Discovery::describe, input).await;
        let refused = refused.expect_err("it may not be called, or is none");
        assert!(refused.is(codes::TOOL_NOT_FOUND), "{refused:?}");
        assert!(!refused.details["nearest"].to_string().contains("daemon"), "{refused:?}");
    }
    for toolset in ["operators", "execution", "none"] {
        let input = json!({ "toolsets": ["git", toolset] });
        let refused = stage.ask::<ToolsetLoad, _, _>(Discovery::load, input).await;
        let refused = refused.expect_err("it may not be loaded");
        assert!(refused.is(codes::TOOLSET_NOT_FOUND), "{refused:?}");
        assert_eq!(refused.details["toolsets"], json!(["git"]));
    }
}

#[tokio::test]
async fn lists_and_searches_are_cut_and_say_so() {
    let stage = Stage::new(ToolView::operator()).await;
    let input = json!({ "limit": 2, "offset": 1 });
    let part = stage.ask::<ToolsList, _, _>(Discovery::list, input).await.expect("lists");
    assert_eq!(
        (names(&part), &part["total"]),
        (vec!["aegis.tools.search", "tool_describe"], &json!(10))
    );
    let input = json!({ "query": "git", "limit": 1 });
    let found = stage.ask::<ToolsSearch, _, _>(Discovery::search, input).await.expect("finds");
    assert_eq!((names(&found).len(), &found["total"]), (1, &json!(2)));
    let row = &found["tools"][0];
    assert_eq!((&row["source"], &row["skip_judge"]), (&json!("builtin"), &json!(true)));
    let input = json!({ "query": "search", "toolset": "FS" });
    let found = stage.ask::<ToolsSearch, _, _>(Discovery::search, input).await.expect("finds");
    assert_eq!(names(&found), ["fs.grep"]);
}

#[tokio::test]
async fn a_tool_is_described_whole_and_a_toolset_is_loaded_once() {
    let listing = SmallListing { tools: vec!["exec", "toolset_load"], toolsets: Vec::new() };
    let stage = Stage::new(ToolView { listing: Some(listing), ..ToolView::default() }).await;
    let input = json!({ "name": "fs_grep", "output": true });
    let grep =
        stage.ask::<ToolDescribe, _, _>(Discovery::describe, input).await.expect("describes");
    assert_eq!((&grep["name"], &grep["listed"]), (&json!("fs.grep"), &json!(false)));
    assert!(grep["input_schema"]["properties"]["pattern"].is_object());
    assert_eq!(grep["output_schema"], json!({ "type": "object" }));
    let input = json!({ "name": "exec" });
    let exec =
        stage.ask::<ToolDescribe, _, _>(Discovery::describe, input).await.expect("describes");
    assert_eq!((&exec["listed"], exec.get("output_schema")), (&json!(true), None));

    let load = |toolsets: Value| {
        stage.ask::<ToolsetLoad, _, _>(Discovery::load, json!({ "toolsets": toolsets }))
    };
    let first = load(json!(["Git", "fs"])).await.expect("loads");
    let expected = json!({ "loaded": ["fs", "git"], "added": ["git_clone", "git_push", "fs.grep"],
        "list_changed": true, "listed": 5 });
    assert_eq!(first, expected);
    let again = load(json!(["git"])).await.expect("is loaded");
    let expected = json!({ "loaded": [], "added": [], "list_changed": false, "listed": 5 });
    assert_eq!(again, expected);
}
