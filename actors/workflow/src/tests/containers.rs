//! Containers of steps and of DAGs: what is asked for, as whom commands run, and what is refused.

use hivekeep_plan::progress::RunOutcome;
use serde_json::{Value, json};

use super::Stage;
use crate::run::RunPlace;

/// Steps in containers of their own between others, which hand files and outputs on.
const STEPS: &str = r#"
type: chain
env: [{ TAG: "1" }]
steps:
- { id: first, run: "echo a > a" }
- id: built
  container: { image: "img:${env.TAG}", env: [{ DEEP: "${env.TAG}2" }], volumes: [".:/src:ro", "cache:/cache"], network: none }
  run: "cat a > b; echo \"$DEEP\" >> b; echo who=$AS_USER >> \"$DAGU_OUTPUT_FILE\"; echo said"
  outputs: [{ name: who }]
- { id: listed, action: container.run, with: { image: i, command: [sh, -c, 'echo "$AS_USER" >> b'] } }
- { type: docker, config: { image: i }, command: "cat b; echo lines >> b" }
- { run: "echo '${steps.built.outputs.who}' >> b; cat '${built.stdout}' >> b; cp b /workspace/left" }
"#;

#[tokio::test]
async fn steps_in_containers_share_the_folder_of_the_run() {
    let stage = Stage::new().await;
    let id = stage.begin(STEPS, Value::Null).await.expect("begun");
    let state = stage.closed(id).await;
    let fails: Vec<_> = state.left.values().filter_map(|left| left.error.clone()).collect();
    assert_eq!(state.outcome(), Some(RunOutcome::Succeeded), "{fails:?}");
    assert_eq!(stage.file("left").as_deref(), Some("a\n12\napp\nlines\napp\nsaid\n"));
    let called = stage.guest.called();
    let name = |node: u16| format!("run-{}-{node}-1", id.uuid().simple());
    let request = |node: u16, image: &str, volumes: Value| {
        let request = json!({
            "name": name(node), "base_image": image, "isolation": "sandbox", "allow_internet": false,
            "volumes": volumes, "lifetime_secs": 90_000, "at_end": "destroy",
        });
        ("workspace_create".to_owned(), request)
    };
    let gone = |node: u16| ("workspace_destroy".to_owned(), json!({ "workspace_id": name(node) }));
    let folder = json!({ "volume": "place:here", "path": "/work" });
    let source = json!({ "volume": "place:here", "path": "/src", "read_only": true });
    let cache = json!({ "volume": "cache", "path": "/cache", "read_only": false });
    let cleared = |path: String, recursive: bool| {
        let args = json!({ "place": "here", "path": path, "recursive": recursive });
        ("fs.delete".to_owned(), args)
    };
    let expected = [
        request(1, "img:1", json!([folder, source, cache])),
        gone(1),
        request(2, "i", json!([folder])),
        gone(2),
        request(3, "i", json!([folder])),
        gone(3),
        cleared(format!(".hivekeep-runs/{id}"), true),
        cleared(".hivekeep-runs".to_owned(), false),
    ];
    assert_eq!(called, expected);
}

#[tokio::test]
async fn a_run_without_a_place_has_a_volume_for_its_containers() {
    let stage = Stage::new().await;
    let text = "steps: [{ run: 'true', container: { image: i, user: u } }]";
    let id = stage.begin_at(RunPlace::Own, None, text, Value::Null).await.expect("begun");
    assert_eq!(stage.closed(id).await.outcome(), Some(RunOutcome::Succeeded));
    let label = format!("{id}-work");
    let called: Vec<_> = stage.guest.called();
    let tools: Vec<_> = called.iter().map(|(tool, _)| tool.as_str()).collect();
    let all =
        ["aegis.volume.create", "workspace_create", "workspace_destroy", "aegis.volume.delete"];
    assert_eq!(tools, all);
    assert_eq!(called[0].1, json!({ "label": label, "size_limit_bytes": 1 << 30, "ttl_hours": 1 }));
    assert_eq!(called[1].1["volumes"], json!([{ "volume": label, "path": "/work" }]));
    assert_eq!(called[3].1, json!({ "volume_id": label }));

    let folder = stage.ran(text, Value::Null).await;
    let error = folder.left.values().find_map(|left| left.error.clone()).expect("it failed");
    assert!(error.message.contains("has root alone"), "{error}");
    let place = RunPlace::Workspace("w".to_owned());
    let id = stage.begin_at(place, None, text, Value::Null).await.expect("begun");
    let refused = stage.closed(id).await.refused().cloned().expect("it is refused");
    assert!(refused.message.contains("is not for a run in a workspace"), "{refused}");
}

