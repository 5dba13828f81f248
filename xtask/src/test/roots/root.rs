//! A root file system, and programs that run in it.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};

use super::archive::Archive;

/// Nothing in a root file system takes longer.
const LIMIT_SECS: &str = "600";

/// Variables taken over from this machine's environment: the way to the archive.
const PROXIES: [&str; 4] = ["http_proxy", "https_proxy", "no_proxy", "all_proxy"];

/// User who runs a program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum User {
    Root,
    Nobody,
}

/// A tree that is gone with this value. Mounts are made in a namespace for each
/// program and end with it: none can be left behind.
pub(super) struct Root {
    path: PathBuf,
    log: PathBuf,
}

/// Output of a program in the root file system, and its exit status.
#[must_use]
pub(super) struct Said {
    what: String,
    success: bool,
    text: String,
    log: PathBuf,
}

impl Root {
    /// A Debian with nothing but apt and this program; or why there is none.
    pub(super) fn make(
        folder: &Path,
        codename: &str,
        archive: &Archive,
    ) -> Result<Result<Self, String>> {
        let path = folder.join(codename);
        remove(&path)?;
        let root = Self { log: folder.join(format!("{codename}.log")), path };
        File::create(&root.log)?;
        let mut make = Command::new("timeout");
        make.args(["--kill-after=10", LIMIT_SECS, "mmdebstrap"]);
        make.args(["--mode=root", "--variant=apt", "--format=directory"]);
        // Nobody needs this tree after a power failure.
        make.args(["--dpkgopt=force-unsafe-io", "--aptopt=Acquire::Languages \"none\""]);
        make.args(archive.options.iter().map(|option| format!("--aptopt={option}")));
        make.arg(codename).arg(&root.path).arg("-").env("TMPDIR", folder);
        let made = root.run(make, &archive.sources(codename))?;
        if !made.success {
            let last = made.text.lines().rfind(|line| line.starts_with('E'));
            let why = last.unwrap_or_else(|| made.text.lines().last().unwrap_or_default());
            return Ok(Err(format!(
                "no {codename} can be made from this machine's sources: {why}"
            )));
        }
        let program = std::env::current_exe()?;
        fs::copy(&program, root.path("usr/local/bin/xtask")).context("this program")?;
        let loaded = root.command(&["xtask", "--help"], User::Root)?;
        if !loaded.success {
            // Such as one built with a newer C library.
            return Ok(Err(format!("this program does not run in {codename}: {}", loaded.text)));
        }
        Ok(Ok(root))
    }

    /// Runs `setup --packages-only` with these arguments.
    pub(super) fn setup(&self, arguments: &[&str], user: User) -> Result<Said> {
        let setup = ["xtask", "setup", "--packages-only"];
        self.command(&[&setup[..], arguments].concat(), user)
    }

    /// Runs a program in it.
    pub(super) fn command(&self, arguments: &[&str], user: User) -> Result<Said> {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", LIMIT_SECS]);
        command.args(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.arg(format!("--root={}", self.path.display())).arg("--wd=/").env_clear();
        if user == User::Nobody {
            command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
        }
        command.args(arguments);
        command.env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("LC_ALL", "C.UTF-8").env("DEBIAN_FRONTEND", "noninteractive");
        command.envs(PROXIES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        self.run(command, "")
    }

    /// A file's text.
    pub(super) fn read(&self, file: &str) -> Result<String> {
        fs::read_to_string(self.path(file)).with_context(|| file.to_owned())
    }

    /// A file's place on this machine.
    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.path.join(file)
    }

    fn run(&self, mut command: Command, input: &str) -> Result<Said> {
        let what = format!("{command:?}");
        let mut log = File::options().append(true).open(&self.log)?;
        writeln!(log, "\n$ {what}")?;
        let feed = self.path.with_extension("stdin");
        fs::write(&feed, input)?;
        command.stdin(File::open(&feed)?).stdout(Stdio::piped()).stderr(Stdio::piped());
        let Output { status, stdout, stderr } = command.output().context(what.clone())?;
        let text = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let text = text.concat();
        writeln!(log, "{text}\n{status}")?;
        Ok(Said { what, success: status.success(), text, log: self.log.clone() })
    }
}

impl Said {
    /// Output of a program that succeeded.
    pub(super) fn done(self) -> Result<String> {
        self.ended(true)
    }

    /// Output of a program that refused.
    pub(super) fn refused(self) -> Result<String> {
        self.ended(false)
    }

    fn ended(self, success: bool) -> Result<String> {
        let Self { what, text, log, .. } = self;
        let last: Vec<&str> = text.lines().rev().take(10).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        let how = if success { "failed" } else { "was to fail and did not" };
        ensure!(
            self.success == success,
            "{what} {how} (all of it is in {}):\n{}",
            log.display(),
            last.join("\n")
        );
        Ok(text)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.path.with_extension("stdin"));
        if let Err(error) = remove(&self.path) {
            println!("{error:#}");
        }
    }
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}
