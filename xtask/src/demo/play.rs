//! The play, step by step. A step that finds anything else than it expects fails.

use std::{
    fmt::Debug,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use hivekeep_mcp_client::blocking::Client;
use serde_json::{Value, json};

use super::{
    DemoIsolation, DemoPrograms, explore, house::DemoDaemon, job::Job, sources::Sources,
    teller::Teller,
};
use crate::repo::Repo;

/// The workspace's name.
const WORKSPACE: &str = "demo";
/// Folder of the sources in the workspace.
const FOLDER: &str = "/workspace/sources";
/// The file that is edited, and what is put before its first line.
const EDITED: &str = "config.toml";
const NEW_LINE: &str = "# Edited in a workspace.\n";
/// Text that is searched for.
const NEEDLE: &str = "impl Family for ";
/// Files in this folder are summed by a job.
const SUMMED: &str = "src/";
/// Characters that are shown of what is not as expected: it may be a whole file.
const SHOWN: usize = 400;
/// For a new daemon to take up a machine that runs.
const TAKEN_UP_IN: Duration = Duration::from_secs(60);
/// Between two looks; slower than the rate that a session is allowed.
const LOOK_AGAIN: Duration = Duration::from_millis(600);

/// Everything on the stage.
pub(super) struct Play<'a> {
    repo: &'a Repo,
    house: &'a mut DemoDaemon,
    teller: &'a Teller,
    client: Client,
    isolation: DemoIsolation,
}

impl<'a> Play<'a> {
    /// Starts the daemon and attaches the client.
    pub(super) fn new(
        repo: &'a Repo,
        programs: &DemoPrograms,
        house: &'a mut DemoDaemon,
        teller: &'a Teller,
        isolation: DemoIsolation,
    ) -> Result<Self> {
        teller.hold_signals()?;
        teller.step("start the daemon", || {
            house.start()?;
            Ok(format!(
                "process {} in {}",
                house.pid().unwrap_or_default(),
                house.folder().display()
            ))
        })?;
        let mut client = None;
        teller.step("attach an MCP client", || {
            let mut command = house.command(&programs.hivekeep);
            // The demo starts the daemon anew itself.
            command.args(["mcp", "--no-spawn"]);
            let attached = client.insert(Client::spawn("demo", command)?);
            let (revision, tools) = (attached.revision().unwrap_or_default(), attached.tools()?);
            ensure!(!tools.is_empty(), "the server lists no tools");
            Ok(format!("`hivekeep mcp`, MCP {revision}, {} tools", tools.len()))
        })?;
        let client = client.context("no client")?;
        Ok(Self { repo, house, teller, client, isolation })
    }

    /// Plays everything; with `keep` the workspace stays.
    pub(super) fn all(mut self, keep: bool) -> Result<()> {
        self.create()?;
        let sources = self.upload()?;
        self.commit(&sources)?;
        self.count(&sources)?;
        let edited = self.edit(&sources)?;
        let mut job = self.start_job()?;
        self.restart(&job)?;
        self.look_again(&sources, &edited)?;
        self.follow(&sources, &mut job)?;
        self.bring_home(&sources, &edited)?;
        explore::play(&self.client, self.teller, self.isolation)?;
        if !keep {
            self.destroy()?;
            let Self { client, teller, .. } = self;
            teller.step("detach the client", || Ok(client.leave().map(|()| String::new())?))?;
        }
        Ok(())
    }

    fn create(&mut self) -> Result<()> {
        let Self { client, teller, isolation, .. } = self;
        teller.step("workspace_create", || {
            let arguments = json!({ "name": WORKSPACE, "isolation": isolation.word() });
            let created = client.call("workspace_create", arguments)?;
            same("its state", &created["state"], &json!("running"))?;
            same("its isolation", &created["isolation"], &json!(isolation.word()))?;
            let machine = machine(client)?;
            Ok(format!(
                "{}, accelerator {}, carrier {}, process {}",
                isolation.word(),
                text(&machine["accelerator"]),
                text(&machine["carrier"]),
                machine["pid"]
            ))
        })
    }

    /// Moves the sources in and unpacks them.
    fn upload(&mut self) -> Result<Sources> {
        let Self { client, teller, house, repo, .. } = self;
        let archive = house.transfers().join("sources.tar");
        let sources = Sources::take(&repo.shell, archive, house.folder().join("sources"))?;
        teller.step("file_transfer, upload", || {
            let guest_path = "/workspace/sources.tar";
            let moved = client.call(
                "file_transfer",
                json!({
                    "workspace_id": WORKSPACE, "direction": "upload",
                    "host_path": sources.archive, "guest_path": guest_path,
                }),
            )?;
            let size = std::fs::metadata(&sources.archive)?.len();
            same("bytes moved", &moved["bytes"], &json!(size))?;
            exec(client, "mkdir sources && tar -x -f sources.tar -C sources", "/workspace")?;
            Ok(format!("{} files, {} KiB", sources.count(), sources.bytes() / 1024))
        })?;
        Ok(sources)
    }