#[tokio::test]
async fn a_container_of_the_dag_is_made_once_for_all_steps() {
    let mut stage = Stage::new().await;
    let text = "container: { image: i, env: [A=b], working_dir: deep }\nsteps:\n- { run: 'mkdir -p deep' , container: { image: other } }\n- { id: x, run: 'until test -f ../go; do sleep 0.01; done; echo \"$AS_USER $A\" > ../who' }";
    std::fs::create_dir_all(stage.guest.folder().join("deep")).expect("made");
    let id = stage.begin(text, Value::Null).await.expect("begun");
    while stage.guest.started().len() < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    stage.rig = stage.rig.crashed().await;
    std::fs::write(stage.guest.folder().join("go"), "").expect("written");
    assert_eq!(stage.closed(id).await.outcome(), Some(RunOutcome::Succeeded));
    assert_eq!(stage.file("who").as_deref(), Some("app b\n"));
    let called = stage.guest.called();
    let names: Vec<_> = called
        .iter()
        .filter(|(tool, _)| tool == "workspace_create")
        .map(|(_, args)| args["name"].as_str().unwrap_or_default().to_owned())
        .collect();
    let run = id.uuid().simple().to_string();
    assert_eq!(names, [format!("run-{run}-0-1"), format!("run-{run}-all-0")]);
}

#[tokio::test]
async fn what_a_container_cannot_be_is_refused_by_its_name_before_anything_runs() {
    let stage = Stage::new().await;
    let step = |container: &str| format!("steps: [{{ run: x, container: {container} }}]");
    let action = |with: &str| format!("steps: [{{ action: docker.run, with: {with} }}]");
    for (text, why) in [
        (step("runs"), "cannot have `exec`: a container that runs is not entered"),
        (step("{ exec: runs }"), "cannot have `exec`"),
        (step("{ image: i, name: n }"), "cannot have `name`"),
        (step("{ image: i, pull_policy: always }"), "cannot have `pull_policy`"),
        (step("{ image: i, network: host }"), "cannot have `network`: a sandbox has no network"),
        (step("{ image: i, ports: ['1:1'] }"), "cannot have `ports`"),
        (step("{ image: i, platform: linux/arm64 }"), "cannot have `platform`"),
        (step("{ image: i, startup: entrypoint }"), "cannot have `startup`"),
        (step("{ image: i, wait_for: healthy }"), "cannot have `wait_for`"),
        (step("{ image: i, healthcheck: { test: [x] } }"), "cannot have `healthcheck.test`"),
        (step("{ image: i, restart_policy: always }"), "cannot have `restart_policy`"),
        (step("{ image: i, keep_container: true }"), "cannot have `keep_container`"),
        (step("{ image: i, volumes: ['/etc:/etc'] }"), "the volume `/etc:/etc`"),
        (step("{ image: i, volumes: ['./a:/b'] }"), "the volume `./a:/b`"),
        (action("{ image: i }"), "has no `command`"),
        (action("{ command: x }"), "has no `image`"),
        (
            action("{ image: i, command: x, host: { privileged: true } }"),
            "cannot have `host.privileged`: a container has no rights",
        ),
        (
            "steps: [{ action: noop, container: { image: i } }]".to_owned(),
            "is for a command, and `noop` is none",
        ),
        (
            "container: { image: i, pull_policy: never }\nsteps: [{ run: x }]".to_owned(),
            "the container of the DAG cannot have `pull_policy`",
        ),
    ] {
        let state = stage.ran(&text, Value::Null).await;
        let refused = state.refused().unwrap_or_else(|| panic!("{text} is run"));
        assert!(refused.message.contains(why), "{text}: {refused}");
    }
    assert!(stage.guest.started().is_empty());
}
