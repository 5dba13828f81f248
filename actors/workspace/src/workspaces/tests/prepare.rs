//! `workspace_prepare`, with guests that do what the test says.

use hivekeep_kernel::{Progress, SessionId, ToolError};
use hivekeep_machine::Error;
use hivekeep_ports::NetworkMode;
use hivekeep_protocol::Argv;
use serde_json::{Value, json};

use super::stage::Stage;

fn recipe() -> Value {
    json!({
        "name": "g", "disk_gb": 1, "git_url": "https://me:s3cr3t@example.org/r.git",
        "setup_commands": ["make deps", "make"], "timeout_secs": 7,
    })
}

async fn prepare(stage: &Stage, recipe: Value) -> Result<Value, ToolError> {
    stage.call("workspace_prepare", recipe).await
}

fn with(field: &str, value: impl Into<Value>) -> Value {
    let mut changed = recipe();
    changed[field] = value.into();
    changed
}

/// No record, no file, no name, no quota.
fn assert_nothing_is_left(stage: &Stage) {
    assert_eq!((stage.records().as_str(), stage.files()), ("", Vec::new()));
    assert_eq!((stage.daemon.quota.held(), stage.daemon.shared.directory.cards().len()), (0, 0));
}

#[tokio::test]
async fn a_golden_workspace_is_made_once_and_answered_again() {
    let stage = Stage::open().await;
    let (progress, mut told) = Progress::channel(16);
    let answer = stage.send("workspace_prepare", recipe(), |cx| cx.progress = progress);
    let made = answer.unwrap().await.unwrap().unwrap();
    assert_eq!(
        (&made["snapshot_name"], &made["reused_existing"]),
        (&json!("golden"), &json!(false))
    );
    let kinds: Vec<_> =
        made["steps"].as_array().unwrap().iter().map(|step| &step["kind"]).collect();
    assert_eq!(kinds, ["boot", "clone", "command", "command", "snapshot"]);

    let commands = stage.commands();
    let words = |words: &[&str]| Argv::Direct(words.iter().map(|word| word.to_string()).collect());
    let argvs: Vec<_> = commands.iter().map(|exec| exec.argv.clone()).collect();
    let url = "https://example.org/r.git";
    assert_eq!(
        argvs,
        [
            words(&["git", "clone", "--no-progress", "--", url, "/workspace"]),
            Argv::Shell("make deps".to_owned()),
            Argv::Shell("make".to_owned()),
        ]
    );
    assert!(commands.iter().all(|exec| exec.timeout_ms == 7_000));
    assert!(commands[1..].iter().all(|exec| exec.workdir.is_none()));
    assert!(!format!("{commands:?}").contains("s3cr3t"));
    let env = |exec: &hivekeep_protocol::RunCommand, name| {
        exec.env.iter().find(|(is, _)| is == name).map(|(_, value)| value.clone())
    };
    assert_eq!(env(&commands[0], "GIT_TERMINAL_PROMPT").as_deref(), Some("0"));
    assert!(!env(&commands[0], "GIT_ALLOW_PROTOCOL").unwrap().contains("ext"));

    let mut steps = Vec::new();
    while let Ok(update) = told.try_recv() {
        steps.push((update.done, update.total.unwrap(), update.message));
    }
    assert_eq!(steps[3], (3.0, 5.0, "step 4 of 5: make".to_owned()), "{steps:?}");
    assert!(steps.is_sorted_by(|one, next| one.0 < next.0), "{steps:?}");
    let everything = format!("{made} {steps:?} {}", stage.records());
    assert!(everything.contains(url) && !everything.contains("s3cr3t"), "{everything}");

    // Another token is the same recipe; nothing is run again.
    let again = prepare(&stage, with("git_url", "https://other@example.org/r.git")).await.unwrap();
    assert_eq!((&again["reused_existing"], &again["steps"]), (&json!(true), &json!([])));
    for field in ["workspace_id", "snapshot_id", "has_memory"] {
        assert_eq!(again[field], made[field]);
    }
    assert_eq!(stage.commands(), []);
    let info = stage.info("g").await;
    assert_eq!(
        (&info["state"], &info["snapshots"][0]["name"]),
        (&json!("running"), &json!("golden"))
    );
    assert_eq!(info["snapshots"][0]["has_memory"], true);
    let forked = json!({ "workspace_id": "g", "snapshot_name": "golden", "new_name": "f" });
    stage.call("workspace_fork", forked).await.unwrap();
}

