//! The tools over the whole family: DAGs that begin by themselves as they are listed, and queues.

use std::{fs, sync::Arc, time::Duration};

use hivekeep_kernel::{Door, Progress, SessionId, ToolCall, ToolError, User, view::ToolView};
use hivekeep_ports::{ChildSessions, PlaceFolder, PlaceFolders, Places, TaskOutputs, Tasks};
use hivekeep_runtime::{
    WaiterLimit,
    tool_catalogue::{CataloguedTool, ToolCatalogue},
};
use hivekeep_testkit::{FakeUsers, Rig, RigServices, context, eventually};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{
    Stage,
    guest::{FLOOD, FakeGuest},
};
use crate::{Options, WorkflowFamily, dag_file::SCRATCH, folders::DagFolders};

struct NoTools;

impl ToolCatalogue for NoTools {
    fn tools(&self) -> Arc<Vec<CataloguedTool>> {
        Arc::default()
    }
}

async fn rig(guest: &FakeGuest, user: User) -> Rig<WorkflowFamily> {
    rig_of(guest, FakeUsers::all(user)).await
}

async fn rig_of(guest: &FakeGuest, users: FakeUsers) -> Rig<WorkflowFamily> {
    let offered = guest.clone();
    let services = RigServices {
        sessions: Arc::new(users),
        tools: Arc::new(guest.clone()),
        offer: Arc::new(move |ports| {
            ports.offer::<dyn ChildSessions>(Arc::new(offered.clone()));
            ports.offer::<dyn Places>(Arc::new(offered.clone()));
            ports.offer::<dyn Tasks>(Arc::new(offered.clone()));
            ports.offer::<dyn TaskOutputs>(Arc::new(offered.clone()));
            ports.offer::<dyn PlaceFolders>(Arc::new(offered.clone()));
            ports.offer::<dyn ToolCatalogue>(Arc::new(NoTools));
            ports.offer(WaiterLimit::new(64, 64));
        }),
    };
    Rig::new(Options { folders: vec!["here".to_owned()], ..Options::default() }, services).await
}

#[tokio::test]
async fn dags_of_folders_are_listed_for_their_owners_with_their_times_and_problems() {
    let guest = FakeGuest::default();
    let dags = guest.folder().join("dags");
    fs::create_dir_all(&dags).expect("made");
    let owner = {
        use std::os::unix::fs::MetadataExt as _;
        fs::metadata(&dags).expect("it is there").uid()
    };
    fs::write(dags.join("a.yaml"), "schedule: '0 3 * * *'\nsteps: [{ run: 'true' }]\n")
        .expect("written");
    fs::write(dags.join("b.yaml"), "steps: [{ runn: x }]\n").expect("written");
    let own = rig(&guest, User::Uid(owner)).await;
    let list = async |rig: &Rig<WorkflowFamily>| {
        rig.call("dag_runs", json!({ "dags": true })).await.expect("listed")
    };
    let is_followed = async || list(&own).await["dags"][0]["next_run_at"].is_string();
    eventually("it is followed", is_followed).await;
    let listed = list(&own).await;
    assert_eq!((&listed["total"], &listed["runs"]), (&json!(2), &Value::Null));
    let [a, b] = [0, 1].map(|at| listed["dags"][at].clone());
    let next = a["next_run_at"].as_str().expect("a time");
    assert!(next.contains("T03:00:00"), "{next}");
    assert_eq!(
        (&a["name"], &a["place"], &a["file"], &a["schedule"]),
        (&json!("a"), &json!("here"), &json!("dags/a.yaml"), &json!("0 3 * * *"))
    );
    assert!(b["problem"].as_str().is_some_and(|why| why.contains("did you mean")), "{b}");
    let named = own.call("dag_runs", json!({ "dags": true, "name": "a" })).await.expect("listed");
    assert_eq!(named["total"], 1);
    let other = rig(&guest, User::Uid(owner + 1)).await;
    assert_eq!(list(&other).await["total"], 0, "they are not theirs");
}

