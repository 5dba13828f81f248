//! Private apt: fetches packages of any supported suite from Debian's archive on any supported
//! host, without root and without changes to the host, with its own sources, lists and (empty)
//! package state. apt checks signatures; the host's download settings (proxies and such) apply.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::run::{run, tool};
use crate::requirements::KEYRING;
use crate::{Error, Package, Result, Suite};

const MIRROR: &str = "http://deb.debian.org/debian";
const SECURITY_MIRROR: &str = "http://deb.debian.org/debian-security";
/// Time limit of everything that downloads.
const NETWORK_LIMIT: Duration = Duration::from_secs(900);
const LOCAL_LIMIT: Duration = Duration::from_secs(300);

/// Downloaded package.
#[derive(Debug, Clone)]
pub(super) struct Deb {
    pub(super) package: Package,
    file: PathBuf,
}

/// Private apt, ready for one suite.
#[derive(Debug)]
pub(super) struct Apt<'a> {
    config: PathBuf,
    downloads: PathBuf,
    cancel: &'a CancellationToken,
}

impl<'a> Apt<'a> {
    /// Sets apt up below `folder` and fetches the suite's package lists.
    pub(super) async fn open(
        folder: &Path,
        suite: Suite,
        cancel: &'a CancellationToken,
    ) -> Result<Self> {
        let downloads = folder.join("downloads");
        for sub in ["lists/partial", "cache/archives/partial", "downloads"] {
            let sub = folder.join(sub);
            fs::create_dir_all(&sub).map_err(Error::io("create", &sub))?;
        }
        let apt = Self { config: folder.join("apt.conf"), downloads, cancel };
        let write = |file: &str, text: String| {
            let file = folder.join(file);
            fs::write(&file, text).map_err(Error::io("write", &file))
        };
        write("status", String::new())?;
        write("sources.list", sources(suite))?;
        write("apt.conf", settings(folder, &host_acquire(cancel).await?))?;
        apt.tool("apt-get", &["update"], NETWORK_LIMIT).await?;
        Ok(apt)
    }

    /// Direct dependencies of a package.
    pub(super) async fn depends(&self, package: &str) -> Result<Vec<String>> {
        let text = self.tool("apt-cache", &["depends", package], LOCAL_LIMIT).await?;
        Ok(text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            .map(str::to_owned)
            .collect())
    }

    /// Transitive closure of these packages over their dependencies, sorted by name.
    pub(super) async fn closure(&self, names: &[&str]) -> Result<Vec<String>> {
        let args = [&["install", "--simulate", "--quiet"], names].concat();
        // Everything would be installed, because the package state is empty.
        let text = self.tool("apt-get", &args, LOCAL_LIMIT).await?;
        let name = |line: &str| line.strip_prefix("Inst ")?.split(' ').next().map(str::to_owned);
        let mut all: Vec<_> = text.lines().filter_map(name).collect();
        all.sort();
        Ok(all)
    }

    /// Downloads packages, each without its dependencies.
    pub(super) async fn download(&self, names: &[&str]) -> Result<Vec<Deb>> {
        let folder = self.downloads.join(names[0]);
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        let mut command = self.command("apt-get")?;
        command.arg("download").args(names).current_dir(&folder);
        run(command, NETWORK_LIMIT, self.cancel).await?;
        let mut debs = Vec::new();
        for entry in fs::read_dir(&folder).map_err(Error::io("list", &folder))? {
            let file = entry.map_err(Error::io("list", &folder))?.path();
            let mut command = Command::new(tool("dpkg-deb")?);
            command.args(["--show", "--showformat=${Package} ${Version}"]).arg(&file);
            let text = run(command, LOCAL_LIMIT, self.cancel).await?;
            let (name, version) = text.split_once(' ').ok_or_else(|| Error::Rootfs {
                reason: format!("{} does not say its name and version", file.display()),
            })?;
            debs.push(Deb {
                package: Package { name: name.to_owned(), version: version.to_owned() },
                file,
            });
        }
        debs.sort_by(|a, b| a.package.name.cmp(&b.package.name));
        Ok(debs)
    }

    /// Extracts a package's files, running none of its scripts.
    pub(super) async fn unpack(&self, deb: &Deb, into: &Path) -> Result<()> {
        fs::create_dir_all(into).map_err(Error::io("create", into))?;
        let mut command = Command::new(tool("dpkg-deb")?);
        command.arg("-x").arg(&deb.file).arg(into);
        run(command, LOCAL_LIMIT, self.cancel).await?;
        Ok(())
    }

    async fn tool(&self, name: &str, args: &[&str], limit: Duration) -> Result<String> {
        let mut command = self.command(name)?;
        command.args(args);
        run(command, limit, self.cancel).await
    }

    fn command(&self, name: &str) -> Result<Command> {
        let mut command = Command::new(tool(name)?);
        command.env("APT_CONFIG", &self.config);
        Ok(command)
    }
}

/// Contents of a sources.list for a suite with its updates.
pub(super) fn sources(suite: Suite) -> String {
    let line = |mirror, suite: String| format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n");
    [
        line(MIRROR, suite.to_string()),
        line(MIRROR, format!("{suite}-updates")),
        line(SECURITY_MIRROR, format!("{suite}-security")),
    ]
    .concat()
}

/// Download settings of the host (`Acquire::http`, date checks, ...), in apt's own syntax.
pub(super) async fn host_acquire(cancel: &CancellationToken) -> Result<Vec<String>> {
    let mut command = Command::new(tool("apt-config")?);
    command.args(["dump", "--no-empty"]);
    let text = run(command, LOCAL_LIMIT, cancel).await?;
    let wanted = ["Acquire::http", "Acquire::https", "Acquire::Check-", "Acquire::Retries"];
    Ok(text
        .lines()
        .filter(|line| wanted.iter().any(|start| line.starts_with(start)))
        .map(str::to_owned)
        .collect())
}

fn settings(folder: &Path, acquire: &[String]) -> String {
    let dir = folder.display();
    let own = format!(
        r#"Dir::State::lists "{dir}/lists";
Dir::State::status "{dir}/status";
Dir::Cache "{dir}/cache";
Dir::Etc::sourcelist "{dir}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::parts "/dev/null";
Dir::Etc::main "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Sandbox::User "";
APT::Architecture "amd64";
APT::Architectures {{ "amd64"; }};
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::GzipIndexes "true";
"#
    );
    format!("{own}{}\n", acquire.join("\n"))
}