    /// git in the guest makes the very tree that git on the host has.
    fn commit(&mut self, sources: &Sources) -> Result<()> {
        let Self { client, teller, .. } = self;
        teller.step("commit with its git", || {
            let vars = json!({
                "GIT_AUTHOR_NAME": "Demo", "GIT_AUTHOR_EMAIL": "demo@localhost",
                "GIT_COMMITTER_NAME": "Demo", "GIT_COMMITTER_EMAIL": "demo@localhost",
            });
            client.call("set_env", json!({ "workspace_id": WORKSPACE, "vars": vars }))?;
            let script = "git init -q && git add -A -f && git commit -q -m 'As uploaded' \
                          && git rev-parse 'HEAD^{tree}' && git ls-files | wc -l";
            let found = exec(client, script, FOLDER)?;
            let expected = format!("{}\n{}\n", sources.tree, sources.count());
            same("tree and number of files", &found, &expected)?;
            Ok(format!("tree {:.12}, the same as on the host", sources.tree))
        })
    }

    fn count(&mut self, sources: &Sources) -> Result<()> {
        let Self { client, teller, .. } = self;
        teller.step("search and count", || {
            let script = format!("git grep -n -F -e '{NEEDLE}' -- '*.rs' | cut -d : -f 1,2");
            let found = exec(client, &script, FOLDER)?;
            let places = sources.search(NEEDLE);
            ensure!(!places.is_empty(), "the host finds `{NEEDLE}` nowhere");
            same(
                "places found",
                &found.lines().collect::<Vec<_>>(),
                &places.iter().map(String::as_str).collect(),
            )?;
            let script = "find . -name '*.rs' -type f -exec cat {} + | wc -l";
            let lines = exec(client, script, FOLDER)?;
            same("lines of Rust", &lines.trim(), &sources.rust_lines().to_string().as_str())?;
            Ok(format!(
                "`{NEEDLE}` in {} places, {} lines of Rust; the host finds the same",
                places.len(),
                lines.trim()
            ))
        })
    }

    /// Edits a file; what it holds then.
    fn edit(&mut self, sources: &Sources) -> Result<String> {
        let Self { client, teller, .. } = self;
        let before = sources.text(EDITED)?;
        let first = before.lines().next().context("an empty file")?;
        let after = format!("{NEW_LINE}{before}");
        teller.step("file_edit, file_read", || {
            let path = format!("{FOLDER}/{EDITED}");
            let edit = client.call(
                "file_edit",
                json!({
                    "workspace_id": WORKSPACE, "path": path,
                    "old_string": first, "new_string": format!("{NEW_LINE}{first}"),
                }),
            )?;
            same("replacements", &edit["replacements"], &json!(1))?;
            same("the file", &read(client)?, &after)?;
            let diff = exec(client, "git diff --numstat", FOLDER)?;
            same("git's difference", &diff, &format!("1\t0\t{EDITED}\n"))?;
            Ok(format!("{EDITED}: one line more, read back whole"))
        })?;
        Ok(after)
    }

    /// A job that takes some seconds: the sums of some files, unhurried.
    fn start_job(&mut self) -> Result<Job> {
        let Self { client, teller, .. } = self;
        let mut started = None;
        teller.step("exec_background", || {
            let script = format!(
                "for file in $(git ls-files '{SUMMED}*.rs'); do sha256sum $file; sleep 0.1; done"
            );
            let job = started.insert(Job::start(client, WORKSPACE, FOLDER, &script)?);
            job.until_it_speaks(client)?;
            Ok(format!("{}: {} lines so far", job.id, job.output.lines().count()))
        })?;
        started.context("no job")
    }

    /// Kills the daemon while the job runs, and starts it again.
    fn restart(&mut self, job: &Job) -> Result<()> {
        let Self { client, teller, house, .. } = self;
        let (machine_before, session_before) = (machine(client)?, session(house)?);
        let daemon_before = house.pid();
        teller.step("kill -9 the daemon", || {
            house.kill()?;
            let pid = machine_before["pid"].to_string();
            ensure!(Path::new("/proc").join(&pid).exists(), "the machine {pid} went with it");
            Ok(format!("process {}; the machine runs on", daemon_before.unwrap_or_default()))
        })?;
        teller.step("start it again", || {
            house.start()?;
            Ok(format!("process {}", house.pid().unwrap_or_default()))
        })?;
        teller.step("call again", || {
            // The same client, the same pipe: `hivekeep mcp` has attached again.
            let info = running_again(client)?;
            same("still ours", &info["owned"], &json!(true))?;
            same("its machine", &info["machine"]["pid"], &machine_before["pid"])?;
            let jobs = info["running_jobs"].as_array().context("no list of jobs")?;
            let job = if jobs.contains(&json!(job.id)) { "runs on" } else { "has ended meanwhile" };
            let session_after = session(house)?;
            same("its session", &session_after, &session_before)?;
            Ok(format!("attached again to {session_after}; the same machine, the job {job}"))
        })?;
        println!("\n{}", house.ask(&["ps"])?);
        Ok(())
    }

