//! The members' cards in the vault.

use serde_json::{Value, json};

use super::stage::{Stage, eventually, plan};
use hivekeep_store::NewEvent;

const A: &str = "teams/crew/cards/a.json";
const B: &str = "teams/crew/cards/b.json";

async fn cards(stage: &Stage) -> Value {
    stage.call(json!({ "action": "status", "name": "crew" })).await["cards"].clone()
}

/// As the workspace's actor does.
async fn change(stage: &Stage, member: &str, state: &'static str, kind: &str) {
    let id = stage.fake.with(|world| {
        let (_, one) = world.workspaces.iter_mut().find(|(name, _)| name.contains(member)).unwrap();
        one.state = state;
        one.id
    });
    let event = NewEvent { kind: kind.to_owned(), subject: id.to_string(), data: json!({}) };
    stage.journal.events().publish(event).await.expect("published");
}

fn roles() -> Value {
    json!([
        { "name": "a", "role": "lead", "skills": ["rust"], "description": "the first" },
        { "name": "b", "role": "hand" },
    ])
}

async fn crew(stage: &Stage) -> Value {
    stage.call(json!({ "action": "create", "name": "crew", "roles": roles() })).await
}

#[tokio::test]
async fn they_are_there_when_the_team_is_ready_are_kept_current_and_go_with_it() {
    let stage = Stage::new().await;
    let made = crew(&stage).await;
    assert_eq!(made["cards"], "written");
    assert_eq!(stage.shelf.paths(), [A, B]);
    let card = stage.shelf.card(A);
    let of = |field: &str| card[field].clone();
    assert_eq!((of("name"), of("role"), of("team")), (json!("a"), json!("lead"), json!("crew")));
    assert_eq!((of("skills"), of("description")), (json!(["rust"]), json!("the first")));
    assert_eq!(of("workspace_id"), made["member_workspace_ids"][0]);
    assert_eq!(of("workspace_name"), made["members"][0]["workspace_name"]);
    assert_eq!((of("status"), of("workspace_state")), (json!("ready"), json!("running")));
    assert_eq!(card["endpoints"]["ip"], "10.0.0.9");
    assert_eq!(
        card["endpoints"]["message"],
        json!({ "tool": "team", "action": "message", "name": "crew", "to": "a" })
    );
    assert!(chrono::DateTime::parse_from_rfc3339(of("updated_at").as_str().unwrap()).is_ok());

    change(&stage, "lead", "stopped", "workspace.stopped").await;
    eventually("the card says so", async || stage.shelf.card(A)["status"] == "failed").await;
    assert_eq!(stage.shelf.card(A)["workspace_state"], "stopped");
    assert_eq!(stage.shelf.card(B)["status"], "ready");
    change(&stage, "lead", "running", "workspace.started").await;
    eventually("the card says so", async || stage.shelf.card(A)["status"] == "ready").await;
    // What says the same is not written again.
    let writes = stage.shelf.with(|inside| inside.writes);
    assert_eq!(writes, 4);

    let gone = stage.call(json!({ "action": "destroy", "name": "crew" })).await;
    assert_eq!((&gone["success"], gone.get("cards")), (&json!(true), None));
    assert!(stage.shelf.paths().is_empty());
}

#[tokio::test]
async fn a_team_below_says_whose_it_is() {
    let stage = Stage::new().await;
    crew(&stage).await;
    let mut below = plan("sub", &["x"]);
    below["parent_team"] = json!("crew");
    stage.call(below).await;
    assert_eq!(stage.shelf.card("teams/sub/cards/x.json")["parent_team"], "crew");
    stage.call(json!({ "action": "destroy", "name": "crew" })).await;
    assert!(stage.shelf.paths().is_empty());
}

#[tokio::test]
async fn a_start_makes_them_whole_again_and_removes_those_of_teams_that_are_no_more() {
    let stage = Stage::new().await;
    crew(&stage).await;
    let old = stage.shelf.with(|inside| inside.files[A].clone());
    let mut other = stage.shelf.card(B);
    other["team_id"] = json!(hivekeep_kernel::TeamId::new());
    let strangers =
        [("teams/crew/cards/note.json", "{}"), ("teams/crew/tasks/b.json", &other.to_string())]
            .map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()));
    let stage = stage.crashed().await;
    stage.shelf.with(|inside| {
        inside.files.remove(A);
        inside.files.insert(B.to_owned(), b"{ half of it".to_vec());
        inside.files.extend(strangers.clone());
        inside.files.insert("teams/old/cards/b.json".to_owned(), other.to_string().into_bytes());
    });
    let stage = stage.crashed().await;
    eventually("they are whole", async || {
        stage.shelf.card(A)["name"] == "a" && stage.shelf.card(B)["name"] == "b"
    })
    .await;
    let now = stage.shelf.with(|inside| inside.files[A].clone());
    assert_ne!(old, now, "written anew");
    eventually("the old one is gone", async || stage.shelf.paths().len() == 4).await;
    let kept =
        stage.shelf.with(|inside| strangers.iter().all(|(path, text)| inside.files[path] == *text));
    assert!(kept, "{:?}", stage.shelf.paths());
    assert_eq!(cards(&stage).await, "written");
}

