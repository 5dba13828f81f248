//! The way of a call: files of the daemon whose functions run for every one of many equal calls.
//!
//! The daemon is built with coverage counters and run twice, once with the calls and once without.
//! A function is on the way when the first run entered it at least once per call more often than the
//! second did. What runs in the client and in the guest is not counted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use xshell::cmd;

use crate::repo::{Repo, TRIPLE};
use crate::{guest, image};

const CALLS: u64 = 50;
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Args)]
pub(crate) struct Way {
    /// Measure this revision of the history instead of the checkout
    #[arg(long, value_name = "REVISION")]
    rev: Option<String>,
    /// Name each file, too
    #[arg(long)]
    files: bool,
}

impl Way {
    pub(crate) fn run(&self, repo: &Repo) -> Result<()> {
        let guest = guest::build(repo)?;
        image::build(repo, "base")?;
        let source = match &self.rev {
            Some(revision) => repo.source_of(revision)?,
            None => repo.root.clone(),
        };
        let hivekeep = self.build(repo, &source)?;
        let exec = json!({ "workspace_id": "w", "command": "true" });
        let message = json!({
            "action": "message", "name": "t", "agent": "a", "to": "b", "content": "hello",
        });
        let stage = Stage { repo, source, hivekeep, guest };
        let idle = stage.functions(None)?;
        for (name, tool, args) in [("exec", "exec", exec), ("a team's message", "team", message)] {
            let busy = stage.functions(Some((tool, &args)))?;
            let on_the_way = |((file, function), count): (&(String, String), &u64)| {
                let before = idle.get(&(file.clone(), function.clone())).copied().unwrap_or(0);
                (*count >= before + CALLS).then(|| file.clone())
            };
            let files: BTreeSet<_> = busy.iter().filter_map(on_the_way).collect();
            println!("{name}: {} files of the daemon", files.len());
            if self.files {
                files.iter().for_each(|file| println!("    {file}"));
            }
        }
        Ok(())
    }

    fn build(&self, repo: &Repo, source: &Path) -> Result<PathBuf> {
        let products = repo.target.join("way").join(self.rev.as_deref().unwrap_or("checkout"));
        let shell = &repo.shell;
        let _in_there = shell.push_dir(source);
        cmd!(
            shell,
            "cargo build --locked --bin hivekeep --target {TRIPLE} --target-dir {products}"
        )
        .env("RUSTFLAGS", "-C instrument-coverage")
        .run()?;
        Ok(products.join(TRIPLE).join("debug/hivekeep"))
    }
}

struct Stage<'r> {
    repo: &'r Repo,
    /// Folder of the daemon's source.
    source: PathBuf,
    hivekeep: PathBuf,
    guest: PathBuf,
}

impl Stage<'_> {
    /// Counts of the calls of each of our functions in a daemon's life, by file and name.
    fn functions(&self, call: Option<(&str, &Value)>) -> Result<BTreeMap<(String, String), u64>> {
        let home = self.repo.shell.create_temp_dir()?;
        let text = format!(
            "[registry.rate]\nenabled = false\n[workspace]\nisolation = \"sandbox\"\nimage_dir = {:?}\n\
             guest_binary = {:?}\n[network]\nmode = \"off\"\n",
            self.repo.images(),
            self.guest
        );
        std::fs::write(home.path().join("config.toml"), text)?;
        let mut command = self.command(home.path());
        command.arg("daemon").stdout(Stdio::null()).stderr(Stdio::null());
        command.env("LLVM_PROFILE_FILE", home.path().join("daemon.profraw"));
        let mut daemon = command.spawn()?;
        if let Err(error) = self.use_daemon(home.path(), call) {
            daemon.kill()?;
            daemon.wait()?;
            return Err(error);
        }
        ensure!(daemon.wait()?.success(), "the daemon did not end well");
        self.read(home.path())
    }

    /// The life of a daemon from its first answer to its ordered stop.
    fn use_daemon(&self, home: &Path, call: Option<(&str, &Value)>) -> Result<()> {
        let begun = Instant::now();
        while !self.command(home).arg("status").output()?.status.success() {
            ensure!(begun.elapsed() < PATIENCE, "the daemon does not serve");
            std::thread::sleep(Duration::from_millis(100));
        }
        self.call(home, "workspace_create", &json!({ "name": "w" }))?;
        let roles = json!([{ "name": "a", "role": "r" }, { "name": "b", "role": "r" }]);
        self.call(home, "team", &json!({ "action": "create", "name": "t", "roles": roles }))?;
        if let Some((tool, args)) = call {
            for _ in 0..CALLS {
                self.call(home, tool, args)?;
            }
        }
        self.run(home, &["stop", "--stop-workspaces"])
    }

    fn command(&self, home: &Path) -> Command {
        let mut command = Command::new(&self.hivekeep);
        command.env("HIVEKEEP_HOME", home).env("HIVEKEEP_CONFIG", home.join("config.toml"));
        command.env("LLVM_PROFILE_FILE", "/dev/null");
        command
    }

    fn call(&self, home: &Path, tool: &str, args: &Value) -> Result<()> {
        self.run(home, &["call", tool, "--json", &args.to_string()])
    }

    fn run(&self, home: &Path, args: &[&str]) -> Result<()> {
        let output = self.command(home).args(args).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{args:?}: {said}");
        Ok(())
    }

    fn read(&self, home: &Path) -> Result<BTreeMap<(String, String), u64>> {
        let (shell, hivekeep) = (&self.repo.shell, &self.hivekeep);
        let sysroot = cmd!(shell, "rustc --print sysroot").quiet().read()?;
        let tools = Path::new(&sysroot).join("lib/rustlib").join(TRIPLE).join("bin");
        let (profdata, cov) = (tools.join("llvm-profdata"), tools.join("llvm-cov"));
        let (raw, merged) = (home.join("daemon.profraw"), home.join("daemon.profdata"));
        cmd!(shell, "{profdata} merge -sparse {raw} -o {merged}")
            .quiet()
            .run()
            .context("install it with `rustup component add llvm-tools`")?;
        let told = cmd!(shell, "{cov} export {hivekeep} -instr-profile={merged}").quiet().read()?;
        let told: Value = serde_json::from_str(&told)?;
        let mut functions = BTreeMap::new();
        for function in told["data"][0]["functions"].as_array().context("no functions")? {
            let file = function["filenames"][0].as_str().unwrap_or_default();
            let Ok(file) = Path::new(file).strip_prefix(&self.source) else { continue };
            let file = file.to_string_lossy().into_owned();
            let name = function["name"].as_str().unwrap_or_default().to_owned();
            *functions.entry((file, name)).or_insert(0) += function["count"].as_u64().unwrap_or(0);
        }
        Ok(functions)
    }
}
