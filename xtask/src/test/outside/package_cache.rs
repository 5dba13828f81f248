//! Folders of packages below the user's cache, each named by a hash of what it is made from: any checkout finds them.
//!
//! ```text
//! name, recipe ─hash─▶ ~/.cache/hivekeep-tests/NAME-HASH ─there────▶ used
//!                                  ▲                     └not there▶ NAME-HASH.half-PID, under NAME-HASH.lock
//!                                  └────────────── renamed when it is whole ───────────┘
//! ```
//! A folder of that name is whole, whatever was killed. Old ones stay: the cache may be deleted between two runs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

/// Between two lines about work that waits for a registry.
const TOLD_EVERY: Duration = Duration::from_secs(15);

pub(super) struct PackageCache {
    root: PathBuf,
}

impl PackageCache {
    /// The user's: below `XDG_CACHE_HOME`, or `~/.cache`.
    pub(super) fn of_user() -> Result<Self> {
        let absolute =
            |name| std::env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
        let home = || absolute("HOME").map(|home| home.join(".cache"));
        let root = absolute("XDG_CACHE_HOME").or_else(home);
        let root = root.context("neither XDG_CACHE_HOME nor HOME names a folder: set one")?;
        Ok(Self { root: root.join("hivekeep-tests") })
    }

    /// The folder of a recipe. If it is not there, `make` fills an empty one, which then takes its name.
    pub(super) fn folder(
        &self,
        name: &str,
        recipe: &str,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let name = format!("{name}-{}", hash(recipe)?);
        let folder = self.root.join(&name);
        if folder.is_dir() {
            return Ok(folder);
        }
        fs::create_dir_all(&self.root)
            .with_context(|| format!("{} cannot be made", self.root.display()))?;
        let lock = File::create(self.root.join(format!("{name}.lock")))?;
        lock.lock()?;
        if folder.is_dir() {
            return Ok(folder);
        }
        self.remove_halves(&name)?;
        // What a killed run started may still write to its own.
        let half = self.root.join(format!("{name}.half-{}", std::process::id()));
        fs::create_dir(&half)?;
        println!("installing {name} below {}", self.root.display());
        told(&name, || make(&half))?;
        fs::rename(&half, &folder)?;
        Ok(folder)
    }

    fn remove_halves(&self, name: &str) -> Result<()> {
        let start = format!("{name}.half-");
        for entry in fs::read_dir(&self.root)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(&start) {
                // One that is still written to goes the next time.
                let _busy = fs::remove_dir_all(entry.path());
            }
        }
        Ok(())
    }
}

/// Hash of a text, short enough for a path.
fn hash(text: &str) -> Result<String> {
    let shell = Shell::new()?;
    let mut hash = cmd!(shell, "git hash-object --stdin").stdin(text).quiet().read()?;
    hash.truncate(16);
    Ok(hash)
}

/// Does some work, and says now and then that it goes on.
fn told<T>(name: &str, work: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        let (ended, end) = mpsc::channel::<()>();
        scope.spawn(move || {
            let begun = Instant::now();
            while end.recv_timeout(TOLD_EVERY) == Err(RecvTimeoutError::Timeout) {
                println!("still installing {name}, for {} s", begun.elapsed().as_secs());
            }
        });
        let done = work();
        drop(ended);
        done
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use anyhow::bail;

    use super::*;

    fn cache() -> (tempfile::TempDir, PackageCache) {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("cache");
        (folder, PackageCache { root })
    }

    fn with_file(half: &Path) -> Result<()> {
        assert_eq!(fs::read_dir(half)?.count(), 0, "it begins empty");
        Ok(fs::write(half.join("package"), "whole")?)
    }

    #[test]
    fn a_recipe_has_one_folder_and_another_recipe_another() {
        let (_kept, cache) = cache();
        let first = cache.folder("p", "a==1", with_file).expect("made");
        let again = cache.folder("p", "a==1", |_| bail!("made twice")).expect("found");
        let newer = cache.folder("p", "a==2", with_file).expect("made");
        assert_eq!(first, again);
        assert_ne!(first, newer);
        assert_eq!(fs::read_to_string(first.join("package")).expect("reads"), "whole");
    }

    #[test]
    fn what_a_killed_or_failed_run_left_is_never_taken_for_whole() {
        let (_kept, cache) = cache();
        let broken = cache.folder("p", "a==1", |half| {
            fs::write(half.join("half"), "")?;
            bail!("no network")
        });
        assert_eq!(format!("{:#}", broken.expect_err("fails")), "no network");
        let left: Vec<_> = fs::read_dir(&cache.root).expect("reads").flatten().collect();
        assert!(left.iter().any(|entry| entry.path().join("half").exists()), "as after a kill");
        let made = cache.folder("p", "a==1", with_file).expect("made anew");
        assert!(made.join("package").exists() && !made.join("half").exists());
    }

    #[test]
    fn two_at_once_make_it_once() {
        let (_kept, cache) = cache();
        let times = AtomicU32::new(0);
        let make = |half: &Path| {
            times.fetch_add(1, Relaxed);
            thread::sleep(Duration::from_millis(100));
            with_file(half)
        };
        thread::scope(|scope| {
            let both = [0, 1].map(|_| scope.spawn(|| cache.folder("p", "a==1", make)));
            let [one, other] = both.map(|it| it.join().expect("no panic").expect("made"));
            assert_eq!(one, other);
        });
        assert_eq!(times.load(Relaxed), 1);
    }
}
