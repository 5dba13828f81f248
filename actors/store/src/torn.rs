//! Repair of a sled bug: removes snapshots of the page table that a crash cut short.
//!
//! sled 0.34.7 writes such a snapshot when it opens: to `snap.LSN.generating`, which it syncs and
//! renames. On the next open it reads the last by name of all files that begin with `snap.`,
//! including that one, and calls the database corrupt if it is not whole (`get_snapshot_files` in
//! `config.rs` excludes another suffix than the one that `pagecache/snapshot.rs` uses). Without the
//! torn file the previous snapshot is read, or the log from its beginning.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::Error;
use crate::error::IoContext;

const BEGINS: &str = "snap.";
const ENDS: &str = ".generating";
/// Length of the trailer behind the content: eight bytes of length and four of checksum.
const TRAILER_BYTES: usize = 12;

/// Removes torn snapshots from the folder of a database that is not open.
pub(crate) fn remove(folder: &Path) -> Result<(), Error> {
    let doing = "looking at the database's snapshots";
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.doing(doing)?,
    };
    for entry in entries {
        let entry = entry.doing(doing)?;
        let name = entry.file_name();
        let unfinished =
            name.to_str().is_some_and(|name| name.starts_with(BEGINS) && name.ends_with(ENDS));
        if unfinished && !is_whole(&fs::read(entry.path()).doing(doing)?) {
            tracing::info!(file = %entry.path().display(), "a snapshot was cut short");
            fs::remove_file(entry.path()).doing("removing a snapshot that was cut short")?;
        }
    }
    Ok(())
}

fn is_whole(snapshot: &[u8]) -> bool {
    let Some(at) = snapshot.len().checked_sub(TRAILER_BYTES).filter(|at| *at > 0) else {
        return false;
    };
    let (content, trailer) = snapshot.split_at(at);
    crc32fast::hash(content).to_le_bytes() == trailer[8..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, database};

    #[test]
    fn a_database_opens_whatever_a_crash_left_of_its_next_snapshot() {
        let folder = tempfile::tempdir().unwrap();
        let (path, options) = (folder.path().join("db"), Options::default());
        let open = || database::open(&path, &options);
        let db = open().unwrap();
        db.insert("key", "value").unwrap();
        db.flush().unwrap();
        drop(db);
        drop(open().unwrap());
        let snapshots = || fs::read_dir(&path).unwrap().flatten().map(|entry| entry.path());
        let whole = snapshots().find(|path| path.to_string_lossy().contains("snap.")).unwrap();
        let content = fs::read(&whole).unwrap();
        assert!(is_whole(&content));
        let next = path.join("snap.00000000FFFFFFFF.generating");
        for torn in [0, 5, TRAILER_BYTES, content.len() / 2, content.len() - 1] {
            fs::write(&next, &content[..torn]).unwrap();
            let db = open().unwrap_or_else(|error| panic!("{torn} bytes of it: {error}"));
            assert_eq!(db.get("key").unwrap().unwrap(), "value");
            assert!(!next.exists());
        }
        // The previous snapshot is gone and the new one did not get its name: it is the only one,
        // and whole.
        let last = snapshots().find(|path| path.to_string_lossy().contains("snap.")).unwrap();
        fs::rename(
            &last,
            last.with_extension(format!("{}{ENDS}", last.extension().unwrap().to_str().unwrap())),
        )
        .unwrap();
        assert_eq!(open().unwrap().get("key").unwrap().unwrap(), "value");
    }
}