#[tokio::test]
async fn it_is_answered_again_by_the_next_daemon() {
    let mut stage = Stage::open().await;
    let made = prepare(&stage, recipe()).await.unwrap();
    stage.restart().await;
    let again = prepare(&stage, recipe()).await.unwrap();
    assert_eq!(
        (&again["reused_existing"], &again["snapshot_id"]),
        (&json!(true), &made["snapshot_id"])
    );
}

#[tokio::test]
async fn another_recipe_or_another_workspace_of_the_name_is_left_alone() {
    let stage = Stage::open().await;
    let made = prepare(&stage, recipe()).await.unwrap();
    let mut other = with("setup_commands", json!(["make"]));
    other["memory_mb"] = json!(1024);
    let refused = prepare(&stage, other).await.unwrap_err();
    assert_eq!(refused.code, "recipe_differs");
    assert_eq!(refused.details["fields"], json!(["setup_commands", "memory_mb"]));
    // It belongs to somebody who is there.
    let answer = stage.send("workspace_prepare", recipe(), |cx| cx.session = SessionId::new());
    assert_eq!(answer.unwrap().await.unwrap().unwrap_err().code, "owner_active");
    let delete = json!({ "workspace_id": "g", "action": "delete", "name": "golden" });
    stage.call("snapshot", delete).await.unwrap();
    assert_eq!(prepare(&stage, recipe()).await.unwrap_err().code, "not_prepared");
    assert_eq!(stage.info("g").await["workspace_id"], made["workspace_id"]);

    stage.create("plain").await;
    let refused = prepare(&stage, with("name", "plain")).await.unwrap_err();
    assert_eq!(refused.code, "not_prepared");
    assert_eq!(stage.info("plain").await["state"], "running");
}

#[tokio::test]
async fn what_fails_leaves_nothing() {
    let stage = Stage::open().await;
    let refused = prepare(&stage, with("setup_commands", json!(["make", "exit 3", "stall"])));
    let refused = refused.await.unwrap_err();
    assert_eq!(refused.code, "setup_failed");
    let of = |key: &str| refused.details[key].clone();
    assert_eq!((of("command_index"), of("exit_code")), (json!(1), json!(3)));
    let output = of("output").as_str().unwrap().to_owned();
    assert!(output.ends_with("xxthe end") && output.len() < 9_000, "{}", output.len());
    assert_nothing_is_left(&stage);

    let missing = with("git_url", "https://me:s3cr3t@example.org/missing");
    let refused = prepare(&stage, missing).await.unwrap_err();
    assert_eq!(
        (refused.code.as_ref(), &refused.details["exit_code"]),
        ("git_clone_failed", &json!(128))
    );
    let said = format!("{refused:?}");
    assert!(said.contains("does not appear") && !said.contains("s3cr3t"), "{said}");
    assert_nothing_is_left(&stage);

    let refused = prepare(&stage, with("git_url", "file:///nogit")).await.unwrap_err();
    assert_eq!(refused.code, "git_missing");
    assert_nothing_is_left(&stage);
    prepare(&stage, recipe()).await.unwrap();
}

#[tokio::test]
async fn a_snapshot_that_fails_leaves_nothing() {
    let stage = Stage::open().await;
    stage.driver.fail_next_save(Error::BadPlan("a test".to_owned()));
    let refused = prepare(&stage, recipe()).await.unwrap_err();
    assert_eq!(refused.code, "snapshot_failed");
    assert_nothing_is_left(&stage);
}

#[tokio::test]
async fn a_cancelled_call_ends_its_command_and_leaves_nothing() {
    let stage = Stage::open().await;
    let cancel = tokio_util::sync::CancellationToken::new();
    let (progress, mut told) = Progress::channel(16);
    let stalling = with("setup_commands", json!(["stall"]));
    let answer = stage.send("workspace_prepare", stalling.clone(), |cx| {
        (cx.cancel, cx.progress) = (cancel.clone(), progress);
    });
    while !told.recv().await.unwrap().message.ends_with("stall") {}
    // Meanwhile nobody else makes it, and nobody takes it away.
    let refused = prepare(&stage, stalling).await.unwrap_err();
    assert_eq!((refused.code.as_ref(), refused.retryable), ("prepare_in_progress", true));
    let refused =
        stage.call("workspace_destroy", json!({ "workspace_id": "g" })).await.unwrap_err();
    assert_eq!(refused.code, "workspace_busy");
    assert_eq!(stage.info("g").await["state"], "creating");
    cancel.cancel();
    assert_eq!(answer.unwrap().await.unwrap().unwrap_err().code, "cancelled");
    assert_nothing_is_left(&stage);
}

