//! E2B's own tests of sandboxes, of a checkout of theirs, against a daemon with the door. By hand only: they take half an
//! hour, and are nobody's to copy. Prints the tables of `docs/e2b.md`.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use xshell::{Shell, cmd};

use crate::{image, repo::Repo, test::outside::ServedDaemon};

/// Image that has what the tests call.
const IMAGE: &str = "e2b-suite";
/// Address of the door. Its names are below `e2b.localhost`.
const ADDRESS: &str = "127.0.0.1:7749";
/// Isolations, each with what is run in it: files, commands and terminals in sandboxes, which are made quickly, and the
/// rest, which pauses and forks, in virtual machines. `KIND` is `sync` or `async`.
const RUNS: [(&str, &[&str]); 2] = [
    (
        "sandbox",
        &[
            "tests/KIND/sandbox_KIND/files",
            "tests/KIND/sandbox_KIND/commands",
            "tests/KIND/sandbox_KIND/pty",
        ],
    ),
    (
        "vm",
        &[
            "tests/KIND/sandbox_KIND",
            "tests/KIND/api_KIND",
            "--ignore=tests/KIND/sandbox_KIND/files",
            "--ignore=tests/KIND/sandbox_KIND/commands",
            "--ignore=tests/KIND/sandbox_KIND/pty",
        ],
    ),
];

/// Outcomes by the tests' names.
type Outcomes = BTreeMap<String, String>;

#[derive(Args)]
pub(crate) struct E2bSuite {
    /// A checkout of E2B's repository
    #[arg(long)]
    checkout: PathBuf,
}

impl E2bSuite {
    pub(crate) fn run(&self, repo: &Repo) -> Result<()> {
        let (shell, clients) = (Shell::new()?, repo.root.join("tests/clients"));
        let (checkout, prepare) = (self.checkout.canonicalize()?, clients.join("e2b_suite.sh"));
        shell.change_dir(shell.create_dir(repo.target.join("e2b/suite"))?);
        cmd!(shell, "sh {prepare} {checkout}").run()?;
        let (hivekeep, layout) = (repo.hivekeep(), shell.current_dir().join("layout"));
        cmd!(shell, "{hivekeep} image pull oci:{layout}:suite --name {IMAGE}")
            .envs(image::environment(repo))
            .run()?;
        let reasons = fs::read_to_string(clients.join("e2b_suite.txt"))?;
        let mut rows = String::new();
        let mut others = BTreeMap::<&str, Vec<String>>::new();
        for ((isolation, tests), kind) in
            RUNS.iter().flat_map(|run| [(run, "sync"), (run, "async")])
        {
            let outcomes = drive(repo, &shell, isolation, kind, tests)?;
            let (mut passed, mut cloud, mut failed) = (0, 0, 0);
            for (test, outcome) in &outcomes {
                let name = test.rsplit("::").next().unwrap_or(test);
                let why =
                    reasons.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                match (&**outcome, why) {
                    ("failed", Some(why)) if why.starts_with("needs ") => cloud += 1,
                    ("passed", _) => passed += 1,
                    _ => failed += 1,
                }
                let names = others.entry(why.unwrap_or("not explained")).or_default();
                if outcome != "passed" && !names.iter().any(|it| it == name) {
                    names.push(name.to_owned());
                }
            }
            let all = outcomes.len();
            rows += &format!("| {kind} | {isolation} | {all} | {passed} | {cloud} | {failed} |\n");
        }
        println!("| suite | isolation | tests | pass | need what is not here | others |");
        println!("|---|---|---|---|---|---|\n{rows}\n| not passing | why |\n|---|---|");
        others.retain(|_, names| !names.is_empty());
        others.iter().for_each(|(why, names)| println!("| {} | {why} |", names.join(", ")));
        Ok(())
    }
}

/// Runs tests against a daemon of their own.
fn drive(
    repo: &Repo,
    shell: &Shell,
    isolation: &str,
    kind: &str,
    tests: &[&str],
) -> Result<Outcomes> {
    let (home, folder) = (repo.shell.create_temp_dir()?, shell.current_dir());
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755))?;
    let config = home.path().join("config.toml");
    let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    let (_, port) = ADDRESS.split_once(':').context("an address has a port")?;
    let text = format!(
        "[http.e2b]\nenabled = true\nbind = {ADDRESS:?}\nisolation = {isolation:?}\n\
         domain = \"e2b.localhost:{port}\"\npublic_ports = true\ntls_cert = {cert:?}\ntls_key = {key:?}\n\
         [http.e2b.templates]\nbase = {IMAGE:?}\n"
    );
    fs::write(&config, text)?;
    let config = config.to_str().context("its path is text")?;
    let daemon = ServedDaemon::start_with(repo, home.path(), &[("HIVEKEEP_CONFIG", config)])?;
    let credential = daemon.output(&["credential", "create", "e2b", "--scope", "session"])?;
    let (outcomes, url) = (home.path().join("outcomes.json"), format!("https://{ADDRESS}"));
    let tests = tests.iter().map(|it| it.replace("KIND", kind));
    // Failed tests are counted. Their usual limit of 30 s is for a machine that does nothing else.
    let quiet = ["--quiet", "--tb", "no", "--numprocesses", "2", "--timeout", "120"];
    cmd!(shell, "venv/bin/pytest -p e2b_suite {quiet...} {tests...}")
        .env("PYTHONPATH", repo.root.join("tests/clients"))
        .env("E2B_SUITE_OUTCOMES", &outcomes)
        .env("E2B_API_URL", &url)
        .env("E2B_SANDBOX_URL", &url)
        .env("E2B_API_KEY", credential.trim().replacen("hivekeep_", "e2b_", 1))
        .env("SSL_CERT_FILE", cert)
        .ignore_status()
        .run()?;
    let outcomes: Outcomes = serde_json::from_str(&fs::read_to_string(outcomes)?)?;
    ensure!(!outcomes.is_empty(), "no test was run");
    Ok(outcomes)
}
