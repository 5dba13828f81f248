//! File of a collection: a header, then one frame a change, each with its length and a checksum.
//!
//! A change is synced before it is answered. A frame that is not whole is the tail of a write that was cut
//! short, and nothing follows it; anything else that does not read is damage, and refused. The file is
//! rewritten beside itself when most of it is of points that are gone.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use super::super::{PointChange, StoreFailure};
use crate::point::Point;

/// First bytes of the file, with its version.
const MAGIC: [u8; 8] = *b"hkpoint1";
const HEADER_BYTES: u64 = 12;
const FRAME_BYTES: usize = 8;
/// Largest frame.
const MAX_FRAME_BYTES: usize = 256 * 1024 * 1024;
/// Points of a frame of a file that is rewritten.
const POINTS_A_FRAME: usize = 256;
/// Changes of a file that is too small to be rewritten.
const LEAST_CHANGES: usize = 1_024;
const NAME: &str = "points";

/// File that is open for changes.
pub(super) struct ChangeFile {
    folder: PathBuf,
    file: File,
    dimension: usize,
    /// End of the last whole frame.
    end: u64,
    /// Points that its frames insert, move or remove.
    touched: usize,
}

type Answer<T> = Result<T, StoreFailure>;

impl ChangeFile {
    /// Makes a collection's folder and file, durable when this returns.
    pub(super) fn create(folder: &Path, dimension: usize) -> Answer<()> {
        fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
        let mut made = Rewrite::begin(folder, dimension)?;
        made.finish(folder)?;
        folder.parent().map_or(Ok(()), sync)
    }

    /// Opens a collection's file, with its dimension and its changes; `None` if there is none.
    pub(super) fn open(folder: &Path) -> Answer<Option<(Self, usize, Vec<PointChange>)>> {
        let path = folder.join(NAME);
        let io = |error: io::Error| failed(&path, &error);
        let mut file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io(error)),
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io)?;
        let damaged =
            |what: &str| StoreFailure::lasting(format!("{} is damaged: {what}", path.display()));
        let header = bytes.get(..HEADER_BYTES as usize).filter(|header| header.starts_with(&MAGIC));
        let header = header.ok_or_else(|| damaged("it has no header"))?;
        let dimension = number(&header[MAGIC.len()..]);
        let (mut at, mut changes, mut touched) = (HEADER_BYTES as usize, Vec::new(), 0);
        while let Some((body, next)) = frame(&bytes, at) {
            let change: PointChange =
                postcard::from_bytes(body).map_err(|error| damaged(&error.to_string()))?;
            touched += size(&change);
            changes.push(change);
            at = next;
        }
        if at < bytes.len() {
            if !is_torn(&bytes[at..]) {
                return Err(damaged("a frame in its middle does not read"));
            }
            tracing::warn!(file = %path.display(), bytes = bytes.len() - at, "a torn tail is cut off");
            file.set_len(at as u64).and_then(|()| file.sync_all()).map_err(io)?;
        }
        let opened = Self { folder: folder.to_owned(), file, dimension, end: at as u64, touched };
        Ok(Some((opened, dimension, changes)))
    }

    /// Appends a change, durable when this returns.
    pub(super) fn append(&mut self, change: &PointChange) -> Answer<()> {
        let frame = framed(change)?;
        let io = |error: io::Error| failed(&self.folder, &error);
        self.file.seek(SeekFrom::Start(self.end)).map_err(io)?;
        self.file.write_all(&frame).and_then(|()| self.file.sync_data()).map_err(io)?;
        self.end += frame.len() as u64;
        self.touched += size(change);
        Ok(())
    }

    /// Rewrites the file if most of what it has is of points that are gone.
    pub(super) fn compact(
        &mut self,
        live: usize,
        points: impl FnOnce() -> Vec<Point>,
    ) -> Answer<()> {
        if self.touched < LEAST_CHANGES || self.touched < 3 * live {
            return Ok(());
        }
        let mut rewrite = Rewrite::begin(&self.folder, self.dimension)?;
        for points in points().chunks(POINTS_A_FRAME) {
            rewrite.write(&framed(&PointChange {
                upserted: points.to_vec(),
                ..PointChange::default()
            })?)?;
        }
        rewrite.finish(&self.folder)?;
        (self.file, self.end, self.touched) = (rewrite.file, rewrite.end, live);
        Ok(())
    }
}

/// New file beside the one that it takes the place of.
struct Rewrite {
    path: PathBuf,
    file: File,
    end: u64,
}

