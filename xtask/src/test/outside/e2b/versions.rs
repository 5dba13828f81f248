//! Pinned versions of Python packages, each in an environment of its own.

use std::fs;

use anyhow::Result;

use crate::repo::Repo;
use crate::test::outside::python::PythonEnvironment;

/// The versions of a package in a file of `tests/clients`, the newest first, each with its environment.
pub(super) fn python_versions(
    repo: &Repo,
    pins: &str,
    package: &str,
) -> Result<Vec<(String, PythonEnvironment)>> {
    let pins = fs::read_to_string(repo.root.join("tests/clients").join(pins))?;
    let versions = pinned(&pins, package).into_iter().map(|(version, line)| {
        let environment = PythonEnvironment::of_line(&format!("{package}-{version}"), line)?;
        Ok((version.to_owned(), environment))
    });
    versions.collect()
}

/// Versions of a package, each with its line, which may name others that it is installed with.
fn pinned<'p>(pins: &'p str, package: &str) -> Vec<(&'p str, &'p str)> {
    let lines = pins.lines().filter_map(|line| {
        let version = line.strip_prefix(package)?.strip_prefix("==")?;
        Some((version.split(' ').next().unwrap_or(version), line))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_that_of_the_package_that_begins_the_line() {
        let pins = "# e2b==9\ne2b==2.63.0\ne2b-code==2.11.5 e2b==2.63.0\ne2b==2.53.1\n";
        let sdk = [("2.63.0", "e2b==2.63.0"), ("2.53.1", "e2b==2.53.1")];
        assert_eq!(pinned(pins, "e2b"), sdk);
        assert_eq!(pinned(pins, "e2b-code"), [("2.11.5", "e2b-code==2.11.5 e2b==2.63.0")]);
    }
}