#[tokio::test]
async fn a_run_waits_in_the_queue_that_is_named() {
    let guest = FakeGuest::default();
    let rig = rig(&guest, User::Uid(0)).await;
    let start = async |more: Value| {
        let mut input = json!({ "yaml": "steps: [{ run: 'sleep 0.2' }]" });
        input.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("one"));
        rig.call("dag_start", input).await
    };
    let first = start(json!({ "queue": "q" })).await.expect("begun");
    let second = start(json!({ "queue": "q", "priority": 3 })).await.expect("begun");
    let shown = async |of: &Value| {
        let asked = json!({ "run_id": of["run_id"], "wait_secs": 0 });
        rig.call("dag_runs", asked).await.expect("shown")["run"]["status"].clone()
    };
    assert_eq!(shown(&second).await, "queued");
    for run in [first, second] {
        let asked = json!({ "run_id": run["run_id"], "wait_secs": 30 });
        let run = rig.call("dag_runs", asked).await.expect("shown");
        assert_eq!(run["run"]["status"], "succeeded", "{run:#}");
        let id = run["run"]["run_id"].as_str().expect("an id");
        // The guest is this host.
        let _gone = fs::remove_dir_all(std::path::Path::new(SCRATCH).join(id));
    }
    let alone = start(json!({ "priority": 3 })).await.expect_err("without a queue");
    assert_eq!(alone.code, "invalid_input");
}

/// Calls a tool in a session, with the rights of a credential.
async fn call_as(
    rig: &Rig<WorkflowFamily>,
    of: (SessionId, ToolView),
    tool: &str,
    args: Value,
) -> Result<Value, ToolError> {
    call_by(rig, Door::Internal, of, tool, args).await
}

async fn call_by(
    rig: &Rig<WorkflowFamily>,
    door: Door,
    (session, view): (SessionId, ToolView),
    tool: &str,
    args: Value,
) -> Result<Value, ToolError> {
    let (info, target) = rig.route(tool, &args).expect("known");
    let mut cx = context(session, info.spec.name, Duration::from_secs(60), Progress::default());
    (cx.view, cx.door) = (Arc::new(view), door);
    let (reply, answer) = oneshot::channel();
    let call = ToolCall { tool: &info.spec, cx, args, reply: reply.into() };
    target.deliver(call).expect("it is there");
    answer.await.expect("answered")
}

/// Starts a run and waits for its end.
async fn ended(rig: &Rig<WorkflowFamily>, yaml: &str) -> Value {
    let begun = rig.call("dag_start", json!({ "yaml": yaml })).await.expect("begun");
    shown_at_end(rig, &begun["run_id"]).await
}

async fn shown_at_end(rig: &Rig<WorkflowFamily>, id: &Value) -> Value {
    let asked = json!({ "run_id": id, "wait_secs": 30 });
    let shown = rig.call("dag_runs", asked).await.expect("shown")["run"].take();
    // The guest is this host.
    let _gone = fs::remove_dir_all(std::path::Path::new(SCRATCH).join(id.as_str().expect("an id")));
    shown
}

#[tokio::test]
async fn a_run_that_is_begun_again_is_its_callers() {
    let (guest, operator) = (FakeGuest::default(), SessionId::new());
    let rig = rig_of(&guest, FakeUsers::all(User::Uid(7)).and(operator, User::Uid(0))).await;
    let run = ended(&rig, "steps: [{ run: 'true' }]").await;
    let again = json!({ "run_id": run["run_id"], "action": "reschedule" });
    let other = call_as(&rig, (operator, ToolView::default()), "dag_control", again.clone()).await;
    assert_eq!(other.expect_err("it is another's").code, "run_not_found");
    let begun = call_as(&rig, (operator, ToolView::operator()), "dag_control", again).await;
    let begun = begun.expect("begun")["run_id"].clone();
    let asked = json!({ "run_id": begun, "wait_secs": 30 });
    let own = call_as(&rig, (operator, ToolView::default()), "dag_runs", asked.clone()).await;
    assert_eq!(own.expect("it is the operator's")["run"]["status"], "succeeded");
    let not = rig.call("dag_runs", asked).await.expect_err("it is not the first owner's");
    assert_eq!(not.code, "run_not_found");
    let _gone =
        fs::remove_dir_all(std::path::Path::new(SCRATCH).join(begun.as_str().expect("an id")));
}

