//! Workspaces made from container images.

mod entry_point;
mod faults;
mod git;
mod software;
mod stage;
mod users;

use std::{
    fs,
    time::{Duration, Instant, SystemTime},
};

use serde_json::json;

use crate::{
    house::{House, PATIENCE},
    needs::Need,
};
pub use entry_point::an_entry_point_runs_where_there_is_no_shell;
pub use faults::every_point_of_a_pull_and_a_removal;
pub use software::python_and_node_work_and_what_npm_installs_outlives_the_workspace;
use stage::{image, policy, run, stocked, with_images, with_policy_beside};
pub use users::{commands_of_a_sandbox_run_as_the_user_of_the_image, with_users};

/// Programs that a registry with an image takes.
pub const REGISTRY: [Need; 4] = [
    Need::Program("umoci"),
    Need::Program("skopeo"),
    Need::Program("docker-registry"),
    Need::Program("busybox"),
];

/// Name of an image that is kept for a while beside those of all tests.
const IMAGE: &str = "test-of-users";

pub fn a_container_image_is_pulled_and_worked_in(mut house: House) {
    let (registry, reference) = stocked(house.path());
    let wanted = json!({ "name": "boxed", "base_image": reference });
    let refused = |refusal: Result<serde_json::Value, Option<crate::door::Refusal>>, code: &str| {
        let refusal = refusal.expect_err("it was made").expect("a refusal");
        assert_eq!(refusal.code, code, "{}", refusal.text);
    };
    with_images(&mut house, "");
    refused(house.try_call("workspace_create", wanted.clone()), "image_not_allowed");
    with_images(&mut house, &policy(&registry.1));

    let present = |house: &House| {
        let listed = house.call("aegis.runtime.list", json!({ "language": "boxed" }));
        listed["runtimes"][0]["present"].clone()
    };
    assert_eq!(present(&house), "no");
    house.call("workspace_create", wanted);
    assert_eq!(present(&house), "yes");
    let said = house.exec("boxed", "echo $GREETING from $PWD; busybox id -u");
    let is_root = rustix::process::geteuid().is_root();
    let user = if is_root { "1000" } else { "0" };
    assert_eq!(said, format!("hello from /srv/app\n{user}\n"));
    let info = house.call("workspace_info", json!({ "workspace_id": "boxed" }));
    assert_eq!(info["user"], if is_root { "app" } else { "root" });
    if !is_root {
        assert!(info["user_note"].as_str().is_some_and(|note| note.contains("app")), "{info}");
        let other = json!({ "workspace_id": "boxed", "command": "id", "user": "app" });
        assert_eq!(house.refused("exec", other).code, "invalid_input");
    }
    house.call("set_env", json!({ "workspace_id": "boxed", "vars": { "GREETING": "good day" } }));
    assert_eq!(house.exec("boxed", "echo $GREETING"), "good day\n");

    let (removed, said) = image(&house, &["rm", &reference]);
    assert!(!removed && said.contains("used by"), "{said}");
    // What it began with is recorded, and stays over a restart of everything.
    house.call("workspace_stop", json!({ "workspace_id": "boxed" }));
    house.kill();
    house.start();
    house.call("workspace_start", json!({ "workspace_id": "boxed" }));
    assert_eq!(house.exec("boxed", "echo $GREETING from $PWD"), "good day from /srv/app\n");
    house.call("workspace_destroy", json!({ "workspace_id": "boxed" }));
    let (removed, said) = image(&house, &["rm", &reference]);
    assert!(removed, "{said}");
    what_is_not_used_goes_by_itself(&mut house, &registry.1);
    let (listed, said) = image(&house, &["list", "--json"]);
    assert!(listed && !said.contains("idle"), "{said}");
}

pub fn commands_run_as_the_user_of_the_image(mut house: House) {
    let (registry, reference) = stocked(house.path());
    let (pulled, said) = {
        with_policy_beside(&mut house, &registry.1);
        image(&house, &["pull", &reference, "--name", IMAGE])
    };
    assert!(pulled, "{said}");
    house.call("workspace_create", json!({ "name": "boxed", "base_image": IMAGE }));
    let ask = "busybox id -u; busybox id -G; echo $HOME $USER $PWD; busybox kill -0 1 2>&1";
    let said = house.call("exec", json!({ "workspace_id": "boxed", "command": ask }));
    let stdout = said["stdout"].as_str().expect("text");
    let expected = "1000\n1001 44\n/srv/app app /srv/app\n";
    assert!(stdout.starts_with(expected), "{said}");
    assert!(stdout.contains("not permitted"), "it has the rights of root: {said}");
    let entry = json!({ "place": "boxed", "command": "", "entrypoint": true });
    let ran = house.call("cmd.run", entry);
    assert_eq!((&ran["stdout"], &ran["argv"]), (&json!("1000\n"), &json!(["busybox", "id", "-u"])));
    let info = house.call("workspace_info", json!({ "workspace_id": "boxed" }));
    assert_eq!(info["user"], "app");
    for (user, said) in [("root", "0\n"), ("44:media", "44\n")] {
        let ask = json!({ "workspace_id": "boxed", "command": "busybox id -u", "user": user });
        assert_eq!(house.call("exec", ask)["stdout"], said);
    }
    let ghost = json!({ "workspace_id": "boxed", "command": "true", "user": "ghost" });
    assert_eq!(house.refused("exec", ghost).code, "user_unknown");
    let start = json!({ "workspace_id": "boxed", "action": "start", "command": "busybox id -u > /tmp/who" });
    house.call("exec_background", start);
    let wait = "until [ -s /tmp/who ]; do busybox sleep 0.1; done; read who < /tmp/who; echo $who";
    assert_eq!(house.exec("boxed", wait), "1000\n");
    house.call("workspace_destroy", json!({ "workspace_id": "boxed" }));
    let (removed, said) = image(&house, &["rm", IMAGE]);
    assert!(removed, "{said}");
}

/// Of two images that were last used long ago the daemon removes the one that nothing has.
fn what_is_not_used_goes_by_itself(house: &mut House, host: &str) {
    with_images(house, &format!("{}prune_every_secs = 1\n", policy(host)));
    let reference = format!("{host}/lib/app:1");
    house.call("workspace_create", json!({ "name": "kept", "base_image": reference }));
    // Not the same tree, which would be in use.
    let layout = format!("{}:app", house.path().join("layout").display());
    let file = house.path().join("config.toml").display().to_string();
    run("umoci", &["insert", "--rootless", "--image", &layout, &file, "/etc/more"]);
    let (pulled, said) = image(house, &["pull", &format!("oci:{layout}"), "--name", "idle"]);
    assert!(pulled, "{said}");
    let root = house.path().join("images");
    let long_ago = SystemTime::now() - Duration::from_secs(30 * 24 * 3600);
    for folder in ["images", "objects"] {
        for entry in fs::read_dir(root.join(folder)).expect("listed").flatten() {
            let file = fs::File::open(entry.path()).expect("opened");
            file.set_modified(long_ago).expect("a time");
        }
    }
    let begun = Instant::now();
    while root.join("images/idle.json").exists() {
        assert!(begun.elapsed() < PATIENCE, "it stays\n{}", house.stderr());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(house.exec("kept", "echo $GREETING"), "hello\n");
    let (inspected, said) = image(house, &["inspect", &reference]);
    assert!(inspected, "{said}");
    house.call("workspace_stop", json!({ "workspace_id": "kept" }));
    house.call("workspace_start", json!({ "workspace_id": "kept" }));
    house.call("workspace_destroy", json!({ "workspace_id": "kept" }));
}
