//! The in-guest daemon: one static binary, so that it runs in any root filesystem.
//!
//! It has a target folder of its own, because its flags would otherwise make
//! cargo rebuild everything else. `target/debug/hivekeep-guest` is not it: that
//! name belongs to cargo's dynamic development build. The static one goes to
//! `target/lib/hivekeep/`, which is to `target/debug/hivekeep` what
//! `/usr/lib/hivekeep/` is to `/usr/bin/hivekeep`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use xshell::cmd;

use crate::repo::{Repo, TRIPLE};

/// No loader; and fixed addresses, so that nothing is relocated when a process starts, and an
/// emulator, which keeps its translations by address, finds those of the process before.
pub(crate) const FLAGS: &str = "-C target-feature=+crt-static -C relocation-model=static";

/// Builds the guest and returns where it was put.
pub(crate) fn build(repo: &Repo) -> Result<PathBuf> {
    let built = build_static(repo, "hivekeep-guest", "hivekeep-guest")?;
    let place = installed(repo);
    put(&built, &place)?;
    Ok(place)
}

/// Build of a guest that is compiled fast and serves as well, beside other work: with a lower priority,
/// and silent. Its profile is `guest-dev`: no optimisation across crates, and the checks of debug builds.
pub(crate) struct FastGuest {
    cargo: Child,
    products: PathBuf,
    told: PathBuf,
}

impl FastGuest {
    /// Starts the build; what cargo says goes to a file.
    pub(crate) fn start(repo: &Repo, told: &Path) -> Result<Self> {
        let folder = repo.target.join("guest");
        let mut cargo = Command::new("nice");
        cargo.args(["-n", "10", "cargo", "build", "--package", "hivekeep-guest"]);
        cargo.args(["--bin", "hivekeep-guest", "--profile", "guest-dev", "--target", TRIPLE]);
        cargo.arg("--target-dir").arg(&folder).current_dir(&repo.root);
        cargo.env("RUSTFLAGS", FLAGS).env("CARGO_INCREMENTAL", "0");
        let told_to = File::create(told).with_context(|| format!("make {}", told.display()))?;
        cargo.stdin(Stdio::null()).stdout(Stdio::null()).stderr(told_to);
        let cargo = cargo.spawn().context("cargo could not be started")?;
        let products = folder.join(TRIPLE).join("guest-dev");
        Ok(Self { cargo, products, told: told.to_owned() })
    }

    /// Waits for its end and puts the program at a place.
    pub(crate) fn put(mut self, place: &Path) -> Result<()> {
        let status = self.cargo.wait()?;
        let told = || fs::read_to_string(&self.told).unwrap_or_default();
        ensure!(status.success(), "cargo ended with {status}:\n{}", told());
        let built = self.products.join("hivekeep-guest");
        ensure!(is_static(&built)?, "{} needs a dynamic loader", built.display());
        put(&built, place)
    }
}

impl Drop for FastGuest {
    fn drop(&mut self) {
        // Whoever gives up waits for no build.
        let _ended_already = self.cargo.kill();
        let _reaped = self.cargo.wait();
    }
}

/// Builds the program that tests the host's vsock carrier in a machine, and returns where it is.
pub(crate) fn build_vsock_probe(repo: &Repo) -> Result<PathBuf> {
    build_static(repo, "hivekeep-vsock-probe", "vsock_probe")
}

/// Path at which [`build_vsock_probe`] leaves the program.
pub(crate) fn vsock_probe(repo: &Repo) -> PathBuf {
    repo.target.join("guest").join(TRIPLE).join("guest/vsock_probe")
}

/// Builds a program that runs without a loader.
fn build_static(repo: &Repo, package: &str, name: &str) -> Result<PathBuf> {
    let folder = repo.target.join("guest");
    let shell = &repo.shell;
    cmd!(
        shell,
        "cargo build --package {package} --bin {name} --profile guest --target {TRIPLE} --target-dir {folder}"
    )
    .env("RUSTFLAGS", FLAGS)
    .run()?;
    let built = folder.join(TRIPLE).join("guest").join(name);
    ensure!(is_static(&built)?, "{} needs a dynamic loader", built.display());
    Ok(built)
}

/// Path at which [`build`] puts the binary.
pub(crate) fn installed(repo: &Repo) -> PathBuf {
    repo.target.join("lib/hivekeep/hivekeep-guest")
}

/// Copies by rename: whoever runs the old binary keeps it.
pub(crate) fn put(from: &Path, to: &Path) -> Result<()> {
    let folder = to.parent().context("the place has a folder")?;
    fs::create_dir_all(folder)?;
    let temporary = to.with_extension("new");
    fs::copy(from, &temporary).with_context(|| format!("copy {}", from.display()))?;
    fs::rename(&temporary, to).with_context(|| format!("replace {}", to.display()))
}

/// True when an ELF file runs without a loader: it has no `PT_INTERP` header.
fn is_static(path: &Path) -> Result<bool> {
    const PT_INTERP: u32 = 3;
    let elf = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    ensure!(elf.starts_with(b"\x7fELF\x02\x01"), "{} is not a 64-bit ELF file", path.display());
    let number = |at: usize, len: usize| -> Option<u64> {
        let bytes = elf.get(at..at.checked_add(len)?)?;
        Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    let headers = (|| {
        let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        (0..count)
            .map(|at| number(usize::try_from(table + at * size).ok()?, 4))
            .collect::<Option<Vec<_>>>()
    })()
    .with_context(|| format!("{} is cut short", path.display()))?;
    Ok(!headers.contains(&u64::from(PT_INTERP)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_is_told_from_a_static_one() {
        // Test programs are linked to the C library.
        assert!(!is_static(&std::env::current_exe().unwrap()).unwrap());
        let busybox = Path::new("/usr/bin/busybox");
        if !busybox.exists() {
            println!("SKIPPED: no static program at {}", busybox.display());
            return;
        }
        assert!(is_static(busybox).unwrap());
    }

    #[test]
    fn replacing_leaves_the_old_file_to_those_who_hold_it() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("a/b/to"));
        fs::write(&from, "1").unwrap();
        put(&from, &to).unwrap();
        let held = dir.path().join("held");
        fs::hard_link(&to, &held).unwrap();
        fs::write(&from, "2").unwrap();
        put(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), "2");
        assert_eq!(fs::read_to_string(&held).unwrap(), "1");
    }
}