#[tokio::test]
async fn output_that_cannot_be_read_is_an_error() {
    let guest = FakeGuest::default();
    let rig = rig(&guest, User::Uid(0)).await;
    let logs = async |id: &Value, offset: u64| {
        let asked = json!({ "run_id": id, "step": "a", "offset": offset });
        rig.call("dag_logs", asked).await
    };
    // The rest of the recorded beginning is in no file.
    let step = format!("steps: [{{ id: a, run: printf '{}' }}]", FLOOD.replace('\n', "\\n"));
    let id = ended(&rig, &step).await["run_id"].clone();
    let beginning = logs(&id, 0).await.expect("read");
    assert_eq!(
        (&beginning["stdout"]["text"], &beginning["stdout"]["total_bytes"]),
        (&json!(FLOOD), &json!(1 << 30))
    );
    let error = logs(&id, 6).await.expect_err("it is gone");
    assert!(error.message.contains("is gone"), "{error}");

    // A guest that does not answer is not one that has nothing.
    let held = json!({ "yaml": "steps: [{ id: a, run: sleep 60 }]" });
    let id = rig.call("dag_start", held).await.expect("begun")["run_id"].clone();
    eventually("it runs", async || logs(&id, 0).await.is_ok_and(|it| it["status"] == "running"))
        .await;
    eventually("it is there", async || !guest.started().is_empty()).await;
    guest.be_unreadable(Some(true));
    let error = logs(&id, 0).await.expect_err("nobody answers");
    assert_eq!((&*error.code, error.retryable), ("guest_unreachable", true));
    // A guest that does not know the command has none of its output.
    guest.be_unreadable(Some(false));
    assert_eq!(logs(&id, 0).await.expect("read")["stdout"]["text"], "");
    let stop = json!({ "run_id": id, "action": "stop" });
    assert_eq!(rig.call("dag_control", stop).await.expect("stopped")["changed"], true);
    assert_eq!(shown_at_end(&rig, &id).await["status"], "aborted");
}

/// Folder that sessions may write.
struct WritableFolder(FakeGuest);

impl PlaceFolders for WritableFolder {
    fn folder(&self, name: &str) -> Result<PlaceFolder, ToolError> {
        Ok(PlaceFolder { read_only: false, ..PlaceFolders::folder(&self.0, name)? })
    }

    fn default_place(&self) -> &str {
        "here"
    }
}

#[tokio::test]
async fn a_folder_that_sessions_may_write_is_not_watched() {
    let stage = Stage::new().await;
    let open = || DagFolders::new(&stage.rig.daemon, &["here".to_owned()], (*stage.runs()).clone());
    assert!(open().is_ok());
    stage.rig.daemon.ports.offer::<dyn PlaceFolders>(Arc::new(WritableFolder(stage.guest.clone())));
    let error = open().err().expect("it is refused");
    assert!(error.code == "dag_folder_writable" && error.message.contains("`here`"), "{error}");
}

#[tokio::test]
async fn texts_that_would_be_dear_are_refused_before_they_are_run() {
    let rig = rig(&FakeGuest::default(), User::Uid(0)).await;
    let laughs: String =
        (1..40).map(|n| format!("a{n}: &a{n} [*a{m}, *a{m}, *a{m}]\n", m = n - 1)).collect();
    for yaml in [
        format!("a0: &a0 [x, x]\n{laughs}"),
        format!("steps: [{}]", "x".repeat(256 * 1024)),
        format!("steps:\n{}", "- run: x\n".repeat(10_000)),
        format!("steps: {}x{}", "[".repeat(100), "]".repeat(100)),
        "---\nname: x\n".repeat(10_000),
    ] {
        let error = rig.call("dag_start", json!({ "yaml": yaml })).await.expect_err("refused");
        assert!(["dag_invalid", "invalid_input"].contains(&&*error.code), "{error}");
        assert!(error.message.len() < 2_048, "{error}");
    }
    assert_eq!(rig.call("dag_runs", json!({})).await.expect("listed")["total"], 0);
}

