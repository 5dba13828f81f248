//! Everything in a folder, in the order of the paths.

use cap_fs_ext::DirExt;
use cap_std::fs::Dir;
use rustix::fs::{AtFlags, statat};

use super::{Folder, modified};
use crate::Error;
use crate::path::{MAX_DEPTH, NotePath};

/// The most files and folders of one walk; beyond it, the walk says so.
const MOST: usize = 200_000;

/// What was come across.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Note,
    Folder,
    /// Named like a note, and a symbolic link, a pipe or the like.
    Other,
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

/// What is walked, and how.
pub(crate) struct Walk<'w> {
    pub(crate) recursive: bool,
    /// Size and time of notes are looked up.
    pub(crate) stat: bool,
    /// Files that are no notes are shown as if they were.
    pub(crate) every_file: bool,
    /// Asked at every folder.
    pub(crate) stopped: &'w dyn Fn() -> bool,
}

impl Walk<'_> {
    /// What is in a folder, by path. The flag says that there is more than a walk takes.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Cancelled`], or what cannot be read.
    pub(crate) fn of(&self, folder: &Folder, at: &NotePath) -> Result<(Vec<Item>, bool), Error> {
        let mut items = Vec::new();
        let dir = folder.dir(at)?;
        let whole = self.enter(folder, &dir, "", at.names().count(), &mut items)?;
        items.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok((items, !whole))
    }

    /// False if there is more than a walk takes.
    fn enter(
        &self,
        folder: &Folder,
        dir: &Dir,
        prefix: &str,
        depth: usize,
        items: &mut Vec<Item>,
    ) -> Result<bool, Error> {
        if (self.stopped)() {
            return Err(Error::Cancelled);
        }
        let failed = || Error::io(format!("read the folder `{prefix}`"));
        let mut below = Vec::new();
        for entry in dir.entries().map_err(failed())? {
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
            if items.len() == MOST {
                return Ok(false);
            }
            let path = format!("{prefix}{name}");
            let (mut size_bytes, mut time) = (0, None);
            if self.stat && kind == Kind::Note {
                // Gone since: not there.
                let Ok(stat) = statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
                size_bytes = u64::try_from(stat.st_size).unwrap_or(0);
                time = Some(modified(&stat));
            }
            if kind == Kind::Folder && self.recursive {
                below.push(name);
            }
            items.push(Item { path, kind, size_bytes, modified: time });
        }
        if depth >= MAX_DEPTH {
            return Ok(below.is_empty());
        }
        let mut whole = true;
        for name in below {
            match dir.open_dir_nofollow(&name) {
                Ok(dir) => {
                    let prefix = format!("{prefix}{name}/");
                    whole &= self.enter(folder, &dir, &prefix, depth + 1, items)?;
                }
                // Gone or replaced since.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {}
                Err(error) => return Err(failed()(error)),
            }
        }
        Ok(whole)
    }
}
