//! Kinds of walls, and how the probe gets behind each.

use std::{fs, path::Path, time::Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::grounds::{ALLOWED, Grounds, MARK, PLACE, PORT, left_in};
use super::table::{Seen, seen};
use crate::repo::Repo;
use crate::setup::needs::program;

/// Programs of Chrome that a daemon finds by itself.
const CHROMES: [&str; 4] = [
    "/usr/lib/chromium/chromium",
    "/opt/google/chrome/chrome",
    "/usr/bin/google-chrome-stable",
    "/usr/bin/chromium",
];

/// What code is kept in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wall {
    /// Namespaces of the program of another MCP server.
    Source,
    /// Those of the reader of PDFs.
    Reader,
    /// Those of a browser's processes.
    Browser,
    /// A page's own code, by Chrome and the proxy.
    Page,
    /// A workspace on the host's kernel.
    Sandbox,
    /// `run_code` in one.
    Interpreter,
    /// A virtual machine.
    Vm,
}

impl Wall {
    pub(super) const ALL: [Self; 7] = [
        Self::Source,
        Self::Reader,
        Self::Browser,
        Self::Page,
        Self::Sandbox,
        Self::Interpreter,
        Self::Vm,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Reader => "reader",
            Self::Browser => "browser",
            Self::Page => "page",
            Self::Sandbox => "sandbox",
            Self::Interpreter => "interpreter",
            Self::Vm => "vm",
        }
    }
}

/// Why there are no virtual machines here.
pub(super) fn no_machines(repo: &Repo) -> Option<String> {
    let qemu = program("qemu-system-x86_64");
    (!qemu).then(|| "QEMU is not installed".to_owned()).or_else(|| no_image(repo, "base"))
}

fn no_image(repo: &Repo, name: &str) -> Option<String> {
    let there = repo.images().join(format!("images/{name}.json")).exists();
    (!there).then(|| format!("build the image `{name}`: `cargo xtask image {name}`"))
}

