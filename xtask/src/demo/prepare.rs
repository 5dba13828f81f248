//! What is made once and kept in the target folder: packages, daemon, guest, image.
//!
//! ```text
//! guest (nice, beside) ───────────────────────────┐
//! packages ─ daemon ──────────────────────────────┴─ image
//! ```

use std::{fs, path::PathBuf};

use anyhow::Result;
use xshell::{Cmd, cmd};

use super::{Demo, DemoIsolation, host_image, teller::Teller};
use crate::{
    guest::{self, FastGuest},
    repo::{Repo, UNIFY},
    setup,
};

/// The image of sandboxes.
const HOST_IMAGE: &str = "demo";

/// The programs that are played with, and their image.
pub(crate) struct DemoPrograms {
    /// The daemon and its command line.
    pub(super) hivekeep: PathBuf,
    guest: PathBuf,
    images: PathBuf,
    isolation: DemoIsolation,
}

impl DemoPrograms {
    /// Tells a daemon where guest and images of the demo are.
    pub(super) fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        let mut environment = vec![
            ("HIVEKEEP_WORKSPACE__IMAGE_DIR", self.images.clone()),
            ("HIVEKEEP_WORKSPACE__GUEST_BINARY", self.guest.clone()),
        ];
        if self.isolation == DemoIsolation::Sandbox {
            environment.push(("HIVEKEEP_WORKSPACE__DEFAULT_IMAGE", HOST_IMAGE.into()));
        }
        environment
    }

    /// The command line in a home of its own.
    fn command<'s>(&self, repo: &'s Repo, arguments: &[&str]) -> Cmd<'s> {
        let hivekeep = &self.hivekeep;
        let home = self.images.with_file_name("home");
        let command = cmd!(repo.shell, "{hivekeep} {arguments...}").envs(self.environment());
        command.env("HIVEKEEP_HOME", home).quiet()
    }
}

impl Demo {
    /// Makes everything, in a folder of the demo's own: no test's daemon or image takes its place.
    pub(super) fn prepare(&self, repo: &Repo, teller: &Teller) -> Result<DemoPrograms> {
        let folder = repo.target.join(if self.release { "demo-release" } else { "demo" });
        fs::create_dir_all(&folder)?;
        let programs = DemoPrograms {
            hivekeep: folder.join("hivekeep"),
            guest: folder.join("hivekeep-guest"),
            images: folder.join("images"),
            isolation: self.isolation,
        };
        let beside = match self.release {
            true => None,
            false => Some(FastGuest::start(repo, &folder.join("guest.log"))?),
        };
        teller.step_of(
            "packages of the system",
            "a minute or two where some are missing",
            || {
                setup::for_demo(repo, self.isolation == DemoIsolation::Vm)?;
                Ok("all there".to_owned())
            },
        )?;
        let built = self.daemon(repo, teller)?;
        // Whoever runs the last one keeps it, and a test's build takes its place nowhere.
        guest::put(&built, &programs.hivekeep)?;
        if !self.release {
            // Nothing may take it for the daemon that has all families; cargo puts it there again.
            fs::remove_file(built)?;
        }
        self.guest(repo, teller, &programs, beside)?;
        match self.isolation {
            DemoIsolation::Vm => base_image(repo, teller, &programs)?,
            DemoIsolation::Sandbox => sandbox_image(repo, teller, &programs)?,
        }
        Ok(programs)
    }

    /// Builds the daemon: with `--release` all of it, otherwise what is played with.
    fn daemon(&self, repo: &Repo, teller: &Teller) -> Result<PathBuf> {
        let (shell, name) = (&repo.shell, "hivekeep");
        let (expected, build, profile) = match self.release {
            true => {
                let build = cmd!(shell, "cargo build --release --package {name} --bin {name}");
                ("15 to 20 minutes on two cores", build, "release")
            }
            // What it shares with xtask is compiled already. Debuggers and later edits would take
            // a fifth more.
            false => {
                let packages = ["--package", name, "--package", UNIFY, "--no-default-features"];
                let build = cmd!(shell, "cargo build {packages...} --bin {name}");
                let build = build.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0");
                ("5 to 7 minutes on two cores", build, "debug")
            }
        };
        let expected = format!("{expected} from an empty cache, seconds when nothing changed");
        teller.step_of("daemon", &expected, || {
            build.quiet().run()?;
            Ok(format!("{name}, {profile}"))
        })?;
        Ok(repo.target.join(profile).join(name))
    }

    fn guest(
        &self,
        repo: &Repo,
        teller: &Teller,
        programs: &DemoPrograms,
        beside: Option<FastGuest>,
    ) -> Result<()> {
        let expected = match self.release {
            true => "a minute or two from an empty cache",
            false => "what is left of a build beside the others",
        };
        teller.step_of("guest", expected, || {
            match beside {
                Some(guest) => guest.put(&programs.guest)?,
                None => guest::put(&guest::build(repo)?, &programs.guest)?,
            }
            Ok(format!("static, {} KiB", fs::metadata(&programs.guest)?.len() / 1024))
        })
    }
}

/// Builds the image of virtual machines from Debian's packages, or what of it is out of date.
fn base_image(repo: &Repo, teller: &Teller, programs: &DemoPrograms) -> Result<()> {
    teller.step_of("image `base`", "a quarter of a minute and 40 MB of packages, once", || {
        programs.command(repo, &["image", "build", "base"]).run()?;
        Ok(format!("in {}", programs.images.display()))
    })
}

/// Makes the image of sandboxes from programs of this host, once.
fn sandbox_image(repo: &Repo, teller: &Teller, programs: &DemoPrograms) -> Result<()> {
    teller.step_of("image of this host's programs", "some seconds, once", || {
        let there = programs.command(repo, &["image", "inspect", HOST_IMAGE]);
        if there.ignore_stdout().ignore_stderr().run().is_ok() {
            return Ok("is there".to_owned());
        }
        let folder = programs.images.with_file_name("host-image");
        let archive = host_image::write(&repo.shell, &folder, &Default::default())?;
        let from = format!("docker-archive:{}", archive.display());
        programs.command(repo, &["image", "pull", &from, "--name", HOST_IMAGE]).run()?;
        fs::remove_dir_all(folder)?;
        Ok(format!("in {}", programs.images.display()))
    })
}