#[tokio::test]
async fn two_runs_are_set_side_by_side() {
    let rig = rig(&FakeGuest::default(), User::Uid(0)).await;
    let run = async |price: &str| {
        let step = "{ id: a, action: outputs.write, with: { values: { price: '${params.price}', kept: 1 } } }";
        let fails =
            "{ id: b, action: state.get, with: { key: '${params.price}', required: true } }";
        let yaml = format!(
            "name: ship\ntype: chain\nparams: [{{ name: price, default: '{price}' }}]\nsteps: [{step}, {fails}]"
        );
        ended(&rig, &yaml).await["run_id"].take()
    };
    let set = "name: ship\nsteps: [{ action: state.set, with: { key: '7', value: 1 } }]";
    assert_eq!(ended(&rig, set).await["status"], "succeeded");
    let (one, two) = (run("7").await, run("8").await);
    let compare = async |run: &Value, other: &Value, offset: usize| {
        let asked = json!({ "run_id": run, "compare_with": other, "offset": offset });
        rig.call("dag_runs", asked).await.expect("compared")["compared"].take()
    };
    let found = compare(&one, &two, 0).await;
    let differences = found["differences"].as_array().expect("a list");
    let fields: Vec<_> = differences
        .iter()
        .map(|it| {
            format!("{} {}", it["step"].as_str().unwrap_or("-"), it["field"].as_str().expect("one"))
        })
        .collect();
    let wanted = [
        "- params.price",
        "- status",
        "a outputs.price",
        "b status",
        "b exit_code",
        "b error",
        "- outputs.price",
    ];
    assert_eq!(fields, wanted, "{found:#}");
    assert_eq!((&differences[0]["value"], &differences[0]["other"]), (&json!("7"), &json!("8")));
    assert_eq!((&found["total"], &found["with"]["run_id"]), (&json!(differences.len()), &two));
    assert_eq!(compare(&one, &two, 2).await["differences"][0], differences[2]);
    assert_eq!(compare(&one, &one, 0).await["total"], 0);
    let alone = rig.call("dag_runs", json!({ "compare_with": two })).await;
    assert_eq!(alone.expect_err("of which run").code, "invalid_input");
}

#[tokio::test]
async fn agents_answer_no_question_of_a_run() {
    let rig = rig(&FakeGuest::default(), User::Uid(0)).await;
    let yaml = "steps: [{ id: ask, action: human.task, with: { prompt: Ship? } }]";
    let run = rig.call("dag_start", json!({ "yaml": yaml })).await.expect("begun")["run_id"].take();
    let answer = async |door: Door, action: &str| {
        let asked = json!({ "run_id": run, "step": "ask", "action": action });
        call_by(&rig, door, (SessionId::new(), ToolView::default()), "dag_control", asked).await
    };
    for action in ["approve", "reject", "push_back"] {
        let refused = answer(Door::Agent, action).await.expect_err("it is an agent");
        assert_eq!(refused.code, "answer_denied", "{action}");
    }
    let signal = json!({ "execution_id": run, "response": "yes" });
    let of = (SessionId::new(), ToolView::default());
    let signalled = call_by(&rig, Door::Agent, of, "aegis.workflow.signal", signal).await;
    assert_eq!(signalled.expect_err("it is an agent").code, "answer_denied");
    eventually("the step waits", async || answer(Door::Cli, "approve").await.is_ok()).await;
    assert_eq!(shown_at_end(&rig, &run).await["status"], "succeeded");
}
