//! Workspaces made from container images.

use std::{
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use serde_json::json;

use crate::house::{House, PATIENCE, which};

/// Registry on loopback, ended with the test.
struct Registry(Child, String);

impl Drop for Registry {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

fn run(program: &str, args: &[&str]) {
    let done = Command::new(program).args(args).stdin(Stdio::null()).output().expect("started");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {args:?}: {said}");
}

fn registry(folder: &Path) -> Registry {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port");
    let config = folder.join("registry.yml");
    let text = format!(
        "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {:?}}}}}\nhttp: {{addr: \"{free}\"}}\n",
        folder.join("registry")
    );
    std::fs::write(&config, text).expect("written");
    let mut command = Command::new("docker-registry");
    command.arg("serve").arg(config).stdout(Stdio::null()).stderr(Stdio::null());
    let registry = Registry(command.spawn().expect("started"), free.to_string());
    let begun = Instant::now();
    while TcpStream::connect(free).is_err() {
        assert!(begun.elapsed() < PATIENCE, "the registry does not start");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    registry
}

/// Image from nothing with one static program, under two names.
fn push(folder: &Path, host: &str) {
    let (layout, bundle) = (folder.join("layout"), folder.join("bundle"));
    let (layout, bundle) = (layout.to_str().expect("text"), bundle.to_str().expect("text"));
    let image = format!("{layout}:app");
    run("umoci", &["init", "--layout", layout]);
    run("umoci", &["new", "--image", &image]);
    run("umoci", &["unpack", "--rootless", "--image", &image, bundle]);
    let bin = Path::new(bundle).join("rootfs/bin");
    std::fs::create_dir(&bin).expect("made");
    let busybox =
        ["/usr/bin/busybox", "/bin/busybox"].into_iter().find(|it| Path::new(it).exists());
    std::fs::copy(busybox.expect("it is there"), bin.join("busybox")).expect("copied");
    std::fs::hard_link(bin.join("busybox"), bin.join("sh")).expect("linked");
    run("umoci", &["repack", "--image", &image, bundle]);
    let config = ["config", "--image", &image, "--config.env", "GREETING=hello"];
    run("umoci", &[config.as_slice(), &["--config.workingdir", "/srv/app"]].concat());
    let (from, to) = (format!("oci:{image}"), format!("docker://{host}/lib/app:1"));
    run("skopeo", &["--insecure-policy", "copy", "--dest-tls-verify=false", &from, &to]);
}

pub fn a_container_image_is_pulled_and_worked_in(mut house: House) {
    for program in ["umoci", "skopeo", "docker-registry", "busybox"] {
        if let Err(program) = which(program) {
            println!("SKIPPED: {program} is not installed; `cargo xtask setup` installs it");
            return;
        }
    }
    let folder = house.path().to_owned();
    let registry = registry(&folder);
    push(&folder, &registry.1);
    let reference = format!("{}/lib/app:1", registry.1);
    let wanted = json!({ "name": "boxed", "base_image": reference });
    let refused = |refusal: Result<serde_json::Value, Option<crate::door::Refusal>>, code: &str| {
        let refusal = refusal.expect_err("it was made").expect("a refusal");
        assert_eq!(refusal.code, code, "{}", refusal.text);
    };
    // Images of its own, so that what is removed below is nobody else's.
    let config = folder.join("config.toml");
    let text = std::fs::read_to_string(&config).expect("read");
    let line = text.lines().find(|line| line.starts_with("image_dir")).expect("a line").to_owned();
    let text = text.replace(&line, &format!("image_dir = {:?}", folder.join("images")));
    std::fs::write(&config, &text).expect("written");
    house.kill();
    house.start();
    refused(house.try_call("workspace_create", wanted.clone()), "image_not_allowed");
    let host = &registry.1;
    let policy = format!(
        "[workspace.images]\nregistries = [{host:?}]\nplain_http = [{host:?}]\nmin_free_mb = 0\n"
    );
    std::fs::write(&config, text + &policy).expect("written");
    house.kill();
    house.start();

    house.call("workspace_create", wanted);
    let said = house.exec("boxed", "echo $GREETING from $PWD; busybox id -u");
    assert_eq!(said, "hello from /srv/app\n0\n");
    house.call("set_env", json!({ "workspace_id": "boxed", "vars": { "GREETING": "good day" } }));
    assert_eq!(house.exec("boxed", "echo $GREETING"), "good day\n");

    let image = |args: &[&str]| {
        let done = house.command().arg("image").args(args).output().expect("started");
        (
            done.status.success(),
            String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned(),
        )
    };
    let (removed, said) = image(&["rm", &reference]);
    assert!(!removed && said.contains("used by"), "{said}");
    // What it began with is recorded, and stays over a restart of everything.
    house.call("workspace_stop", json!({ "workspace_id": "boxed" }));
    house.kill();
    house.start();
    house.call("workspace_start", json!({ "workspace_id": "boxed" }));
    assert_eq!(house.exec("boxed", "echo $GREETING from $PWD"), "good day from /srv/app\n");
    house.call("workspace_destroy", json!({ "workspace_id": "boxed" }));
    let image = |args: &[&str]| {
        let done = house.command().arg("image").args(args).output().expect("started");
        (
            done.status.success(),
            String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned(),
        )
    };
    let (removed, said) = image(&["rm", &reference]);
    assert!(removed, "{said}");
    let (listed, said) = image(&["list", "--json"]);
    assert!(listed && !said.contains("lib/app"), "{said}");
}