impl Rewrite {
    fn begin(folder: &Path, dimension: usize) -> Answer<Self> {
        let path = folder.join(format!("{NAME}.new"));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.map_err(|error| failed(&path, &error))?;
        let mut made = Self { path, file, end: 0 };
        let dimension = u32::try_from(dimension).unwrap_or(u32::MAX);
        made.write(&[&MAGIC[..], &dimension.to_le_bytes()].concat())?;
        Ok(made)
    }

    fn write(&mut self, bytes: &[u8]) -> Answer<()> {
        self.file.write_all(bytes).map_err(|error| failed(&self.path, &error))?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    fn finish(&mut self, folder: &Path) -> Answer<()> {
        let synced = self.file.sync_all();
        let renamed = synced.and_then(|()| hivekeep_fs::rename(&self.path, &folder.join(NAME)));
        renamed.map_err(|error| failed(&self.path, &error))
    }
}

/// Removes a collection's folder, if it is there.
pub(super) fn remove(folder: &Path) -> Answer<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(folder, &error)),
        _ => folder.parent().filter(|above| above.exists()).map_or(Ok(()), sync),
    }
}

fn sync(folder: &Path) -> Answer<()> {
    hivekeep_fs::sync_folder(folder).map_err(|error| failed(folder, &error))
}

fn framed(change: &PointChange) -> Answer<Vec<u8>> {
    let body =
        postcard::to_stdvec(change).map_err(|error| StoreFailure::lasting(error.to_string()))?;
    if body.len() > MAX_FRAME_BYTES {
        return Err(StoreFailure::lasting("a change is too large for the file"));
    }
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes();
    Ok([&length[..], &crc32fast::hash(&body).to_le_bytes(), &body].concat())
}

/// Body of the frame at a place, and where the next one is; `None` if none is whole there.
fn frame(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let head = bytes.get(at..at + FRAME_BYTES)?;
    let (length, checksum) = (number(&head[..4]), number(&head[4..]));
    let begin = at + FRAME_BYTES;
    let body = bytes.get(begin..begin.checked_add(length)?)?;
    (length > 0 && crc32fast::hash(body) as usize == checksum).then_some((body, begin + length))
}

/// Whether what does not read is the last write: it ends where its frame says or before, or is a hole.
fn is_torn(tail: &[u8]) -> bool {
    let says =
        tail.get(..4).map_or(usize::MAX, |length| number(length).saturating_add(FRAME_BYTES));
    says >= tail.len() || tail.iter().all(|byte| *byte == 0)
}

fn number(bytes: &[u8]) -> usize {
    bytes.try_into().map_or(0, |bytes| u32::from_le_bytes(bytes) as usize)
}

fn size(change: &PointChange) -> usize {
    change.upserted.len() + change.moved.len() + change.removed.len()
}

fn failed(path: &Path, error: &io::Error) -> StoreFailure {
    StoreFailure {
        message: format!("{}: {error}", path.display()),
        passing: error.kind() == io::ErrorKind::StorageFull,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::PointId;

    fn removal(nth: u32) -> PointChange {
        PointChange { removed: vec![PointId::of("f", "t", nth)], ..PointChange::default() }
    }

    #[test]
    fn a_torn_tail_is_cut_off_and_damage_is_refused() {
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join("col");
        ChangeFile::create(&folder, 3).expect("made");
        let (mut file, dimension, _) = ChangeFile::open(&folder).expect("opens").expect("there");
        assert_eq!(dimension, 3);
        file.append(&removal(1)).expect("appended");
        let first = file.end;
        file.append(&removal(2)).expect("appended");
        let (path, whole) = (folder.join(NAME), fs::read(folder.join(NAME)).expect("reads"));
        for length in first..whole.len() as u64 {
            fs::write(&path, &whole[..length as usize]).expect("writes");
            let (.., changes) = ChangeFile::open(&folder).expect("opens").expect("there");
            assert_eq!(changes, [removal(1)], "{length}");
            assert_eq!(fs::metadata(&path).expect("there").len(), first);
        }
        fs::write(&path, [&whole[..first as usize], &[0; 50]].concat()).expect("writes");
        assert_eq!(ChangeFile::open(&folder).expect("opens").expect("there").2, [removal(1)]);
        let mut broken = whole.clone();
        broken[HEADER_BYTES as usize + FRAME_BYTES] ^= 1;
        fs::write(&path, &broken).expect("writes");
        assert!(ChangeFile::open(&folder).is_err(), "a whole frame follows");
        fs::write(&path, b"other").expect("writes");
        assert!(ChangeFile::open(&folder).is_err());
    }
}
