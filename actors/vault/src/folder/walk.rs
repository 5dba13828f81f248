//! Directory walk in the order of the paths.

use std::io::ErrorKind;

use cap_fs_ext::DirExt;
use cap_std::fs::Dir;

use super::VaultFolder;
use crate::Error;
use crate::path::{MAX_DEPTH, NotePath};

/// Maximum number of items of one walk, and of one folder; beyond it, the walk reports gaps.
const MOST: usize = 200_000;

/// Kind of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WalkEntryKind {
    Note,
    Folder,
    /// A symbolic link, a pipe or the like, with the name of a note.
    Other,
    /// Contents of a folder that the daemon may not read.
    Closed,
}

impl WalkEntryKind {
    /// True for what a listing shows.
    pub(crate) fn is_listed(self) -> bool {
        matches!(self, Self::Note | Self::Folder)
    }
}

/// Item in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WalkEntry {
    /// Path relative to the start of the walk.
    pub(crate) path: String,
    pub(crate) kind: WalkEntryKind,
    /// Size of a note, if asked for.
    pub(crate) size_bytes: u64,
    /// Time of a note's last change, if asked for.
    pub(crate) modified: Option<std::time::SystemTime>,
}

impl WalkEntry {
    fn of(path: String, kind: WalkEntryKind) -> Self {
        Self { path, kind, size_bytes: 0, modified: None }
    }
}

/// Parameters of a walk.
pub(crate) struct WalkParams<'w> {
    pub(crate) recursive: bool,
    /// Look up size and time of notes.
    pub(crate) stat: bool,
    /// Include all files as if they were notes.
    pub(crate) every_file: bool,
    pub(crate) wants: fn(WalkEntryKind) -> bool,
    /// Return only what comes after this path, which is relative to the start of the walk.
    pub(crate) after: Option<&'w str>,
    /// Maximum number of items.
    pub(crate) most: usize,
    /// Cancellation check, called for every item.
    pub(crate) stopped: &'w dyn Fn() -> bool,
}

/// Result of a walk so far.
#[derive(Default)]
struct Taken {
    items: Vec<WalkEntry>,
    /// The limit was reached, and there is more.
    full: bool,
    /// Something was left out on the way.
    gaps: bool,
}

/// Step in a folder: an item to return by its name, or a folder to enter by its name with `/` behind. A
/// folder takes both: its own comes before all names that extend its name with a character below `/`, its
/// contents after those.
type Step = (String, WalkEntryKind);

impl<'w> WalkParams<'w> {
    /// Walks everything, without sizes.
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

    /// Lists a folder by path. The flag says that there is more. Folders entirely before or after
    /// the wanted range are not entered.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Cancelled`], or the error of a folder that cannot be read.
    pub(crate) fn of(
        &self,
        folder: &VaultFolder,
        at: &NotePath,
    ) -> Result<(Vec<WalkEntry>, bool), Error> {
        let mut taken = Taken::default();
        let dir = folder.dir(at)?;
        self.enter(folder, &dir, "", at.names().count(), &mut taken)?;
        Ok((taken.items, taken.full || taken.gaps))
    }

    fn enter(
        &self,
        folder: &VaultFolder,
        dir: &Dir,
        prefix: &str,
        depth: usize,
        taken: &mut Taken,
    ) -> Result<(), Error> {
        for (key, kind) in self.steps(folder, dir, prefix, taken)? {
            let path = format!("{prefix}{key}");
            if let Some(name) = key.strip_suffix('/') {
                if depth >= MAX_DEPTH {
                    taken.gaps = true;
                    continue;
                }
                let below = match dir.open_dir_nofollow(name) {
                    Ok(dir) => self.enter(folder, &dir, &path, depth + 1, taken),
                    Err(error) => Err(Error::io(format!("read the folder `{path}`"))(error)),
                };
                match below {
                    Err(Error::Io { source, action }) => match source.kind() {
                        // Removed or replaced since it was listed.
                        ErrorKind::NotFound | ErrorKind::NotADirectory => {}
                        ErrorKind::PermissionDenied => {
                            taken.gaps = true;
                            if (self.wants)(WalkEntryKind::Closed) {
                                taken.items.push(WalkEntry::of(path, WalkEntryKind::Closed));
                            }
                        }
                        _ => return Err(Error::Io { source, action }),
                    },
                    below => below?,
                }
            } else if taken.items.len() == self.most {
                taken.full = true;
            } else {
                let mut item = WalkEntry::of(path, kind);
                if self.stat && kind == WalkEntryKind::Note {
                    let found = match dir.symlink_metadata(&key) {
                        Ok(found) => found,
                        Err(error) => {
                            // An item that exists but cannot be inspected is a gap.
                            taken.gaps |= error.kind() != ErrorKind::NotFound;
                            continue;
                        }
                    };
                    item.size_bytes = found.len();
                    item.modified = found.modified().ok().map(|time| time.into_std());
                }
                taken.items.push(item);
            }
            if taken.full {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Steps in a folder, in the order of the paths.
    fn steps(
        &self,
        folder: &VaultFolder,
        dir: &Dir,
        prefix: &str,
        taken: &mut Taken,
    ) -> Result<Vec<Step>, Error> {
        let failed = || Error::io(format!("read the folder `{prefix}`"));
        let mut steps = Vec::new();
        for entry in dir.entries().map_err(failed())? {
            if (self.stopped)() {
                return Err(Error::Cancelled);
            }
            let entry = entry.map_err(failed())?;
            // Names that are not UTF-8 cannot be asked for.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let kind = entry.file_type().map_err(failed())?;
            let kind = match (kind.is_dir(), self.every_file || folder.rules.is_note(&name)) {
                (true, _) if folder.rules.is_excluded(&name) => continue,
                (true, _) => WalkEntryKind::Folder,
                (false, false) => continue,
                (false, true) if kind.is_file() => WalkEntryKind::Note,
                (false, true) => WalkEntryKind::Other,
            };
            let inside = kind == WalkEntryKind::Folder && self.recursive;
            let inside = inside.then(|| format!("{name}/"));
            let keys = inside.into_iter().chain((self.wants)(kind).then_some(name));
            steps.extend(keys.filter(|key| !self.is_before(prefix, key)).map(|key| (key, kind)));
            if steps.len() >= 2 * MOST {
                steps.sort_unstable();
                steps.truncate(MOST);
                taken.gaps = true;
            }
        }
        steps.sort_unstable();
        Ok(steps)
    }

    /// True if an item, or everything in a folder, does not come after the start position.
    fn is_before(&self, prefix: &str, key: &str) -> bool {
        let Some(after) = self.after else { return false };
        match after.strip_prefix(prefix) {
            // The position is in this folder.
            Some(after) => key <= after && !(key.ends_with('/') && after.starts_with(key)),
            None => prefix <= after,
        }
    }
}
