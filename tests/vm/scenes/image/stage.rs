//! Debian's registry, an image in it, and a daemon with images of its own.

use std::{
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use crate::house::{House, PATIENCE};

/// Restarts the daemon with this added to the configuration it had first, and images of its own, so
/// that what is removed is nobody else's.
pub fn with_images(house: &mut House, more: &str) {
    let (config, first) = (house.path().join("config.toml"), house.path().join("first.toml"));
    if !first.exists() {
        std::fs::copy(&config, &first).expect("copied");
    }
    let text = std::fs::read_to_string(&first).expect("read");
    let line = text.lines().find(|line| line.starts_with("image_dir")).expect("a line").to_owned();
    let text = text.replace(&line, &format!("image_dir = {:?}", house.path().join("images")));
    std::fs::write(&config, format!("{text}{more}")).expect("written");
    house.kill();
    house.start();
}

/// Restarts the daemon with the images that it had, which virtual machines take their kernel of.
pub fn with_policy_beside(house: &mut House, host: &str) {
    let config = house.path().join("config.toml");
    let text = std::fs::read_to_string(&config).expect("read");
    std::fs::write(&config, format!("{text}{}", policy(host))).expect("written");
    house.kill();
    house.start();
}

/// Part of a configuration that lets tools pull from a registry, and names an image of it as a
/// runtime.
pub fn policy(host: &str) -> String {
    format!(
        "[[runtimes.images]]\nlanguage = \"boxed\"\nversion = \"1\"\nimage = \"{host}/lib/app:1\"\n\
         [workspace.images]\nregistries = [{host:?}]\nplain_http = [{host:?}]\nmin_free_mb = 0\n"
    )
}

/// Runs `hivekeep image`; its success and what it said.
pub fn image(house: &House, args: &[&str]) -> (bool, String) {
    let done = house.command().arg("image").args(args).output().expect("started");
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    (done.status.success(), said)
}

/// Registry on loopback, ended with the test.
pub struct Registry(Child, pub String);

impl Drop for Registry {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

pub fn run(program: &str, args: &[&str]) {
    let done = Command::new(program).args(args).stdin(Stdio::null()).output().expect("started");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {args:?}: {said}");
}

/// A registry with an image, and the reference of that.
pub fn stocked(folder: &Path) -> (Registry, String) {
    let registry = registry(folder);
    push(folder, &registry.1);
    let reference = format!("{}/lib/app:1", registry.1);
    (registry, reference)
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
    let etc = Path::new(bundle).join("rootfs/etc");
    std::fs::create_dir(&etc).expect("made");
    std::fs::write(etc.join("passwd"), "root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/srv/app:\n")
        .expect("written");
    std::fs::write(etc.join("group"), "root:x:0:\nmedia:x:44:app\n").expect("written");
    run("umoci", &["repack", "--image", &image, bundle]);
    let config = ["config", "--image", &image, "--config.env", "GREETING=hello"];
    let more = ["--config.workingdir", "/srv/app", "--config.user", "app"];
    let line =
        ["--config.entrypoint", "busybox", "--config.entrypoint", "id", "--config.cmd", "-u"];
    run("umoci", &[config.as_slice(), &more, &line].concat());
    let (from, to) = (format!("oci:{image}"), format!("docker://{host}/lib/app:1"));
    run("skopeo", &["--insecure-policy", "copy", "--dest-tls-verify=false", &from, &to]);
}
