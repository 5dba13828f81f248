//! A dry run of docs/runbook/add-a-family.md: a family of five tools and one durable kind, in a copy
//! of the tree. What is touched outside of its crate is said by the edits here, and nothing else.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xshell::{TempDir, cmd};

use super::proven::Tree;
use crate::repo::{BENCH_ONLY, Repo};
use crate::steps::{StepOutcome, passed};

/// The crate, and where it goes.
const TEMPLATE: &str = "tests/family";
const CRATE: &str = "actors/counter";
/// Each file outside of the crate, and each line with the one that it stands behind.
const EDITS: [(&str, &[(&str, &str)]); 3] = [
    (
        "Cargo.toml",
        &[
            ("    \"actors/vault\",\n", "    \"actors/counter\",\n"),
            (
                "hivekeep-vault = { path = \"actors/vault\" }\n",
                "hivekeep-counter = { path = \"actors/counter\" }\n",
            ),
        ],
    ),
    (
        "config/Cargo.toml",
        &[("hivekeep-volume.workspace = true\n", "hivekeep-counter.workspace = true\n")],
    ),
    (
        "config/src/families.rs",
        &[(
            "            team: hivekeep_team::TeamFamily,\n",
            "            /// Counters.\n            counter: hivekeep_counter::CounterFamily,\n",
        )],
    ),
];
/// Runs a command where the copy (`$0`) has the place of the checkout (`$1`), with the checkout's target folder: a
/// crate at another path is another crate to cargo.
const IN_PLACE: &str = r#"
if [ -d "$1/target" ]; then mkdir "$0/target"; mount --bind "$1/target" "$0/target"; fi
mount --rbind "$0" "$1"
cd "$1"
shift
exec "$@"
"#;
/// Most lines of a thin tool, tests not counted.
const MOST_LINES: usize = 80;
const PATIENCE: Duration = Duration::from_secs(60);

/// Builds the copy with the family in it, and has its tools outlive a daemon that is killed.
pub(super) fn check(repo: &Repo) -> Result<StepOutcome> {
    let tree = repo.shell.create_temp_dir()?;
    copy(repo, tree.path())?;
    for (file, lines) in EDITS {
        fs::write(tree.path().join(file), edited(tree.path(), file, lines)?)?;
    }
    let lines = lines(&tree.path().join(CRATE).join("src"))?;
    let hivekeep = build(repo, tree.path())?;
    use_it(&hivekeep, &repo.shell.create_temp_dir()?)?;
    ensure!(lines / 5 <= MOST_LINES, "{lines} lines for five tools");
    Ok(passed(format!("{} files touched outside; {} lines a tool", EDITS.len(), lines / 5)))
}

/// Text of a file of EDITS, with its lines.
fn edited(tree: &Path, file: &str, lines: &[(&str, &str)]) -> Result<String> {
    let mut text = fs::read_to_string(tree.join(file))?;
    for (behind, line) in lines {
        let at = text.find(behind).with_context(|| format!("{file} has no {behind:?}"))?;
        text.insert_str(at + behind.len(), line);
    }
    Ok(text)
}

/// Copies what is tracked or could be, and the crate to its place.
fn copy(repo: &Repo, to: &Path) -> Result<()> {
    let from = &repo.root;
    for file in Tree::of(from)?.files(&[])? {
        let place = match file.strip_prefix(TEMPLATE) {
            Some(file) => to.join(format!("{CRATE}{file}")),
            None => to.join(&file),
        };
        fs::create_dir_all(place.parent().context("a file has a folder")?)?;
        let file = from.join(file);
        fs::copy(&file, &place)?;
        // What did not change is as old as it was, so that cargo knows it again.
        File::options().write(true).open(place)?.set_modified(file.metadata()?.modified()?)?;
    }
    Ok(())
}