impl Grounds<'_> {
    /// Why a wall cannot be tried here.
    pub(super) fn lacks(&self, wall: Wall) -> Option<String> {
        let image = |name: &str| no_image(self.repo, name);
        let bwrap = (!program("bwrap")).then(|| "bwrap is not installed".to_owned());
        let root =
            (!self.apart).then(|| "root alone can put the probe in its program's place".to_owned());
        let chrome = CHROMES.iter().any(|path| Path::new(path).is_file());
        match wall {
            Wall::Source => bwrap,
            Wall::Reader | Wall::Browser => bwrap.or(root),
            Wall::Page => bwrap.or((!chrome).then(|| "no Chrome is installed".to_owned())),
            Wall::Sandbox => bwrap.or_else(|| image("base")),
            Wall::Interpreter => bwrap.or_else(|| image("code-interpreter")),
            Wall::Vm => no_machines(self.repo),
        }
    }

    /// What the probe saw within a wall.
    pub(super) fn tried(&self, wall: Wall) -> Result<Vec<Seen>> {
        let began = Instant::now();
        let tried = match wall {
            Wall::Source => left_in(&self.path("state/sources/probe")),
            Wall::Reader => self.in_the_daemons_place(|| {
                // Nobody makes vectors, and the probe's answer is no text: it fails, after the reader ran.
                let ingest = json!({ "path": ".", "place": "docs", "collection": "docs" });
                let _failed = self.call("rag_ingest", ingest);
                left_in(&self.path("run/pdf"))
            }),
            Wall::Browser => {
                let folder = self.path("state/browsers");
                // The probe does not speak as Chrome does, and stays until its folder was read.
                let left = std::thread::spawn(move || left_in(&folder));
                let connect = json!({ "debug_url": "local", "timeout": 30 });
                let _failed = self.call("webview_connect", connect);
                left.join().map_err(|_| anyhow::anyhow!("reading the folder panicked"))?
            }
            Wall::Page => self.page(),
            Wall::Sandbox => self.workspace(wall, json!({ "isolation": "sandbox" })),
            Wall::Interpreter => self.workspace(
                wall,
                json!({ "isolation": "sandbox", "base_image": "code-interpreter" }),
            ),
            // What it may reach is the public internet, and nothing of this host.
            Wall::Vm if self.apart => {
                self.workspace(wall, json!({ "isolation": "vm", "allow_internet": true }))
            }
            Wall::Vm => self.workspace(wall, json!({ "isolation": "vm" })),
        };
        let tried = tried.with_context(|| format!("in the wall {}", wall.name()))?;
        for seen in &tried {
            println!("{seen}");
        }
        println!("in {:.1} s", began.elapsed().as_secs_f64());
        Ok(tried)
    }

    fn workspace(&self, wall: Wall, mut arguments: Value) -> Result<Vec<Seen>> {
        let name = wall.name();
        arguments["name"] = json!(name);
        self.call("workspace_create", arguments)?;
        self.lend(name, &["probe", "targets"])?;
        let probe = format!("{PLACE}/probe");
        let said = match wall {
            Wall::Interpreter => {
                let code = format!(
                    "import subprocess\nprint(subprocess.run(['{probe}', '{name}'], capture_output=True, text=True).stdout)"
                );
                let code = json!({ "place": name, "code": code, "timeout_secs": 100 });
                self.call("run_code", code)?["stdout"].clone()
            }
            _ => self.exec(name, &format!("{probe} {name}"))?,
        };
        self.call("workspace_destroy", json!({ "workspace_id": name }))?;
        seen(said.as_str().context("it printed nothing")?)
    }

    fn exec(&self, name: &str, command: &str) -> Result<Value> {
        let run = json!({ "workspace_id": name, "command": command, "timeout_secs": 100 });
        let done = self.call("exec", run)?;
        ensure!(done["exit_code"] == 0, "`{command}`: {done}");
        Ok(done["stdout"].clone())
    }

    /// Gives a guest the probe, or what it is told.
    pub(super) fn lend(&self, name: &str, files: &[&str]) -> Result<()> {
        self.exec(name, &format!("mkdir -p {PLACE}"))?;
        for file in files {
            let (from, to) = (self.path("state/transfers").join(file), format!("{PLACE}/{file}"));
            fs::copy(self.lent().join(file), &from)?;
            let upload = json!({
                "workspace_id": name, "direction": "upload", "host_path": from, "guest_path": to,
            });
            self.call("file_transfer", upload)?;
        }
        self.exec(name, &format!("chmod 755 {PLACE}/probe")).map(drop)
    }

    /// A page's script asks for what it may not have.
    fn page(&self) -> Result<Vec<Seen>> {
        let (client, _daemon) = self.with_chrome()?;
        client.call("webview_connect", json!({ "debug_url": "local", "timeout": 120 }))?;
        let targets = fs::read_to_string(self.lent().join("targets"))?;
        let named = |key: &str| {
            let mut pairs = targets.lines().filter_map(|line| line.split_once('='));
            pairs.find(|(name, _)| *name == key).map_or("", |(_, value)| value)
        };
        let fetch = |url: &str| -> Result<String> {
            let script = format!(
                "return await fetch({url:?}, {{ mode: 'no-cors' }}).then(() => 'reached', String)"
            );
            let told = client.call("webview_eval", json!({ "script": script }))?;
            Ok(told["result"].as_str().unwrap_or_default().to_owned())
        };
        let allowed = fetch(&format!("http://{ALLOWED}:{PORT}/"))?;
        ensure!(allowed == "reached", "a page does not reach what it may: {allowed}");
        let secret = format!("file://{}", named("secret"));
        let mut asked = vec![("host's files", secret)];
        for (attempt, key) in [
            ("loopback", "loopback"),
            ("host's address", "host"),
            ("metadata address", "metadata"),
            ("other guest", "guest"),
        ] {
            asked.push((attempt, format!("http://{}/", named(key))));
        }
        let mut tried = Vec::new();
        for (attempt, url) in asked {
            let told = fetch(&url)?;
            let shown = match client.call("webview_navigate", json!({ "url": url })) {
                Ok(_) => {
                    let text = json!({ "script": "document.body.innerText" });
                    client.call("webview_eval", text)?["result"].to_string()
                }
                Err(why) => why.to_string(),
            };
            let reached = told == "reached" || shown.contains(MARK);
            let what = format!("{told}; {shown:.100}");
            tried.push(Seen { attempt: attempt.to_owned(), reached, what });
        }
        client.call("webview_disconnect", json!({}))?;
        Ok(tried)
    }
}
