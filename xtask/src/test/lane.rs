//! The lane of the machines: scenes of tests/vm that take turns, and what a run leaves out.

use anyhow::{Context, Result};
use xshell::{Cmd, cmd};

use crate::repo::Repo;

/// Names the share of the scenes that take turns, for the program of the scenes.
pub(crate) const SHARE: &str = "TEST_HIVEKEEP_SHARE";
/// The share that is all of them.
pub(crate) const ALL: &str = "all";
/// Adds scenes that are a night's.
pub(crate) const NIGHTLY: &str = "TEST_HIVEKEEP_NIGHTLY";

/// Word for what the host cannot play.
const SKIPPED: &str = "SKIPPED";
/// Runs in which each scene has its turn once.
const SHARES: u64 = 3;

/// The share of a run on this commit: one after the other, so that each scene is played at least every
/// third commit. Files without their history do not count, and take all.
pub(super) fn share_of_this_run(repo: &Repo) -> Result<String> {
    let shell = &repo.shell;
    let shallow = cmd!(shell, "git rev-parse --is-shallow-repository").quiet().read();
    if !shallow.is_ok_and(|answer| answer == "false") {
        return Ok(ALL.to_owned());
    }
    let commits = cmd!(shell, "git rev-list --count HEAD").quiet().read()?;
    Ok(share_after(commits.parse().context("git counts no commits")?))
}

fn share_after(commits: u64) -> String {
    format!("{}/{SHARES}", commits % SHARES + 1)
}

/// True for a filter that names scenes, and not only the kind of their workspaces: those that it names
/// are played, whenever they have their turn.
pub(crate) fn names_scenes(filter: &str) -> bool {
    !matches!(filter.trim_end_matches(':'), "vm" | "sandbox")
}

/// What a run of the scenes leaves out, each as `scene: why`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// What the host cannot play.
    pub(super) skipped: Vec<String>,
    /// What has its turn in another run, or at night.
    pub(super) later: Vec<String>,
}

/// The program of the scenes, which says what it leaves out in the environment that it is given.
pub(super) fn program(repo: &Repo) -> Cmd<'_> {
    repo.cargo(&["test", "--quiet", "--test", "vm"], &["hivekeep"]).args(["--", "--left-out"])
}

/// Asks the program; only scenes whose names contain the filter, and none of machines if there are to be
/// none.
pub(super) fn left_out(program: Cmd<'_>, filter: Option<&str>, vms: bool) -> Result<LeftOut> {
    let wanted = |name: &str| {
        filter.is_none_or(|filter| name.contains(filter)) && (vms || !name.starts_with("vm::"))
    };
    told(&program.quiet().read()?, wanted)
}

fn told(lines: &str, wanted: impl Fn(&str) -> bool) -> Result<LeftOut> {
    let mut all = LeftOut::default();
    for line in lines.lines().filter(|line| !line.is_empty()) {
        let parts = line.split_once(": ");
        let parts = parts.and_then(|(word, rest)| Some((word, rest, rest.split_once(": ")?.0)));
        let (word, rest, name) =
            parts.with_context(|| format!("no scene is left out by `{line}`"))?;
        let list = if word == SKIPPED { &mut all.skipped } else { &mut all.later };
        if wanted(name) {
            list.push(rest.to_owned());
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = "SKIPPED: vm::boots: qemu-system-x86_64 is not installed\n\
        ROTATED: vm::crash::dies: share 2/3, this run is 1/3; --share all\n\
        NIGHT: sandbox::software: a night has it; TEST_HIVEKEEP_NIGHTLY=1\n";

    #[test]
    fn three_commits_have_three_shares() {
        let shares: Vec<String> = (3_637..3_641).map(share_after).collect();
        assert_eq!(shares, ["2/3", "3/3", "1/3", "2/3"]);
    }

    #[test]
    fn what_cannot_be_played_is_apart_from_what_has_its_turn_later() {
        let all = told(TOLD, |_| true).unwrap();
        assert_eq!(all.skipped, ["vm::boots: qemu-system-x86_64 is not installed"]);
        assert_eq!(
            all.later,
            [
                "vm::crash::dies: share 2/3, this run is 1/3; --share all",
                "sandbox::software: a night has it; TEST_HIVEKEEP_NIGHTLY=1",
            ]
        );
        let of_sandboxes = told(TOLD, |name| name.starts_with("sandbox::")).unwrap();
        assert_eq!((of_sandboxes.skipped.len(), of_sandboxes.later.len()), (0, 1));
        assert!(told("test result: ok", |_| true).is_err());
    }

    #[test]
    fn a_filter_that_says_more_than_the_kind_names_scenes() {
        assert!(["vm::run", "vm::run::many_at_once", "storm"].into_iter().all(names_scenes));
        assert!(!names_scenes("vm") && !names_scenes("vm::") && !names_scenes("sandbox"));
    }
}
