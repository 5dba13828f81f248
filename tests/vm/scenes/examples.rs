//! The examples, as a person runs them, against a daemon of the test's own.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use crate::{house::House, leaks};

/// The program of an example; it lies beside the daemon.
pub fn program(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_hivekeep"));
    path.parent().expect("it is in a folder").join("examples").join(name)
}

fn run(house: &House, example: &Path, args: &[&str]) -> Output {
    let mut command = house.command();
    let program = command.get_program().to_owned();
    let environment: Vec<_> = command
        .get_envs()
        .map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)))
        .collect();
    command = Command::new(example);
    for (name, value) in environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command.arg(program).arg("mcp").args(args).stdin(Stdio::null());
    command.output().expect("it runs")
}

fn told(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

pub fn a_team_shares_work(house: House) {
    let output = run(&house, &program("team"), &["--no-spawn"]);
    let told = told(&output);
    assert!(output.status.success(), "{told}\n{}", house.stderr());
    assert!(told.contains("done: all counts agree, and nothing is left"), "{told}");
    assert_eq!(house.list().len(), 0, "workspaces are left");
    leaks::check(&house);
    // What it prints is what its guide shows.
    assert_guide("a-team.md", &told);
}

pub fn a_swarm_changes_this_repository(house: House) {
    let output = run(&house, &program("swarm"), &["--no-spawn"]);
    let told = told(&output);
    assert!(output.status.success(), "{told}\n{}", house.stderr());
    assert!(told.contains("done: every change is in one history"), "{told}");
    assert_eq!(house.list().len(), 0, "workspaces are left");
    leaks::check(&house);
    assert_guide("a-swarm.md", &told);
}

/// What an example prints is in its guide, word for word.
pub(crate) fn assert_guide(name: &str, told: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guides").join(name);
    let guide = std::fs::read_to_string(&path).expect("the guide is there");
    assert!(guide.contains(told), "{name} shows something else than:\n{told}");
}
