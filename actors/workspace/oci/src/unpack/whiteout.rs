//! Whiteouts: names by which a layer removes what the layers below it have.

use std::{collections::HashSet, io};

use rustix::fs::FileType;

use super::beneath::{Beneath, TreeFolder};

const PREFIX: &str = ".wh.";
/// Prefix of the names that aufs keeps for itself.
const AUFS: &str = ".wh..wh.";
const OPAQUE: &str = ".wh..wh..opq";

/// Meaning of a name in a layer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LayerName<'a> {
    Plain,
    /// All that lower layers have in the folder is gone.
    Opaque,
    /// Entries that lower layers have under this name are gone.
    Removed(&'a str),
    /// Name of aufs, without a meaning.
    Ignored,
    /// Name that cannot be.
    Bad,
}

impl<'a> LayerName<'a> {
    pub(super) fn of(name: &'a str) -> Self {
        match name.strip_prefix(PREFIX) {
            None => Self::Plain,
            Some(_) if name == OPAQUE => Self::Opaque,
            Some(_) if name.starts_with(AUFS) => Self::Ignored,
            Some("" | "." | "..") => Self::Bad,
            Some(removed) => Self::Removed(removed),
        }
    }
}

/// Removes what lower layers have under a name; what this layer placed stays.
pub(super) fn remove_lower(
    tree: &Beneath,
    folder: &TreeFolder,
    name: &str,
    placed: &HashSet<String>,
) -> io::Result<()> {
    let path = folder.below(name);
    match folder.kind(name)? {
        None => Ok(()),
        Some(FileType::Directory) if placed.contains(&path) => {
            clear_lower(tree, &tree.folder(&path)?, placed)
        }
        Some(_) if placed.contains(&path) => Ok(()),
        Some(_) => folder.remove(name),
    }
}

/// Removes what lower layers have in a folder. Folders are bounded in depth.
pub(super) fn clear_lower(
    tree: &Beneath,
    folder: &TreeFolder,
    placed: &HashSet<String>,
) -> io::Result<()> {
    folder.names()?.iter().try_for_each(|(name, _)| remove_lower(tree, folder, name, placed))
}

#[cfg(test)]
mod tests {
    use super::LayerName::{self, *};

    #[test]
    fn names_of_whiteouts() {
        for (name, means) in [
            ("a.wh.b", Plain),
            (".wh.a", Removed("a")),
            (".wh..hidden", Removed(".hidden")),
            (".wh..wh..opq", Opaque),
            (".wh..wh.plnk", Ignored),
            (".wh.", Bad),
            (".wh..", Bad),
            (".wh...", Bad),
        ] {
            assert_eq!(LayerName::of(name), means, "{name}");
        }
    }
}
