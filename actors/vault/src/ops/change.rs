//! Operations that change notes.

use std::iter;

use hivekeep_file_engine::line_ends;
use serde_json::Value;

use super::{ATTEMPTS, NoteText, TextReplacement, VaultView, malformed};
use crate::Error;
use crate::folder::WritePrecondition;
use crate::front::{self, MalformedFrontMatter};
use crate::path::NotePath;

/// Position of written text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WritePosition {
    Overwrite,
    Append,
    /// Insert after the front matter.
    Prepend,
}

impl VaultView {
    /// Writes a note. Returns whether it is new, and its size. What is added has the line ends of the note.
    pub(crate) fn write(
        &self,
        path: &NotePath,
        content: &str,
        mode: WritePosition,
    ) -> Result<(bool, usize), Error> {
        if mode == WritePosition::Overwrite {
            let new = self.folder.save(path, content.as_bytes(), WritePrecondition::Any)?;
            return Ok((new, content.len()));
        }
        self.attempt(|| {
            let (old, expect) = match self.read(path) {
                Ok(NoteText { text, expect }) => (text, expect),
                Err(Error::NotFound { .. }) => (String::new(), WritePrecondition::Nothing),
                Err(error) => return Err(error),
            };
            let (at, line_end) = match mode {
                WritePosition::Prepend => {
                    let block = front::locate(&old).map_err(malformed(path))?;
                    let after = block.map(|block| (block.whole.end, block.line_end));
                    after.unwrap_or((front::begin(&old), ""))
                }
                _ => (old.len(), ""),
            };
            let content = line_ends::with_ends(content, iter::empty(), line_ends::of(&old).next());
            let mut new = String::with_capacity(old.len() + content.len() + 2);
            new.push_str(&old[..at]);
            if !new.ends_with('\n') {
                // The closing fence is the last line, and has to stay a line of its own.
                new.push_str(line_end);
            }
            new.push_str(&content);
            new.push_str(&old[at..]);
            let made = self.folder.save(path, new.as_bytes(), expect)?;
            Ok((made, new.len()))
        })
    }

    /// Removes a note.
    pub(crate) fn delete(&self, path: &NotePath) -> Result<(), Error> {
        match self.folder.remove(path)? {
            true => Ok(()),
            false => Err(Error::NotFound { path: path.to_string() }),
        }
    }

    /// Moves a note. False if both paths are the same.
    pub(crate) fn rename(
        &self,
        from: &NotePath,
        to: &NotePath,
        overwrite: bool,
    ) -> Result<bool, Error> {
        if from == to {
            return match self.folder.look(from)? {
                Some(_) => Ok(false),
                None => Err(Error::NotFound { path: from.to_string() }),
            };
        }
        self.folder.move_file(from, to, overwrite).map(|()| true)
    }

    /// Sets a key of the front matter. False if it has that value already.
    pub(crate) fn set(&self, path: &NotePath, key: &str, value: &Value) -> Result<bool, Error> {
        self.edit(path, |text| {
            let new = front::set(text, key, value)?;
            Ok((new != text).then_some(new))
        })
    }

    /// Removes a key of the front matter. False if there is none.
    pub(crate) fn unset(&self, path: &NotePath, key: &str) -> Result<bool, Error> {
        self.edit(path, |text| front::delete(text, key))
    }

    /// Adds a tag to the front matter. False if it is present.
    pub(crate) fn add_tag(&self, path: &NotePath, tag: &str) -> Result<bool, Error> {
        self.edit(path, |text| front::add_tag(text, tag))
    }

    /// Removes a tag from the front matter. False if it is absent.
    pub(crate) fn remove_tag(&self, path: &NotePath, tag: &str) -> Result<bool, Error> {
        self.edit(path, |text| front::remove_tag(text, tag))
    }

    /// Replaces every occurrence and returns their number. Can be stopped until the note is
    /// written.
    pub(crate) fn replace(
        &self,
        path: &NotePath,
        replacement: &TextReplacement,
        stopped: &dyn Fn() -> bool,
    ) -> Result<usize, Error> {
        self.attempt(|| {
            let NoteText { text, expect } = self.read(path)?;
            let most = self.folder.max_note_bytes;
            let (replaced, count) = replacement.apply(path, &text, most, stopped)?;
            if replaced != text {
                self.folder.save(path, replaced.as_bytes(), expect)?;
            }
            Ok(count)
        })
    }

    /// Changes a note's text; `None` leaves it unchanged.
    fn edit(
        &self,
        path: &NotePath,
        change: impl Fn(&str) -> Result<Option<String>, MalformedFrontMatter>,
    ) -> Result<bool, Error> {
        self.attempt(|| {
            let NoteText { text, expect } = self.read(path)?;
            match change(&text).map_err(malformed(path))? {
                Some(new) => self.folder.save(path, new.as_bytes(), expect).map(|_| true),
                None => Ok(false),
            }
        })
    }

    /// Retries while another program changed the note in between.
    fn attempt<T>(&self, change: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
        let again = |done: &Result<T, Error>| matches!(done, Err(Error::Contended { .. }));
        let mut done = change();
        for _ in 1..ATTEMPTS {
            if !again(&done) {
                break;
            }
            done = change();
        }
        done
    }
}
