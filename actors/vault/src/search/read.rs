//! Note reader that caches the last folder and its buffer.

use cap_std::fs::Dir;

use crate::Error;
use crate::folder::{VaultFolder, read_at};
use crate::path::NotePath;

/// Reader that keeps the folder of the last note open, and reuses its buffer.
pub(super) struct Reader<'f> {
    folder: &'f VaultFolder,
    root: &'f NotePath,
    open: Option<(String, Dir)>,
    bytes: Vec<u8>,
}

impl<'f> Reader<'f> {
    pub(super) fn new(folder: &'f VaultFolder, root: &'f NotePath) -> Self {
        Self { folder, root, open: None, bytes: Vec::new() }
    }

    /// Reads a note by its path below the root. Lines end in `\n` alone, so that `$` means the same
    /// in every note.
    pub(super) fn read(&mut self, note: &str) -> Result<&[u8], Error> {
        let (folder, name) = note.rsplit_once('/').unwrap_or(("", note));
        let path = || NotePath::parse(note);
        if self.open.as_ref().is_none_or(|(open, _)| open != folder) {
            let dir = self.folder.dir(&self.root.join(&NotePath::parse(folder)?)?)?;
            self.open = Some((folder.to_owned(), dir));
        }
        let (_, dir) = self.open.as_ref().expect("it was just opened");
        read_at(dir, name, &path()?, self.folder.max_note_bytes, &mut self.bytes)?;
        unify(&mut self.bytes);
        Ok(&self.bytes)
    }
}

/// Turns each `\r\n` into `\n`.
fn unify(bytes: &mut Vec<u8>) {
    let Some(first) = memchr::memchr(b'\r', bytes) else { return };
    let (mut to, mut from) = (first, first);
    while from < bytes.len() {
        if !(bytes[from] == b'\r' && bytes.get(from + 1) == Some(&b'\n')) {
            bytes[to] = bytes[from];
            to += 1;
        }
        from += 1;
    }
    bytes.truncate(to);
}
