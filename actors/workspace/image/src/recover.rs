//! Recovery of the store: each holder of the lock first removes what the last one left unfinished, after a
//! build that failed, was cancelled or was killed.

use std::fs;

use hivekeep_fs::remove_tree;

use super::files::has_mounts;
use super::objects::PENDING;
use super::store::Inner;
use super::uses::{RemovedImages, list};
use super::{Error, Result};

impl Inner {
    /// Removes unfinished work, and objects that came and that no manifest names. Legal under the
    /// lock. What cannot be removed stays for the next holder. Blocks.
    pub(super) fn recover(&self) {
        if let Err(error) = self.clear().and_then(|()| self.settle()) {
            tracing::warn!(%error, "what an unfinished build left of an image stays");
        }
    }

    /// Empties the folder of unfinished builds.
    fn clear(&self) -> Result<()> {
        let temp = self.temp();
        if has_mounts(&temp)? {
            tracing::warn!(path = %temp.display(), "something is mounted below; left unchanged");
            return Ok(());
        }
        for path in list(&temp)? {
            remove_tree(&path).map_err(Error::io("remove", &path))?;
        }
        Ok(())
    }

    /// Settles each marked object: it stays where an image or a disk has it.
    fn settle(&self) -> Result<()> {
        let pending = list(&self.root.join(PENDING))?;
        if pending.is_empty() {
            return Ok(());
        }
        let wanted = match self.wanted() {
            // An unreadable manifest may name some of the objects.
            Err(Error::UsesUnknown) => return Ok(()),
            wanted => wanted?,
        };
        let mut removed = RemovedImages::default();
        for mark in pending {
            let Some(hash) = mark.file_name().and_then(|name| name.to_str()) else { continue };
            if !wanted.contains(hash) {
                self.remove_object(hash, &mut removed)?;
            }
            fs::remove_file(&mark).map_err(Error::io("remove", &mark))?;
        }
        Ok(())
    }
}
