//! Runs of a door's SDKs: which there are, and which of them a test run makes.

use std::path::PathBuf;

use anyhow::Result;
use xshell::cmd;

use super::versions::python_versions;
use super::{DRIVERS, SdkClients, TEMPLATE};
use crate::repo::Repo;

/// Version of the Python SDK among those that asks for a sandbox that it connects to by its name; newer ones find it by
/// an address alone.
const CONNECTS_BY_NAME: &str = "2.10.2";

/// Clients in Python: their row, their package, their driver, and whether that is told the template (0) or not (1).
pub(super) const PYTHON: [(&str, &str, &str, usize); 3] = [
    ("Python", "e2b", "drive_e2b.py", 0),
    ("Python, code", "e2b-code-interpreter", "drive_code.py", 1),
    ("Python, `langchain-e2b`", "langchain-e2b", "drive_langchain_e2b.py", 0),
];
/// Clients in JavaScript: their row and their driver.
pub(super) const JAVASCRIPT: [(&str, &str); 2] =
    [("JavaScript", "drive_e2b.mjs"), ("JavaScript, code", "drive_code.mjs")];

/// What drives.
pub(super) enum SdkProgram {
    /// This Python with this script.
    Python(PathBuf, PathBuf),
    /// Node.js with this script, which is told the package.
    JavaScript(&'static str, &'static str),
}

/// One SDK of one version, driving.
pub(super) struct SdkRun {
    /// Row of the table.
    pub(super) row: String,
    /// Package and version, for people.
    pub(super) name: String,
    pub(super) program: SdkProgram,
    pub(super) arguments: Vec<&'static str>,
    /// One of those that take turns: of all of them, a run of the tests makes one.
    pub(super) takes_turns: bool,
}

/// All runs of a door's clients. With virtual machines, which are slow where there is no KVM, older versions are asked
/// for what sandboxes have not, and only the newest for code.
pub(super) fn runs(
    repo: &Repo,
    isolation: &'static str,
    clients: &SdkClients,
) -> Result<Vec<SdkRun>> {
    let folder = repo.root.join(DRIVERS);
    let (sandboxes, over) = (isolation == "sandbox", clients.over);
    let arguments = |from: usize, at: usize| {
        let life = (!sandboxes && at > 0).then_some("life");
        [TEMPLATE, isolation].into_iter().skip(from).chain(life).collect()
    };
    let mut runs = Vec::new();
    for (language, package, script, from) in PYTHON {
        let versions = python_versions(repo, clients.pins, package)?;
        for (at, (version, environment)) in versions.into_iter().enumerate() {
            let in_machines = match package {
                "e2b" => version != CONNECTS_BY_NAME,
                "langchain-e2b" => false,
                _ => at == 0,
            };
            if sandboxes || in_machines {
                runs.push(SdkRun {
                    row: format!("{language}{over}"),
                    name: format!("{package} {version}"),
                    program: SdkProgram::Python(environment.python(), folder.join(script)),
                    arguments: arguments(from, at),
                    takes_turns: !sandboxes && (at > 0 || package != "e2b"),
                });
            }
        }
    }
    for (language, script) in JAVASCRIPT {
        let (packages, from) = match language {
            "JavaScript" => (clients.packages, 0),
            _ if sandboxes => (clients.code_packages, 1),
            _ => continue,
        };
        for (at, package) in packages.iter().enumerate() {
            runs.push(SdkRun {
                row: format!("{language}{over}"),
                name: format!("npm's {package}"),
                program: SdkProgram::JavaScript(script, package),
                arguments: arguments(from, at),
                takes_turns: !sandboxes && at > 0,
            });
        }
    }
    Ok(runs)
}

/// Number of this test run among those that take turns: that of the commit. A checkout without history is the first.
pub(super) fn turn(repo: &Repo) -> usize {
    let count = cmd!(repo.shell, "git rev-list --count HEAD").quiet().ignore_stderr().read();
    count.ok().and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Keeps one of those that take turns; names the others.
pub(super) fn keep_one(runs: Vec<SdkRun>, turn: usize) -> (Vec<SdkRun>, Vec<String>) {
    let (mut kept, mut others) = (Vec::new(), Vec::new());
    let all = runs.iter().filter(|run| run.takes_turns).count().max(1);
    let mut nth = 0;
    for run in runs {
        if run.takes_turns {
            nth += 1;
            if nth - 1 != turn % all {
                others.push(run.name);
                continue;
            }
        }
        kept.push(run);
    }
    (kept, others)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run((name, takes_turns): (&str, bool)) -> SdkRun {
        let program = SdkProgram::JavaScript("drive.mjs", "package");
        let (row, name) = (String::new(), name.to_owned());
        SdkRun { row, name, program, arguments: Vec::new(), takes_turns }
    }

    #[test]
    fn each_older_version_has_its_turn_and_the_newest_has_all() {
        let all = [("new", false), ("a", true), ("b", true), ("other", false), ("c", true)];
        let mut seen = Vec::new();
        for turn in 41..44 {
            let (kept, others) = keep_one(all.map(run).into_iter().collect(), turn);
            let kept: Vec<_> = kept.into_iter().map(|run| run.name).collect();
            assert_eq!((kept.len(), others.len()), (3, 2), "{turn}: {kept:?}");
            assert!(kept.contains(&"new".to_owned()) && kept.contains(&"other".to_owned()));
            assert!(others.iter().all(|other| !kept.contains(other)));
            seen.extend(kept.into_iter().filter(|name| name != "new" && name != "other"));
        }
        seen.sort();
        assert_eq!(seen, ["a", "b", "c"]);
        let (kept, others) = keep_one(vec![run(("new", false))], 7);
        assert_eq!((kept.len(), others.len()), (1, 0));
    }
}
