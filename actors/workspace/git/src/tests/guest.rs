//! Test fixture: a guest daemon as a plain process, with a home of its own for git.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use hivekeep_link::{Endpoint, Link, LinkOptions, LinkToken};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::Git;

/// Path of the guest binary: that of the environment, else the newest below the target folder.
fn guest_binary() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("TEST_HIVEKEEP_GUEST") {
        return Some(path.into());
    }
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target");
    let built = ["guest/x86_64-unknown-linux-gnu/guest", "release", "debug"].into_iter();
    let paths = built.map(|folder| target.join(folder).join("hivekeep-guest"));
    let aged = paths.filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)));
    aged.max().map(|(_, path)| path)
}

pub(super) struct Guest {
    pub(super) folder: TempDir,
    link: Link,
    daemon: Child,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.daemon.kill().expect("our own child");
        self.daemon.wait().expect("our own child");
    }
}

impl Guest {
    pub(super) async fn start() -> Option<Self> {
        let Some(binary) = guest_binary() else {
            hivekeep_skip::skip("no hivekeep-guest binary (set TEST_HIVEKEEP_GUEST or build it)");
            return None;
        };
        if !Command::new("git").arg("--version").output().is_ok_and(|it| it.status.success()) {
            hivekeep_skip::skip("this host has no git");
            return None;
        }
        let folder = TempDir::new().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let token = LinkToken::generate().expect("random bytes");
        let uid = rustix::process::getuid().as_raw();
        let daemon = Command::new(binary)
            .arg("agent")
            .arg("--unix")
            .arg(at("agent.sock"))
            .args(["--token-hash", &token.hash_hex(), "--peer-uid", &uid.to_string()])
            .arg("--state-dir")
            .arg(at("state"))
            .arg("--run-dir")
            .arg(at("run"))
            .stdin(Stdio::null())
            .spawn()
            .expect("the guest daemon starts");
        let endpoint = Endpoint::Unix { path: at("agent.sock"), peer_uid: uid };
        let cancel = CancellationToken::new();
        let connected = Link::connect(&endpoint, &token, &LinkOptions::default(), &cancel).await;
        let (link, _) = connected.expect("the guest lets us in");
        std::fs::create_dir(at("home")).expect("a home");
        // A credential helper that would write credentials down.
        let config = "[credential]\n\thelper = store\n[user]\n\tname = A Tester\n\temail = a@b.example\n\
                      [init]\n\tdefaultBranch = main\n";
        std::fs::write(at("home/.gitconfig"), config).expect("written");
        Some(Self { folder, link, daemon })
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("a plain name").to_owned()
    }

    /// Makes a handle on git in a folder of this guest.
    pub(super) fn git(&self, dir: &str) -> Git {
        let env = [("HOME", self.path("home")), ("GIT_DIR", "/nowhere".to_owned())];
        let env = env.map(|(name, value)| (name.to_owned(), value)).to_vec();
        Git::new(self.link.clone(), dir.to_owned(), env)
    }

    /// Runs a script of the test's own in the folder, with the guest's home.
    pub(super) fn sh(&self, script: &str) -> String {
        let output = Command::new("sh")
            .args(["-ec", script])
            .current_dir(self.folder.path())
            .env("HOME", self.path("home"))
            .output()
            .expect("a shell");
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}
