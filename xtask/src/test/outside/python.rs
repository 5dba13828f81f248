//! Environments of Python with pinned packages: made by uv, which takes seconds, or by pip where uv cannot be had.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

use super::package_cache::PackageCache;
use crate::repo::Repo;
use crate::setup::needs::program;

/// uv where none is in the PATH.
const UV: &str = "uv==0.13.9";
/// Seconds for the packages of one environment.
const PATIENCE: &str = "600";

/// Packages that come with those that are pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dependencies {
    /// What they name, in the newest version that fits.
    Resolved,
    /// None: all that is needed is pinned.
    Pinned,
}

/// Environment with a Python of its own.
pub(super) struct PythonEnvironment {
    folder: PathBuf,
}

impl PythonEnvironment {
    /// With the packages of `tests/clients/NAME.txt`.
    pub(super) fn of_file(repo: &Repo, name: &str, dependencies: Dependencies) -> Result<Self> {
        let file = repo.root.join(format!("tests/clients/{name}.txt"));
        let pins = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        Self::of_pins(name, &packages(&pins), dependencies)
            .with_context(|| format!("the packages of tests/clients/{name}.txt cannot be had"))
    }

    /// With the packages of one line, as `a==1 b==2`, and what they depend on.
    pub(super) fn of_line(name: &str, line: &str) -> Result<Self> {
        Self::of_pins(name, &packages(line), Dependencies::Resolved)
            .with_context(|| format!("{line} cannot be had"))
    }

    fn of_pins(name: &str, packages: &[&str], dependencies: Dependencies) -> Result<Self> {
        let recipe = format!("{}\n{dependencies:?}\n{}", interpreter()?, packages.join("\n"));
        let cache = PackageCache::of_user()?;
        let make = |half: &Path| {
            let by_uv = uv(&cache).and_then(|uv| install_by_uv(&uv, half, packages, dependencies));
            by_uv.or_else(|error| {
                println!("uv cannot be used, pip takes longer: {error:#}");
                install_by_pip(half, packages, dependencies)
            })
        };
        Ok(Self { folder: cache.folder(name, &recipe, make)? })
    }

    pub(super) fn python(&self) -> PathBuf {
        self.folder.join("bin/python")
    }

    /// Folder of the installed packages.
    pub(super) fn packages(&self) -> Result<PathBuf> {
        let library = self.folder.join("lib");
        let version = fs::read_dir(&library)?.next().context("an environment has a library")??;
        Ok(version.path().join("site-packages"))
    }
}

/// The machine's Python, on which an environment stands: its version and place.
fn interpreter() -> Result<&'static str> {
    static ASKED: OnceLock<String> = OnceLock::new();
    if let Some(python) = ASKED.get() {
        return Ok(python);
    }
    let (shell, about) = (Shell::new()?, "import sys; print(sys.version, sys.base_prefix)");
    let python = cmd!(shell, "python3 -c {about}").quiet().read().context("python3")?;
    Ok(ASKED.get_or_init(|| python))
}

/// Python with the packages of `tests/clients/NAME.txt`, which names all that they need.
pub(crate) fn python(repo: &Repo, name: &str) -> Result<PathBuf> {
    Ok(PythonEnvironment::of_file(repo, name, Dependencies::Pinned)?.python())
}

/// Packages that a text names, its comments left out.
fn packages(pins: &str) -> Vec<&str> {
    pins.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace).collect()
}

/// uv: that of the PATH, or one of our own.
fn uv(cache: &PackageCache) -> Result<PathBuf> {
    if program("uv") {
        return Ok("uv".into());
    }
    let make = |half: &Path| install_by_pip(half, &[UV], Dependencies::Resolved);
    Ok(cache.folder("uv", UV, make)?.join("bin/uv"))
}

fn install_by_uv(uv: &Path, into: &Path, packages: &[&str], more: Dependencies) -> Result<()> {
    let shell = Shell::new()?;
    // Python is the machine's, as pip's is.
    shell.set_var("UV_PYTHON_DOWNLOADS", "never");
    cmd!(shell, "{uv} venv --quiet --clear --python python3 {into}").quiet().run()?;
    let (python, pins) = (into.join("bin/python"), pins_of(into, packages, more)?);
    let install = cmd!(shell, "timeout --kill-after=10 {PATIENCE} {uv} pip install --quiet");
    Ok(install.args(["--python".into(), python]).args(pins).quiet().run()?)
}

fn install_by_pip(into: &Path, packages: &[&str], more: Dependencies) -> Result<()> {
    let shell = Shell::new()?;
    cmd!(shell, "python3 -m venv --clear {into}").quiet().run().context("python3 -m venv")?;
    let (python, pins) = (into.join("bin/python"), pins_of(into, packages, more)?);
    let install = cmd!(shell, "timeout --kill-after=10 {PATIENCE} {python} -m pip install --quiet");
    Ok(install.args(pins).quiet().run()?)
}

/// Arguments that name the packages, by a file that stays with them.
fn pins_of(into: &Path, packages: &[&str], more: Dependencies) -> Result<Vec<OsString>> {
    let file = into.join("pins.txt");
    fs::write(&file, packages.join("\n"))?;
    let mut arguments = vec!["--requirement".into(), file.into()];
    if more == Dependencies::Pinned {
        arguments.push("--no-deps".into());
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_what_is_no_comment() {
        let file = "# Some words of explanation.\na==1\nb==2 c==3\n\n# More.\n";
        assert_eq!(packages(file), ["a==1", "b==2", "c==3"]);
        assert!(packages("# a==1\n").is_empty());
    }
}
