//! Workspaces that were not made from nothing have the network too.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use hivekeep_network::selftest::{
    talk::{self, PATIENCE, TestServer},
    test_network::{PUBLIC, TestNetwork},
};
use serde_json::json;

use super::{PORT, destroy, emptied, forward, frames, greeted, ip, knock, policy, serve, stage};
use crate::{
    house::House,
    leaks,
    scenes::pool::{ids, once_ready},
};

pub fn a_claimed_machine_is_connected(mut house: House) {
    let ready = ids(&once_ready(&house, 2));
    let _server =
        TestServer::start(&stage(&house).world, SocketAddrV4::new(PUBLIC, PORT)).expect("a server");
    for name in ["a", "b"] {
        let args = json!({ "name": name, "allow_internet": name == "a" });
        let made = house.call("workspace_create", args);
        assert_eq!(made["from_pool"], true, "{made}");
        assert!(ready.contains(made["workspace_id"].as_str().expect("an id")));
        let shown =
            house.exec(name, "ip -4 -o addr show dev eth0; arping -c 1 -w 5 -I eth0 10.213.0.1");
        assert!(shown.contains(&format!(" {}/", ip(&house, name))), "{shown}");
        assert!(shown.contains("Received 1 response"), "no gateway: {shown}");
    }
    let (a, b) = (ip(&house, "a"), ip(&house, "b"));
    assert_ne!(a, b);
    assert!(greeted(&house, "a", PUBLIC, PORT), "it was given the internet");
    assert!(!greeted(&house, "b", PUBLIC, PORT), "it was given none");
    let heard = frames(&house, "b");
    let tried = knock(&house, "a", b);
    assert_eq!(frames(&house, "b"), heard, "something of a reached b:\n{tried}");
    serve(&house, "b", &[80]);
    let port = forward(&house, "b", 80, None);
    let at = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    assert_eq!(talk::tcp(&stage(&house).host, at, PATIENCE).as_deref(), Ok("tcp served"));
    policy(&house, "a", json!({ "allow_inter_vm": true }));
    policy(&house, "b", json!({ "allow_inter_vm": true }));
    assert!(greeted(&house, "a", b, 80), "both allow it");
    for name in ["a", "b"] {
        destroy(&house, name);
    }
    leaks::check(&house);
    house.stop(true);
    house.start();
    once_ready(&house, 2);
}

/// A setup clones over the internet, which what it made has not.
pub fn a_repository_is_cloned_from_afar(mut house: House) {
    let served = tempfile::tempdir().expect("a folder");
    let (server, head) = GitServer::start(stage(&house), served.path());
    let url = format!("git://{PUBLIC}/repo.git");
    let asked = json!({
        "name": "g", "git_url": url,
        "setup_commands": ["git log -1 --format=%H > /root/head && cp told /dev/shm/told"],
    });
    let made = house.call("workspace_prepare", asked.clone());
    assert_eq!(made["has_memory"], true, "{made}");
    let args = json!({ "workspace_id": "g", "snapshot_name": "golden", "new_name": "f" });
    house.call("workspace_fork", args);
    for name in ["g", "f"] {
        let said = house.exec(name, "cat /root/head /dev/shm/told; git -C /workspace status -s");
        assert_eq!(said, format!("{head}\nfrom afar\n"), "{name}");
        assert!(!greeted(&house, name, PUBLIC, GitServer::PORT), "{name} kept the internet");
        destroy(&house, name);
    }
    drop(server);
    let refused = house.refused("workspace_prepare", asked);
    assert_eq!(refused.code, "git_clone_failed");
    emptied(&mut house);
    leaks::check(&house);
}

/// git's own server, in the world.
struct GitServer(Child);

impl GitServer {
    const PORT: u16 = 9418;

    /// Serves a repository of one commit, whose id it tells.
    fn start(stage: &TestNetwork, folder: &Path) -> (Self, String) {
        let script = "git init -q work && cd work && echo 'from afar' > told && git add told && \
             git -c user.name=a -c user.email=a@b commit -qm one && git clone -q --bare . ../repo.git && \
             git log -1 --format=%H";
        let made = Command::new("sh").args(["-c", script]).current_dir(folder).output();
        let made = made.expect("a shell");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        // Itself, not the git that would start it: it has to be ended.
        let found = Command::new("git").arg("--exec-path").output().expect("git").stdout;
        let found = String::from_utf8(found).expect("a path");
        let mut command = Command::new(Path::new(found.trim()).join("git-daemon"));
        command
            .args(["--export-all", "--reuseaddr"])
            .arg(format!("--listen={PUBLIC}"))
            .arg(format!("--base-path={}", folder.display()))
            .args([folder])
            .stdin(Stdio::null());
        let server = Self(stage.world.run(move || command.spawn()).expect("git daemon"));
        let begun = Instant::now();
        let at = SocketAddrV4::new(PUBLIC, Self::PORT);
        while stage.world.run(move || std::net::TcpStream::connect(at)).is_err() {
            assert!(begun.elapsed() < PATIENCE, "git daemon does not listen");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        (server, String::from_utf8(made.stdout).expect("an id").trim().to_owned())
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}