    /// Checks that everything acknowledged before the kill is there after it.
    fn look_again(&mut self, sources: &Sources, edited: &str) -> Result<()> {
        let Self { client, teller, .. } = self;
        teller.step("everything is there", || {
            same("the edited file", &read(client)?, &edited.to_owned())?;
            let script = "git rev-parse 'HEAD^{tree}'; echo $GIT_AUTHOR_EMAIL";
            let found = exec(client, script, FOLDER)?;
            same("commit and environment", &found, &format!("{}\ndemo@localhost\n", sources.tree))?;
            Ok("the commit, the edit, the environment".to_owned())
        })
    }

    fn follow(&mut self, sources: &Sources, job: &mut Job) -> Result<()> {
        let Self { client, teller, .. } = self;
        teller.step("follow the job to its end", || {
            let status = job.follow(client)?;
            same("its exit status", &status, &0)?;
            same("its output", &job.output, &sources.sums(SUMMED)?)?;
            Ok(format!("exit 0, {} lines, none lost or twice", job.output.lines().count()))
        })
    }

    /// Commits the edit and takes it out as a patch that the host applies.
    fn bring_home(&mut self, sources: &Sources, edited: &str) -> Result<()> {
        let Self { client, teller, house, .. } = self;
        teller.step("file_transfer, download", || {
            let script = "git commit -q -a -m 'Edited here' && git format-patch -1 --stdout > ../edit.patch \
                          && git rev-list --count HEAD";
            same("commits", &exec(client, script, FOLDER)?, &"2\n".to_owned())?;
            let moved = client.call(
                "file_transfer",
                json!({
                    "workspace_id": WORKSPACE, "direction": "download",
                    "host_path": "edit.patch", "guest_path": "/workspace/edit.patch",
                }),
            )?;
            let patched = sources.patched(&house.transfers().join("edit.patch"), EDITED)?;
            same("the patched file", &patched, &edited.to_owned())?;
            Ok(format!("the edit as a patch of {} bytes; it applies on the host", moved["bytes"]))
        })
    }

    /// Removes the workspace; nothing of it is left on the host.
    fn destroy(&mut self) -> Result<()> {
        let Self { client, teller, house, .. } = self;
        teller.step("workspace_destroy", || {
            client.call("workspace_destroy", json!({ "workspace_id": WORKSPACE }))?;
            let list = client.call("workspace_list", json!({}))?;
            same("workspaces", &list["count"], &json!(0))?;
            same("processes", &house.machines()?, &Vec::new())?;
            same("files", &house.remains()?, &Vec::new())?;
            Ok("no process, disk or socket is left".to_owned())
        })
    }
}

/// Runs a command that must succeed; its output.
fn exec(client: &Client, command: &str, workdir: &str) -> Result<String> {
    let arguments = json!({ "workspace_id": WORKSPACE, "command": command, "workdir": workdir });
    let result = client.call("exec", arguments)?;
    let failed =
        || format!("`{command}` ended with {}: {}", result["exit_code"], text(&result["stderr"]));
    ensure!(result["exit_code"] == 0, failed());
    ensure!(result["truncated"] == false, "`{command}` printed too much");
    Ok(text(&result["stdout"]).to_owned())
}

fn read(client: &Client) -> Result<String> {
    let path = format!("{FOLDER}/{EDITED}");
    let file = client.call("file_read", json!({ "workspace_id": WORKSPACE, "path": path }))?;
    Ok(text(&file["content"]).to_owned())
}

fn info(client: &Client) -> Result<Value> {
    Ok(client.call("workspace_info", json!({ "workspace_id": WORKSPACE }))?)
}

fn machine(client: &Client) -> Result<Value> {
    let mut info = info(client)?;
    ensure!(info["machine"].is_object(), "no machine: {info}");
    Ok(info["machine"].take())
}

/// Waits until the new daemon has taken the machine up.
fn running_again(client: &Client) -> Result<Value> {
    let until = Instant::now() + TAKEN_UP_IN;
    loop {
        let info = info(client)?;
        match text(&info["state"]) {
            "running" => return Ok(info),
            "starting" if Instant::now() < until => std::thread::sleep(LOOK_AGAIN),
            _ => anyhow::bail!("it is not running: {info}"),
        }
    }
}

/// The session of the MCP client.
fn session(house: &DemoDaemon) -> Result<String> {
    let rows = house.json(&["sessions"])?;
    let rows = rows.as_array().context("no list of sessions")?.iter();
    let mut ours = rows.filter(|row| row["door"] == "mcp_stdio" && row["state"] == "attached");
    match (ours.next(), ours.next()) {
        (Some(row), None) => Ok(text(&row["session"]).to_owned()),
        _ => anyhow::bail!("not one attached client: {}", house.json(&["sessions"])?),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn same<T: PartialEq + Debug>(what: &str, found: &T, expected: &T) -> Result<()> {
    let short = |value: &T| format!("{value:?}").chars().take(SHOWN).collect::<String>();
    ensure!(found == expected, "{what}: found {}, expected {}", short(found), short(expected));
    Ok(())
}