#[tokio::test]
async fn without_a_vault_the_team_works_and_says_so_and_is_written_when_there_is_one() {
    let stage = Stage::new().await;
    stage.shelf.with(|inside| inside.broken = Some("vault_unavailable"));
    let made = crew(&stage).await;
    assert_eq!(made["state"], "ready");
    let error = made["cards"]["error"].as_str().expect("an error");
    assert!(error.contains("no vault"), "{error}");
    stage.say("a", "b", "hello").await;
    assert!(cards(&stage).await["error"].is_string());
    stage.shelf.with(|inside| inside.broken = None);
    change(&stage, "hand", "stopped", "workspace.stopped").await;
    eventually("they are written", async || cards(&stage).await == "written").await;
    assert_eq!(stage.shelf.card(B)["workspace_state"], "stopped");

    stage.shelf.with(|inside| inside.broken = Some("vault_unavailable"));
    let gone = stage.call(json!({ "action": "destroy", "name": "crew" })).await;
    assert_eq!(gone["success"], true);
    assert!(gone["cards"]["error"].is_string(), "{gone}");
    // The next start finds what was left.
    stage.shelf.with(|inside| inside.broken = None);
    assert_eq!(stage.shelf.paths(), [A, B]);
    let stage = stage.crashed().await;
    eventually("nothing is left", async || stage.shelf.paths().is_empty()).await;

    stage.shelf.with(|inside| inside.broken = Some("vault_disabled"));
    let made = crew(&stage).await;
    assert!(made["cards"]["error"].is_string());
    let gone = stage.call(json!({ "action": "destroy", "name": "crew" })).await;
    assert_eq!(gone.get("cards"), None, "there was none to remove");
}

#[tokio::test]
async fn they_are_kept_by_whoever_has_taken_the_team_over() {
    let stage = Stage::new().await;
    crew(&stage).await;
    let other = hivekeep_kernel::SessionId::new();
    stage.fake.adopt(other);
    change(&stage, "lead", "running", "workspace.adopted").await;
    let status_of_a = || stage.shelf.card(A)["status"].clone();
    eventually("the old owner is not shown it", async || status_of_a() == "unknown").await;
    let status = json!({ "action": "status", "name": "crew" });
    stage.begin_as(other, status).answer().await.expect("it is the other's now");
    eventually("the new one is", async || status_of_a() == "ready").await;
    let destroy = json!({ "action": "destroy", "name": "crew" });
    stage.begin_as(other, destroy).answer().await.expect("gone");
    assert!(stage.shelf.paths().is_empty());
}

#[tokio::test]
async fn a_dead_link_and_the_tasks_of_a_member_are_on_its_card() {
    let stage = Stage::new().await;
    let made = crew(&stage).await;
    let link = |link: &'static str| {
        stage.fake.with(|world| {
            world.workspaces.values_mut().for_each(|one| one.link = link);
        });
    };
    link("unresponsive");
    change(&stage, "lead", "running", "workspace.link").await;
    eventually("it is told", async || stage.shelf.card(A)["status"] == "failed").await;
    let looks = stage.fake.with(|world| world.looks);
    assert_eq!(looks, 4, "both members when the team was made, and both for this");
    let why = stage.shelf.card(A)["reason"].clone();
    assert!(why.as_str().is_some_and(|why| why.contains("unresponsive")), "{why}");
    link("up");
    change(&stage, "lead", "running", "workspace.link").await;
    eventually("it is told", async || stage.shelf.card(A)["status"] == "ready").await;

    let looks = stage.fake.with(|world| world.looks);
    let id = made["member_workspace_ids"][1].as_str().expect("an id").parse().expect("an id");
    stage.guests.guest(id, |guest| guest.quick = false);
    let mut task = super::tasks::task("b", "t", "make");
    task["agent"] = json!("a");
    stage.call(task).await;
    eventually("it works", async || stage.shelf.card(B)["status"] == "working").await;
    assert_eq!(stage.shelf.card(A)["status"], "ready");
    let exited = hivekeep_ports::TaskOutcome::Exited { exit_code: 0 };
    stage.guests.guest(id, |guest| guest.end("t", exited));
    eventually("it is done", async || stage.shelf.card(B)["status"] == "ready").await;
    assert_eq!(stage.fake.with(|world| world.looks), looks, "no workspace is looked at for it");
}
