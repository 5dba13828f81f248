//! Everything in a folder, in the order of the paths.

use std::io::ErrorKind;

use cap_fs_ext::DirExt;
use cap_std::fs::Dir;
use rustix::fs::{AtFlags, statat};
use rustix::io::Errno;

use super::{Folder, modified};
use crate::Error;
use crate::path::{MAX_DEPTH, NotePath};

/// The most files and folders of one walk, and of one folder; beyond it, the walk says so.
const MOST: usize = 200_000;

/// What was come across.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Note,
    Folder,
    /// Named like a note, and a symbolic link, a pipe or the like.
    Other,
    /// The inside of a folder that the daemon may not read.
    Closed,
}

impl Kind {
    /// Whether it is what a listing shows.
    pub(crate) fn is_listed(self) -> bool {
        matches!(self, Self::Note | Self::Folder)
    }
}

/// One thing in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    /// Relative to where the walk began.
    pub(crate) path: String,
    pub(crate) kind: Kind,
    /// Of notes, if asked for.
    pub(crate) size_bytes: u64,
    /// Of notes, if asked for.
    pub(crate) modified: Option<std::time::SystemTime>,
}

impl Item {
    fn of(path: String, kind: Kind) -> Self {
        Self { path, kind, size_bytes: 0, modified: None }
    }
}

/// What is walked, and how.
pub(crate) struct Walk<'w> {
    pub(crate) recursive: bool,
    /// Size and time of notes are looked up.
    pub(crate) stat: bool,
    /// Files that are no notes are shown as if they were.
    pub(crate) every_file: bool,
    pub(crate) wants: fn(Kind) -> bool,
    /// Only what comes after this path, which is relative to where the walk begins.
    pub(crate) after: Option<&'w str>,
    /// How much is wanted.
    pub(crate) most: usize,
    /// Asked at everything that is come across.
    pub(crate) stopped: &'w dyn Fn() -> bool,
}

/// What a walk has taken.
#[derive(Default)]
struct Taken {
    items: Vec<Item>,
    /// No more is wanted, and there is more.
    full: bool,
    /// Something was left out on the way.
    gaps: bool,
}

/// One thing in a folder, and whether it is entered. A folder is two: it comes before whatever has
/// its name with a letter below `/` after it, and what is in it after that.
struct Step {
    key: String,
    kind: Kind,
    enters: bool,
}

impl<'w> Walk<'w> {
    /// All there is, without sizes.
    pub(crate) fn everything(stopped: &'w dyn Fn() -> bool) -> Self {
        Self {
            recursive: true,
            stat: false,
            every_file: false,
            wants: |_| true,
            after: None,
            most: MOST,
            stopped,
        }
    }

    /// What is in a folder, by path. The flag says that there is more. Folders that come before
    /// what is wanted are not entered, nor those after it.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Cancelled`], or what cannot be read.
    pub(crate) fn of(&self, folder: &Folder, at: &NotePath) -> Result<(Vec<Item>, bool), Error> {
        let mut taken = Taken::default();
        let dir = folder.dir(at)?;
        self.enter(folder, &dir, "", at.names().count(), &mut taken)?;
        Ok((taken.items, taken.full || taken.gaps))
    }

    fn enter(
        &self,
        folder: &Folder,
        dir: &Dir,
        prefix: &str,
        depth: usize,
        taken: &mut Taken,
    ) -> Result<(), Error> {
        for Step { key, kind, enters } in self.steps(folder, dir, prefix, taken)? {
            let path = format!("{prefix}{key}");
            if enters {
                if depth >= MAX_DEPTH {
                    taken.gaps = true;
                    continue;
                }
                let below = match dir.open_dir_nofollow(key.trim_end_matches('/')) {
                    Ok(dir) => self.enter(folder, &dir, &path, depth + 1, taken),
                    Err(error) => Err(Error::io(format!("read the folder `{path}`"))(error)),
                };
                match below {
                    Err(Error::Io { source, action }) => match source.kind() {
                        // Gone or replaced since.
                        ErrorKind::NotFound | ErrorKind::NotADirectory => {}
                        ErrorKind::PermissionDenied => {
                            taken.gaps = true;
                            if (self.wants)(Kind::Closed) {
                                taken.items.push(Item::of(path, Kind::Closed));
                            }
                        }
                        _ => return Err(Error::Io { source, action }),
                    },
                    below => below?,
                }
            } else if taken.items.len() == self.most {
                taken.full = true;
            } else {
                let mut item = Item::of(path, kind);
                if self.stat && kind == Kind::Note {
                    let stat = match statat(dir, &key, AtFlags::SYMLINK_NOFOLLOW) {
                        Ok(stat) => stat,
                        Err(errno) => {
                            // Unless it is gone since, it is there.
                            taken.gaps |= errno != Errno::NOENT;
                            continue;
                        }
                    };
                    item.size_bytes = u64::try_from(stat.st_size).unwrap_or(0);
                    item.modified = Some(modified(&stat));
                }
                taken.items.push(item);
            }
            if taken.full {
                return Ok(());
            }
        }
        Ok(())
    }

    /// What is to be done in a folder, in the order of the paths.
    fn steps(
        &self,
        folder: &Folder,
        dir: &Dir,
        prefix: &str,
        taken: &mut Taken,
    ) -> Result<Vec<Step>, Error> {
        let failed = || Error::io(format!("read the folder `{prefix}`"));
        let mut steps = Vec::new();
        let mut add = |key: String, kind, enters| {
            steps.push(Step { key, kind, enters });
            if steps.len() == 2 * MOST {
                sort(&mut steps);
                steps.truncate(MOST);
                taken.gaps = true;
            }
        };
        for entry in dir.entries().map_err(failed())? {
            if (self.stopped)() {
                return Err(Error::Cancelled);
            }
            let entry = entry.map_err(failed())?;
            // Names that are no text cannot be asked for.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let kind = entry.file_type().map_err(failed())?;
            let kind = match (kind.is_dir(), self.every_file || folder.rules.is_note(&name)) {
                (true, _) if folder.rules.is_excluded(&name) => continue,
                (true, _) => Kind::Folder,
                (false, false) => continue,
                (false, true) if kind.is_file() => Kind::Note,
                (false, true) => Kind::Other,
            };
            if kind == Kind::Folder && self.recursive {
                let inside = format!("{name}/");
                if !self.is_before(prefix, &inside, true) {
                    add(inside, kind, true);
                }
            }
            if (self.wants)(kind) && !self.is_before(prefix, &name, false) {
                add(name, kind, false);
            }
        }
        sort(&mut steps);
        Ok(steps)
    }

    /// Whether something, or everything in it, does not come after what the walk begins after.
    fn is_before(&self, prefix: &str, key: &str, enters: bool) -> bool {
        let Some(after) = self.after else { return false };
        match after.strip_prefix(prefix) {
            // It is in this folder.
            Some(after) => key <= after && !(enters && after.starts_with(key)),
            None => prefix <= after,
        }
    }
}

fn sort(steps: &mut [Step]) {
    steps.sort_unstable_by(|a, b| a.key.cmp(&b.key));
}