/// Builds into the target folder of the checkout, whose own daemon is put back: most of what is
/// built is the same.
fn build(repo: &Repo, tree: &Path) -> Result<PathBuf> {
    let (ours, aside) = (repo.hivekeep(), repo.target.join("family"));
    fs::create_dir_all(&aside)?;
    let kept = aside.join("ours");
    let _none_before = fs::remove_file(&kept);
    fs::rename(&ours, &kept).context("build first")?;
    let (shell, root) = (&repo.shell, &repo.root);
    let _there = shell.push_dir(tree);
    let unshare = match rustix::process::geteuid().is_root() {
        true => &["--mount"][..],
        false => &["--user", "--map-root-user", "--mount"],
    };
    let build = match cmd!(shell, "unshare {unshare...} true").quiet().run() {
        Ok(()) => cmd!(shell, "unshare {unshare...} sh -ec {IN_PLACE} {tree} {root} cargo build"),
        Err(error) => {
            println!("{error}: all crates of the copy are built");
            cmd!(shell, "cargo build")
        }
    };
    let built = repo
        .linted(build.args(["--workspace", "--exclude", BENCH_ONLY, "--bin", "hivekeep"]))
        .env("CARGO_TARGET_DIR", &repo.target)
        .run();
    let theirs = aside.join("hivekeep");
    let moved = built.map_err(anyhow::Error::from).and_then(|()| Ok(fs::rename(&ours, &theirs)?));
    fs::rename(&kept, &ours)?;
    moved.map(|()| theirs)
}

/// Lines that are neither empty nor comments.
fn lines(folder: &Path) -> Result<usize> {
    let mut count = 0;
    for file in fs::read_dir(folder)? {
        let text = fs::read_to_string(file?.path())?;
        let code = text.lines().map(str::trim);
        count += code.filter(|line| !line.is_empty() && !line.starts_with("//")).count();
    }
    Ok(count)
}

struct Daemon<'d> {
    hivekeep: &'d Path,
    home: &'d Path,
    process: Child,
}

impl<'d> Daemon<'d> {
    fn start(hivekeep: &'d Path, home: &'d Path) -> Result<Self> {
        let mut command = command(hivekeep, home);
        let process = command.arg("daemon").stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut daemon = Self { hivekeep, home, process };
        let began = Instant::now();
        while daemon.run(&["status"]).is_err() {
            let ended = daemon.process.try_wait()?;
            ensure!(ended.is_none() && began.elapsed() < PATIENCE, "the daemon did not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(daemon)
    }

    fn run(&self, args: &[&str]) -> Result<String> {
        let output = command(self.hivekeep, self.home).args(args).output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "hivekeep {}: {stderr}", args.join(" "));
        Ok(String::from_utf8(output.stdout)?)
    }

    fn call(&self, tool: &str, args: &[&str]) -> Result<Value> {
        let mut all = vec!["call", tool, "--json"];
        all.extend(args.iter().flat_map(|arg| ["--arg", arg]));
        Ok(serde_json::from_str(&self.run(&all)?)?)
    }
}

/// Killed, if it has not ended.
impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let _ended_already = self.process.kill();
        let _reaped = self.process.wait();
    }
}

fn command(hivekeep: &Path, home: &Path) -> Command {
    let mut command = Command::new(hivekeep);
    command.env("HIVEKEEP_HOME", home).env("HIVEKEEP_NETWORK__MODE", "off");
    command
}

fn use_it(hivekeep: &Path, home: &TempDir) -> Result<()> {
    let config = command(hivekeep, home.path()).args(["config", "--default"]).output()?;
    let config = String::from_utf8_lossy(&config.stdout);
    ensure!(config.contains("\n[counter]\n") && config.contains("\nmax_counters = 100\n"));
    let daemon = Daemon::start(hivekeep, home.path())?;
    daemon.call("counter_create", &["name=clicks"])?;
    for amount in ["amount=40", "amount=2"] {
        daemon.call("counter_add", &["name=clicks", amount])?;
    }
    ensure!(daemon.run(&["ps"])?.contains("counters"), "it stands in the tree");
    drop(daemon);

    let mut daemon = Daemon::start(hivekeep, home.path())?;
    let value = daemon.call("counter_get", &["name=clicks"])?;
    ensure!(value["value"] == 42, "what was acknowledged is there: {value}");
    let refused = daemon.call("counter_get", &["name=other"]).err().map(|error| error.to_string());
    ensure!(refused.is_some_and(|error| error.contains("counter_not_found")));
    daemon.call("counter_remove", &["name=clicks"])?;
    ensure!(daemon.call("counter_list", &[])?["names"] == serde_json::json!([]));
    daemon.run(&["stop"])?;
    ensure!(daemon.process.wait()?.success(), "it stops in order");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The step runs when its inputs changed; that the manifest has the places of its edits is said each time.
    #[test]
    fn the_edits_have_their_places() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the root");
        for (file, lines) in EDITS {
            let text = edited(root, file, lines).expect("it has the places");
            assert!(lines.iter().all(|(behind, line)| text.contains(&format!("{behind}{line}"))));
        }
    }
}
