//! The images that the tests boot.

use anyhow::{Context, Result, ensure};
use clap::Args;
use xshell::cmd;

use crate::guest;
use crate::repo::Repo;

#[derive(Args)]
pub(crate) struct Image {
    /// Which images; `base` when none is named
    names: Vec<String>,
}

impl Image {
    pub(crate) fn run(&self, repo: &Repo) -> Result<()> {
        guest::build(repo)?;
        repo.build_daemon()?;
        let names = if self.names.is_empty() { &["base".to_owned()][..] } else { &self.names };
        names.iter().try_for_each(|name| build(repo, name))
    }
}

/// Builds an image into the target folder. What is there and intact is kept, and
/// after a change of the guest only the initrd is made again.
pub(crate) fn build(repo: &Repo, name: &str) -> Result<()> {
    let shell = &repo.shell;
    let hivekeep = repo.hivekeep();
    ensure!(hivekeep.exists(), "{} is not built", hivekeep.display());
    let environment = environment(repo);
    cmd!(shell, "{hivekeep} image build {name}")
        .envs(environment)
        .run()
        .with_context(|| format!("the image `{name}` could not be built"))
}

/// Tells a daemon where images and guest of this checkout are.
pub(crate) fn environment(repo: &Repo) -> [(&'static str, std::path::PathBuf); 3] {
    [
        // Nothing of the user's own daemon is read or touched.
        ("HIVEKEEP_HOME", repo.target.join("home")),
        ("HIVEKEEP_WORKSPACE__IMAGE_DIR", repo.images()),
        ("HIVEKEEP_WORKSPACE__GUEST_BINARY", guest::installed(repo)),
    ]
}
