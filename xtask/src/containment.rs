//! What code within each kind of wall reaches of what is outside: a program tries, this judges.
//!
//! ```text
//! outside:  a process that listens ─ a file ─ the daemon      (with root: in namespaces of their own,
//! probe ─┬─ outside of all walls: can the attempt succeed?     where a metadata address answers too)
//!        └─ source, reader, browser, page, sandbox, interpreter, vm
//! table:    held by what ─ untried and why ─ not held and why; anything else is red
//! ```

mod grounds;
mod table;
mod walls;

use std::{fs, process::Command};

use anyhow::{Result, ensure};
use clap::Args;

use self::{grounds::Grounds, table::ContainmentTable, walls::Wall};
use crate::repo::Repo;
use crate::setup::needs::program;
use crate::steps::{StepOutcome, passed};
use crate::{guest, image};

/// Page that keeps the table.
const PAGE: &str = "docs/security.md";

#[derive(Args)]
pub(crate) struct ContainmentCommand {
    /// Try virtual machines too
    #[arg(long)]
    vms: bool,
    /// Write the table to docs/security.md
    #[arg(long)]
    write: bool,
    /// It is in namespaces of its own already
    #[arg(long, hide = true)]
    apart: bool,
}

impl ContainmentCommand {
    pub(crate) fn run(&self, repo: &Repo) -> Result<()> {
        if !self.apart {
            guest::build(repo)?;
            repo.build_daemon()?;
            image::build(repo, "base")?;
        }
        self.try_all(repo)
    }

    fn try_all(&self, repo: &Repo) -> Result<()> {
        if !self.apart && rustix::process::geteuid().is_root() {
            return self.try_apart();
        }
        let table = self.table(repo)?;
        println!("\n{table}");
        if self.write {
            let page = repo.root.join(PAGE);
            fs::write(&page, table.written_to(&fs::read_to_string(&page)?, &stamp(repo)?)?)?;
            println!("written: {PAGE}");
        }
        let red = table.red();
        ensure!(red.is_empty(), "not held: {}", red.join("; "));
        Ok(())
    }

    /// Again, in a network and with mounts of its own: what is put up outside of the walls is up there alone.
    fn try_apart(&self) -> Result<()> {
        ensure!(program("unshare") && program("ip"), "install util-linux and iproute2");
        let mut apart = Command::new("unshare");
        apart.args(["--net", "--mount", "--"]).arg(std::env::current_exe()?);
        apart.args(["containment", "--apart"]);
        apart.args(self.vms.then_some("--vms")).args(self.write.then_some("--write"));
        let status = apart.status()?;
        ensure!(status.success(), "the walls were tried in namespaces of their own: {status}");
        Ok(())
    }

    fn table(&self, repo: &Repo) -> Result<ContainmentTable> {
        let vms = self.vms && walls::no_machines(repo).is_none();
        let grounds = Grounds::prepare(repo, self.apart, vms)?;
        let mut table = ContainmentTable::new(grounds.outside()?);
        for wall in Wall::ALL {
            println!("== {}", wall.name());
            let left_out = match wall {
                Wall::Vm if !self.vms => Some("virtual machines are tried with `--vms`".to_owned()),
                _ => grounds.lacks(wall),
            };
            let tried = match left_out {
                Some(why) => {
                    println!("LEFT OUT: {why}");
                    Err(why)
                }
                None => Ok(grounds.tried(wall)?),
            };
            table.add(wall, tried);
        }
        Ok(table)
    }
}

/// The table as a step of the tests, which have built everything.
///
/// # Errors
/// When it cannot run, or what is promised does not hold.
pub(crate) fn check(repo: &Repo, vms: bool) -> Result<StepOutcome> {
    if !program("bwrap") {
        return Ok(StepOutcome::Skipped("bwrap is not installed".to_owned()));
    }
    ContainmentCommand { vms, write: false, apart: false }.try_all(repo)?;
    Ok(passed("what is promised holds"))
}

/// Day and commit of a run, and its kernel.
fn stamp(repo: &Repo) -> Result<String> {
    let shell = &repo.shell;
    let said = |cmd: xshell::Cmd<'_>| cmd.quiet().read();
    let date = said(xshell::cmd!(shell, "date --utc +%F"))?;
    let commit = said(xshell::cmd!(shell, "git rev-parse --short=8 HEAD"))?;
    let kernel = said(xshell::cmd!(shell, "uname -r"))?;
    let user = if rustix::process::geteuid().is_root() { "root" } else { "an ordinary user" };
    Ok(format!("Tried on {date} at {commit}, by {user}, on Linux {kernel}."))
}
