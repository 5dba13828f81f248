//! `cargo xtask t CRATE [FILTER]`: the tests of one package, or of one module of the root's.

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;
use xshell::cmd;

use crate::repo::{Repo, UNIFY};
use crate::steps::StepOutcome;
use crate::test::nextest::{ran, with_programs};
use crate::test::{lane, vsock};
use crate::{guest, image, setup};

/// Packages with tests that start the static guest.
const WITH_GUEST: [&str; 5] =
    ["hivekeep-git", "hivekeep-guest", "hivekeep-link", "hivekeep-machine", "hivekeep-workspace"];
/// Packages with tests that boot an image, too.
const WITH_IMAGE: &str = "hivekeep-machine";

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    cargo xtask t team                 all tests of hivekeep-team\n  \
    cargo xtask t team inbox           those whose name contains `inbox`\n  \
    cargo xtask t hivekeep             unit tests of the daemon and its command line\n  \
    cargo xtask t it::http_api         a module of tests/it\n  \
    cargo xtask t sandbox::files       scenes with sandboxes\n  \
    cargo xtask t vm::snapshots        scenes with virtual machines")]
pub(crate) struct TestOne {
    /// A package, with or without `hivekeep-`; or `it`, `vm` or `sandbox`, and a module of it
    package: String,
    /// Only tests whose name contains this
    filter: Option<String>,
    /// Show what tests print
    #[arg(long)]
    no_capture: bool,
}

/// What is to be run.
#[derive(Debug, PartialEq, Eq)]
struct Selection {
    package: String,
    /// A binary of the package's; all when there is none.
    binary: Option<&'static str>,
    /// Filterset of nextest; everything when it is empty.
    filterset: String,
}

impl TestOne {
    pub(crate) fn run(&self, repo: &Repo) -> Result<()> {
        setup::tools(&repo.shell)?;
        let chosen = Selection::parse(&self.package, self.filter.as_deref(), &packages(repo)?)?;
        let scenes = chosen.binary == Some("vm");
        if scenes || WITH_GUEST.contains(&&*chosen.package) {
            guest::build(repo)?;
        }
        if scenes || chosen.package == WITH_IMAGE {
            repo.build_daemon()?;
            image::build(repo, "base")?;
        }
        let names = |it: &str| {
            self.package.contains(it) || self.filter.iter().any(|filter| filter.contains(it))
        };
        if scenes && names("vsock") {
            vsock::prepare(repo, lane::ALL)?;
        }
        let run = repo.cargo(&["nextest", "run", "--no-tests", "fail"], &[&chosen.package]);
        let run = match chosen.binary {
            Some(binary) => run.args(["--test", binary]),
            None => run,
        };
        let run = match chosen.filterset.is_empty() {
            true => run,
            false => run.arg("--filterset").arg(chosen.filterset),
        };
        // Who names a scene has it played, whichever turn it has.
        let named = scenes && (lane::names_scenes(&self.package) || self.filter.is_some());
        let run = if named { run.env(lane::NIGHTLY, "1") } else { run };
        let run = run.args(self.no_capture.then_some("--no-capture"));
        let run = run.args(["--profile", "ci", "--retries", "0", "--status-level", "pass"]);
        let tally = ran(repo, with_programs(repo, run, repo.images().exists())?)?;
        tally.skipped.iter().for_each(|skipped| println!("SKIPPED: {skipped}"));
        match tally.outcome() {
            StepOutcome::Failed(why) => bail!(why),
            StepOutcome::Passed(what) | StepOutcome::Skipped(what) => println!("{what}"),
        }
        Ok(())
    }
}

impl Selection {
    fn parse(what: &str, filter: Option<&str>, packages: &[String]) -> Result<Self> {
        let (first, module) =
            what.split_once("::").map_or((what, ""), |(first, rest)| (first, rest));
        let contains = |text: &str| match text {
            "" => String::new(),
            text => format!("test({text})"),
        };
        let both = |one: String, other: String| match (one.is_empty(), other.is_empty()) {
            (true, _) => other,
            (_, true) => one,
            _ => format!("{one} & {other}"),
        };
        let filter = contains(filter.unwrap_or_default());
        let root = |binary, filterset| Self {
            package: "hivekeep".to_owned(),
            binary: Some(binary),
            filterset,
        };
        match first {
            "it" => return Ok(root("it", both(contains(module), filter))),
            "vm" | "sandbox" => {
                return Ok(root("vm", both(format!("test(/^{what}(::|$)/)"), filter)));
            }
            _ => {}
        }
        let names = [what.to_owned(), format!("hivekeep-{what}")];
        let Some(package) = names.into_iter().find(|name| packages.contains(name)) else {
            bail!("`{what}` is none of it, vm, sandbox, {}", packages.join(", "));
        };
        // The root's integration tests have names of their own.
        let units = if package == "hivekeep" { "kind(lib) | kind(bin)" } else { "" };
        let filterset = match (units.is_empty(), filter.is_empty()) {
            (false, false) => format!("({units}) & {filter}"),
            _ => format!("{units}{filter}"),
        };
        Ok(Self { package, binary: None, filterset })
    }
}

/// Packages of the workspace.
fn packages(repo: &Repo) -> Result<Vec<String>> {
    let shell = &repo.shell;
    let metadata = cmd!(shell, "cargo metadata --offline --no-deps --format-version 1");
    let metadata: Value = serde_json::from_str(&metadata.quiet().read()?)?;
    let packages = metadata["packages"].as_array().context("cargo names no packages")?;
    let names = packages.iter().filter_map(|package| package["name"].as_str().map(str::to_owned));
    Ok(names.filter(|name| name != UNIFY).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_goes_by_its_short_name_and_the_root_by_its_binaries() {
        let packages = ["hivekeep", "hivekeep-team", "xtask"].map(str::to_owned);
        let chosen = |what, filter| {
            let Selection { package, binary, filterset } =
                Selection::parse(what, filter, &packages).unwrap();
            (package, binary, filterset)
        };
        let of = |package: &str, binary, filterset: &str| {
            (package.to_owned(), binary, filterset.to_owned())
        };
        assert_eq!(chosen("team", None), of("hivekeep-team", None, ""));
        assert_eq!(
            chosen("hivekeep-team", Some("inbox")),
            of("hivekeep-team", None, "test(inbox)")
        );
        assert_eq!(chosen("xtask", None), of("xtask", None, ""));
        assert_eq!(chosen("hivekeep", None), of("hivekeep", None, "kind(lib) | kind(bin)"));
        assert_eq!(chosen("it::http", None), of("hivekeep", Some("it"), "test(http)"));
        assert_eq!(
            chosen("vm::snapshots", Some("forks")),
            of("hivekeep", Some("vm"), "test(/^vm::snapshots(::|$)/) & test(forks)")
        );
        assert!(Selection::parse("nothing", None, &packages).is_err());
    }
}