#[tokio::test]
async fn a_daemon_that_ends_in_the_middle_leaves_nothing_to_the_next_one() {
    let mut stage = Stage::open().await;
    let (progress, mut told) = Progress::channel(16);
    let stalling = with("setup_commands", json!(["stall"]));
    let cut = stage.send("workspace_prepare", stalling, |cx| cx.progress = progress).unwrap();
    while !told.recv().await.unwrap().message.ends_with("stall") {}
    stage.restart().await;
    let answer = cut.await;
    assert!(!matches!(answer, Ok(Ok(_))), "{answer:?}");
    let cards = || stage.daemon.shared.directory.cards();
    stage.until(|| stage.records().is_empty() && cards().is_empty()).await;
    assert_nothing_is_left(&stage);
    prepare(&stage, recipe()).await.unwrap();
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_before_anything_is_made() {
    let stage = Stage::open().await;
    for (field, value, code) in [
        ("name", json!("No WorkspaceName"), "invalid_input"),
        ("git_url", json!("ext::sh -c id"), "invalid_input"),
        ("git_url", json!("--upload-pack=id"), "invalid_input"),
        ("setup_commands", json!(["true", " "]), "invalid_input"),
        ("setup_commands", json!(["x".repeat(300_000)]), "invalid_input"),
        ("base_image", json!("none"), "image_unknown"),
        ("isolation", json!("sandbox"), "snapshot_unsupported"),
    ] {
        let refused = prepare(&stage, with(field, value)).await.unwrap_err();
        assert_eq!(refused.code, code, "{field}");
    }
    assert!(stage.driver.calls().is_empty());
    assert_nothing_is_left(&stage);
}

/// A stage on a network that guests take as it is given to them.
async fn on(mode: NetworkMode) -> Stage {
    super::network::open(mode).await.0
}

#[tokio::test]
async fn a_setup_has_the_internet_and_what_is_golden_has_not() {
    let stage = on(NetworkMode::Bridge).await;
    let (progress, mut told) = Progress::channel(16);
    let cancel = tokio_util::sync::CancellationToken::new();
    let stalling = with("setup_commands", json!(["stall"]));
    let answer = stage.send("workspace_prepare", stalling, |cx| {
        (cx.cancel, cx.progress) = (cancel.clone(), progress);
    });
    while !told.recv().await.unwrap().message.ends_with("stall") {}
    assert_eq!(stage.info("g").await["network"]["allow_internet"], true);
    cancel.cancel();
    assert_eq!(answer.unwrap().await.unwrap().unwrap_err().code, "cancelled");
    assert_eq!(stage.network.members(), []);

    let made = prepare(&stage, recipe()).await.unwrap();
    assert_eq!((&made["internet"], made["ip"].is_string()), (&json!("during_setup"), true));
    assert_eq!(stage.info("g").await["network"]["allow_internet"], false);
    stage.call("workspace_destroy", json!({ "workspace_id": "g" })).await.unwrap();
    let without = prepare(&stage, with("allow_internet", false)).await.unwrap();
    assert_eq!(without["internet"], "off");
    assert_eq!(stage.info("g").await["network"]["allow_internet"], false);
}

#[tokio::test]
async fn where_there_is_no_internet_it_is_said_or_refused() {
    for mode in [
        NetworkMode::User { reason: "no bridge".to_owned() },
        NetworkMode::Off { reason: "no bridge".to_owned() },
    ] {
        let stage = on(mode).await;
        let refused = prepare(&stage, with("allow_internet", true)).await.unwrap_err();
        assert_eq!(refused.code, "network_unavailable");
        assert_nothing_is_left(&stage);
        let made = prepare(&stage, recipe()).await.unwrap();
        assert_eq!(
            (&made["internet"], &made["internet_reason"]),
            (&json!("unavailable"), &json!("no bridge"))
        );
    }
}

#[tokio::test]
async fn an_internet_that_was_not_proven_is_done_without_unless_it_was_asked_for() {
    let stage = on(NetworkMode::Bridge).await;
    stage.network.fail_next_with("set_policy", "policy_unavailable");
    let refused = prepare(&stage, with("allow_internet", true)).await.unwrap_err();
    assert_eq!(refused.code, "policy_unavailable");
    assert_eq!(stage.network.members(), []);
    stage.network.fail_next_with("set_policy", "policy_unavailable");
    let made = prepare(&stage, recipe()).await.unwrap();
    assert_eq!(made["internet"], "unavailable");
    assert_eq!(made["internet_reason"], "set_policy fails by script");
}
