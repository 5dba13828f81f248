//! The tools over the whole family: DAGs that begin by themselves as they are listed, and queues.

use std::{fs, sync::Arc};

use hivekeep_kernel::User;
use hivekeep_ports::{ChildSessions, PlaceFolders, Places, TaskOutputs, Tasks};
use hivekeep_runtime::{
    WaiterLimit,
    tool_catalogue::{CataloguedTool, ToolCatalogue},
};
use hivekeep_testkit::{FakeUsers, Rig, RigServices, eventually};
use serde_json::{Value, json};

use super::guest::FakeGuest;
use crate::{Options, WorkflowFamily, dag_file::SCRATCH};

struct NoTools;

impl ToolCatalogue for NoTools {
    fn tools(&self) -> Arc<Vec<CataloguedTool>> {
        Arc::default()
    }
}

async fn rig(guest: &FakeGuest, user: User) -> Rig<WorkflowFamily> {
    let offered = guest.clone();
    let services = RigServices {
        sessions: Arc::new(FakeUsers::all(user)),
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
