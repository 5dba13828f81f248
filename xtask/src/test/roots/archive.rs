//! Debian's archive, where this machine's apt finds it.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Key that signs Debian's archive, here and in every Debian.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Options by which apt reaches the archive, in apt's own syntax.
const ACQUIRE: [&str; 4] =
    ["Acquire::http", "Acquire::https", "Acquire::Check-", "Acquire::Retries"];

pub(super) struct Archive {
    /// Address and what stands behind the name of a release, such as `-updates`.
    parts: BTreeSet<(String, String)>,
    pub(super) options: Vec<String>,
}

impl Archive {
    /// The archive, or why there is none.
    pub(super) fn of_this_machine() -> Result<Result<Self, String>> {
        let targets = said(Command::new("apt-get").args([
            "indextargets",
            "--format",
            "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(LABEL)",
            "Identifier: Packages",
        ]))?;
        let parts = parts(&targets);
        if parts.is_empty() {
            return Ok(Err("no list of Debian's archive: apt-get update".to_owned()));
        }
        let settings = said(Command::new("apt-config").args(["dump", "--no-empty"]))?;
        let kept = |line: &&str| ACQUIRE.iter().any(|start| line.starts_with(start));
        let options = settings.lines().filter(kept).map(str::to_owned).collect();
        Ok(Ok(Self { parts, options }))
    }

    /// The lines of a `sources.list` for a release.
    pub(super) fn sources(&self, codename: &str) -> String {
        let line = |(uri, suffix): &(String, String)| {
            format!("deb [signed-by={KEYRING}] {uri} {codename}{suffix} main\n")
        };
        self.parts.iter().map(line).collect()
    }
}

/// The parts of a stable release, whichever release this machine has.
fn parts(targets: &str) -> BTreeSet<(String, String)> {
    let part = |line: &str| {
        let fields: Vec<&str> = line.split('|').collect();
        let [uri, release, "main", "Debian" | "Debian-Security"] = fields[..] else { return None };
        let suffix = release.find('-').map_or("", |at| &release[at..]);
        let stable = ["", "-updates", "-security"].contains(&suffix);
        stable.then(|| (uri.to_owned(), suffix.to_owned()))
    };
    targets.lines().filter_map(part).collect()
}

/// Output of a program.
fn said(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_release_is_where_this_machines_is() {
        let targets = "mirror://debian/|bookworm|main|Debian\n\
            mirror://debian/|bookworm|contrib|Debian\n\
            mirror://debian/|bookworm-updates|main|Debian\n\
            mirror://debian/|bookworm-backports|main|Debian Backports\n\
            mirror://security/|bookworm-security|main|Debian-Security\n\
            mirror://elsewhere/|stable|main|Another\n\
            mirror://ubuntu/|noble|main|Ubuntu\n";
        let archive = Archive { parts: parts(targets), options: Vec::new() };
        assert_eq!(
            archive.sources("trixie"),
            format!(
                "deb [signed-by={KEYRING}] mirror://debian/ trixie main\n\
                 deb [signed-by={KEYRING}] mirror://debian/ trixie-updates main\n\
                 deb [signed-by={KEYRING}] mirror://security/ trixie-security main\n"
            )
        );
    }
}
