//! git over https: from the default image, to a server with a certificate of one's own.

use std::{net::SocketAddrV4, path::Path, process::Command};

use hivekeep_network::selftest::test_network::{PUBLIC, WORLD};
use serde_json::{Value, json};

use super::{super::repositories, destroy, emptied, policy, stage};
use crate::{
    house::House,
    https::{Authority, GitServer, HOST, TOKEN, USER},
    leaks,
    names::Names,
};

/// Of the server that nobody vouches for.
const ELSEWHERE: u16 = 8443;

/// A daemon that trusts an authority beside those of the image.
pub fn config(authority: &Authority) -> String {
    format!("{}[git]\nca_file = {:?}\n", super::CONFIG, authority.path())
}

/// On the host, in a folder; what it printed.
fn sh(folder: &Path, script: &str) -> String {
    let ran = Command::new("sh").args(["-ec", script]).current_dir(folder).output();
    let ran = ran.expect("a shell");
    assert!(ran.status.success(), "{script}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("text").trim().to_owned()
}

pub fn git_works_over_https(mut house: House, ours: &Authority) {
    let folder = tempfile::tempdir().expect("a folder");
    let head = sh(
        folder.path(),
        "git init -q -b main work; cd work; echo 'from afar' > told; git add told; \
         git -c user.name=a -c user.email=a@b.example commit -qm one; \
         git clone -q --bare . ../open.git; git clone -q --bare . ../closed.git; git rev-parse HEAD",
    );
    let world = &stage(&house).world;
    let _names = Names::serve(world, SocketAddrV4::new(WORLD, 53), PUBLIC);
    let serve = |port, by: &Authority| {
        GitServer::start(world, SocketAddrV4::new(PUBLIC, port), by, folder.path())
    };
    let stranger = Authority::new("nobody knows them");
    let _servers = [serve(443, ours), serve(ELSEWHERE, &stranger)];

    let made = house.call(
        "workspace_prepare",
        json!({
            "name": "g", "git_url": format!("https://{HOST}/open.git"),
            "setup_commands": ["git log -1 --format=%H > /root/head"],
        }),
    );
    assert_eq!(made["steps"][1]["kind"], "clone", "{made}");
    assert_eq!(house.exec("g", "cat /root/head told"), format!("{head}\nfrom afar\n"));
    policy(&house, "g", json!({ "egress_allow": [HOST] }));
    with_a_credential(&house, folder.path());
    bound_to_a_volume(&house, folder.path());
    trusted_by_the_workspace(&house, ours, &stranger);
    destroy(&house, "g");
    emptied(&mut house);
    leaks::check(&house);
}

fn clone(url: String, path: &str) -> Value {
    json!({ "workspace_id": "g", "url": url, "path": path })
}

/// There and back again, by a server that asks who one is.
fn with_a_credential(house: &House, served: &Path) {
    let mut asked = clone(format!("https://{HOST}/closed.git"), "c");
    let refused = house.refused("git_clone", asked.clone());
    assert_eq!(refused.code, "authentication_required", "{}", refused.text);
    let credential = json!({ "username": USER, "token": TOKEN, "host": HOST });
    asked["credential"] = credential.clone();
    house.call("git_clone", asked);
    house.exec("g", "echo more >> c/told");
    let author = json!({
        "workspace_id": "g", "path": "c", "message": "two",
        "author_name": "a", "author_email": "a@b.example",
    });
    let committed = house.call("git_commit", author);
    let push = json!({ "workspace_id": "g", "path": "c", "credential": credential });
    assert_eq!(house.call("git_push", push)["status"], "pushed");
    let there = sh(served, "git -C closed.git rev-parse main");
    assert_eq!(committed["commit_sha"], there);
    let look = format!("grep -rl {TOKEN} /etc /root /run /tmp /workspace; true");
    assert_eq!(house.exec("g", &look), "");
}

/// A binding's git runs in machines of one operation, which have the network and the volume; a credential
/// is there for that one alone.
fn bound_to_a_volume(house: &House, served: &Path) {
    let url = format!("https://{HOST}/closed.git");
    let credential = json!({ "username": USER, "token": TOKEN });
    let clone = json!({ "repo_url": url, "label": "app", "size_limit_bytes": 32 << 20 });
    house.call("aegis.git.clone", clone);
    let refused = repositories::done(house, "app");
    let code = &refused["error"]["code"];
    assert_eq!((&refused["status"], code), (&json!("failed"), &json!("authentication_required")));
    let of = |more: Value| {
        let mut args = json!({ "binding_id": "app" });
        args.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
        args
    };
    house.call("aegis.git.refresh", of(json!({ "credential": credential })));
    assert_eq!(repositories::done(house, "app")["status"], "ready");
    let write = json!({ "volume_id": "git-app", "path": "app/told", "content": "of the volume\n" });
    house.call("aegis.file.write", write);
    let committed = house.call("aegis.git.commit", of(json!({ "message": "three" })));
    house.call("aegis.git.push", of(json!({ "credential": credential })));
    assert_eq!(committed["commit_sha"], sh(served, "git -C closed.git rev-parse main"));
    let kept = format!("grep -rl {TOKEN} state run || true");
    assert_eq!(sh(house.path(), &kept), "", "a token is kept");
    house.call("aegis.git.delete", of(json!({})));
}

/// Whom nobody vouches for is not believed, and git says so; the workspace's own word counts
/// more than the operator's.
fn trusted_by_the_workspace(house: &House, ours: &Authority, stranger: &Authority) {
    let elsewhere = clone(format!("https://{HOST}:{ELSEWHERE}/open.git"), "e");
    let refused = house.refused("git_clone", elsewhere.clone());
    assert_eq!(refused.code, "git_clone_failed");
    let said = refused.details["output"].as_str().expect("git's words");
    assert!(said.contains("certificate"), "{said}");
    // By exec the image's authorities are trusted alone, until somebody says otherwise.
    let look = |port: u16| format!("git ls-remote -q https://{HOST}:{port}/open.git main 2>&1");
    let unknown = super::say(house, "g", &look(443));
    assert!(unknown.contains("certificate"), "{unknown}");
    let path = "/usr/local/share/stranger.pem";
    let write = json!({ "workspace_id": "g", "path": path, "content": stranger.pem() });
    house.call("file_write", write);
    let vars = json!({ "workspace_id": "g", "vars": { "GIT_SSL_CAINFO": path } });
    house.call("set_env", vars);
    assert!(house.exec("g", &look(ELSEWHERE)).contains("refs/heads/main"));
    assert_eq!(house.call("git_clone", elsewhere)["branch"], "main");
    let refused = house.refused("git_clone", clone(format!("https://{HOST}/open.git"), "o"));
    assert_eq!(refused.code, "git_clone_failed", "{}", refused.text);
    // For all programs of the image: by the list that they read.
    let write = json!({ "workspace_id": "g", "path": "/root/ours.pem", "content": ours.pem() });
    house.call("file_write", write);
    let trust = "cat /root/ours.pem >> /etc/ssl/certs/ca-certificates.crt; unset GIT_SSL_CAINFO; ";
    assert!(house.exec("g", &format!("{trust}{}", look(443))).contains("refs/heads/main"));
}
