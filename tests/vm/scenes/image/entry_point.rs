//! Entry points: of an image from nothing, in which there is no shell.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::stage::{image, run, with_images};
use crate::house::House;

/// Two images of one static program, of which the second has no entry point; pulled under their tags.
fn pull_both(house: &House) {
    let at = |name: &str| house.path().join(name).display().to_string();
    let (layout, bundle) = (at("bare-layout"), at("bare-bundle"));
    let (bare, none) = (format!("{layout}:bare"), format!("{layout}:none"));
    run("umoci", &["init", "--layout", &layout]);
    run("umoci", &["new", "--image", &bare]);
    run("umoci", &["unpack", "--rootless", "--image", &bare, &bundle]);
    let folder = Path::new(&bundle).join("rootfs/opt");
    fs::create_dir(&folder).expect("made");
    let busybox =
        ["/usr/bin/busybox", "/bin/busybox"].into_iter().find(|it| Path::new(it).exists());
    fs::copy(busybox.expect("it is there"), folder.join("busybox")).expect("copied");
    run("umoci", &["repack", "--image", &bare, &bundle]);
    let config = ["config", "--image", &bare, "--config.workingdir", "/opt"];
    let words =
        ["--config.cmd", "echo", "--config.cmd", "by default", "--config.env", "A=of the image"];
    run("umoci", &[config.as_slice(), &words].concat());
    run("umoci", &["config", "--image", &bare, "--tag", "none"]);
    run("umoci", &["config", "--image", &bare, "--config.entrypoint", "./busybox"]);
    for (from, name) in [(bare, "bare"), (none, "none")] {
        let (pulled, said) = image(house, &["pull", &format!("oci:{from}"), "--name", name]);
        assert!(pulled, "{said}");
    }
}

pub fn an_entry_point_runs_where_there_is_no_shell(mut house: House) {
    with_images(&mut house, "[workspace.images]\nmin_free_mb = 0\n");
    pull_both(&house);
    for name in ["bare", "none"] {
        house.call("workspace_create", json!({ "name": name, "base_image": name }));
    }
    let call = |house: &House, args: Value| {
        let args = json!({ "place": "bare", "command": "", "entrypoint": true, "args": args });
        house.call("cmd.run", args)
    };
    let ran = call(&house, json!([]));
    let line = json!(["./busybox", "echo", "by default"]);
    assert_eq!((&ran["stdout"], &ran["argv"]), (&json!("by default\n"), &line), "{ran}");
    let info = house.call("workspace_info", json!({ "workspace_id": "bare" }));
    assert_eq!(info["entrypoint"], line, "{info}");
    assert_eq!(call(&house, json!(["pwd"]))["stdout"], "/opt\n");
    let env = call(&house, json!(["env"]))["stdout"].take();
    assert!(env.as_str().is_some_and(|text| text.contains("A=of the image\n")), "{env}");
    let shell = json!({ "workspace_id": "bare", "command": "true" });
    assert_eq!(house.refused("exec", shell).code, "cannot_start");

    // It is recorded with the disk, so that it is there whatever becomes of the image and the daemon.
    house.kill();
    house.start();
    let args = json!({ "place": "bare", "command": "cat", "entrypoint": true });
    let started = house.call("process_start", args);
    assert_eq!((&started["command"], &started["args"]), (&json!("./busybox"), &json!(["cat"])));
    let sent = json!({ "id": started["id"], "input": "said\n", "close": true });
    house.call("process_input", sent);
    let begun = std::time::Instant::now();
    while house.call("process_output", json!({ "id": started["id"] }))["output"] != "said\n" {
        assert!(begun.elapsed() < crate::house::PATIENCE, "it says nothing");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }

    let none = json!({ "place": "none", "command": "", "entrypoint": true });
    let refused = house.refused("cmd.run", none);
    assert_eq!(refused.code, "no_entry_point", "{}", refused.text);
    assert!(refused.text.contains("echo by default"), "{}", refused.text);
    let info = house.call("workspace_info", json!({ "workspace_id": "none" }));
    assert!(info["entrypoint"].is_null(), "{info}");
}
