//! Files of any content with their metadata, got and put in pieces.

use std::io::{Read, Seek, SeekFrom, Write};

use cap_std::fs::{MetadataExt as _, OpenOptions, OpenOptionsExt as _};
use rustix::fs::{Mode, OFlags, fchmod};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::{
    FileError, FileErrorKind, FileRoot, MAX_EDIT_BYTES, Metadata, PlacePath, error::failed,
    metadata, read, write::replace_with,
};

/// Permission bits that are set: none that lends its owner's rights.
const MODE: u32 = 0o1777;

/// Reads a range of bytes, whatever they are, and the metadata.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetBytes {
    /// Path of the file, as [`PlacePath`] parses it; links are followed.
    pub path: String,
    /// First byte.
    pub offset: u64,
    /// Number of bytes, at most 16 MiB.
    pub limit: u64,
}

/// Range of bytes of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GotBytes {
    /// Bytes from the first that was asked for; fewer than asked where the file ends.
    pub bytes: ByteBuf,
    /// Size of the file.
    pub size_bytes: u64,
    /// Texts that were given with the content.
    pub metadata: Metadata,
}

/// Writes bytes: from 0 on the whole file, which is there with all of it or as it was; else from there
/// on, and cut behind. Missing folders are made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutBytes {
    /// Path of the file, as [`PlacePath`] parses it; links are followed.
    pub path: String,
    /// Bytes, at most 16 MiB.
    pub content: ByteBuf,
    /// First byte that they are put at; the file has at least as many.
    pub at: u64,
    /// Texts to keep with it; a file that is replaced loses those that it had.
    pub metadata: Metadata,
    /// Permission bits in place of the old ones.
    pub mode: Option<u32>,
}

/// Outcome of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BytesPut {
    /// Size of the file.
    pub size_bytes: u64,
    /// True if there was a file before.
    pub existed: bool,
}

/// # Errors
/// `NotAFile`, `IsADirectory`, and those of a path.
pub(crate) fn get(root: &FileRoot, asked: &GetBytes) -> Result<GotBytes, FileError> {
    let path = root.path(&asked.path)?;
    let io = |error| failed(&error, &path);
    let (mut file, found) = read::open(root, &path)?;
    let (metadata, told) = (metadata::of_open(&file), found.len());
    let mut bytes = Vec::new();
    // Files that the kernel makes as they are read, as those of `/proc`, tell no size.
    let offset = if told == 0 { asked.offset } else { asked.offset.min(told) };
    let limit = asked.limit.min(MAX_EDIT_BYTES);
    file.seek(SeekFrom::Start(offset)).map_err(io)?;
    file.take(limit).read_to_end(&mut bytes).map_err(io)?;
    let read = bytes.len() as u64;
    let more = u64::from(told == 0 && read == limit);
    let size_bytes = told.max(if read == 0 { 0 } else { offset + read + more });
    Ok(GotBytes { bytes: ByteBuf::from(bytes), size_bytes, metadata })
}

/// # Errors
/// `TooLarge`, `InvalidMetadata`, `NoMetadata`, `PastEnd`, and those of a path.
pub(crate) fn put(root: &FileRoot, asked: &PutBytes) -> Result<BytesPut, FileError> {
    let path = &root.path(&asked.path)?;
    if asked.content.len() as u64 > MAX_EDIT_BYTES {
        let message = format!("`{path}`: more than {MAX_EDIT_BYTES} bytes at once");
        return Err(FileError::new(FileErrorKind::TooLarge, message));
    }
    metadata::check(&asked.metadata)?;
    if asked.at == 0 {
        let mode = asked.mode.map(|mode| mode & MODE);
        let replaced = replace_with(root, path, &asked.content, mode, &asked.metadata)?;
        let size_bytes = asked.content.len() as u64;
        return Ok(BytesPut { size_bytes, existed: replaced.existed });
    }
    go_on(root, path, asked)
}

/// Puts bytes behind others.
fn go_on(root: &FileRoot, path: &PlacePath, asked: &PutBytes) -> Result<BytesPut, FileError> {
    let io = |error| failed(&error, path);
    let real = root.target(path)?;
    read::regular(&root.dir().metadata(real.as_str()).map_err(io)?, path)?;
    let mut options = OpenOptions::new();
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW).bits().cast_signed();
    options.write(true).custom_flags(flags);
    let mut file = root.dir().open_with(real.as_str(), &options).map_err(io)?;
    let now = file.metadata().map_err(io)?;
    read::regular(&now, path)?;
    if now.nlink() > 1 {
        let message =
            format!("`{path}` has other names, perhaps outside of this place: put it whole");
        return Err(FileError::new(FileErrorKind::PermissionDenied, message));
    }
    if now.size() < asked.at {
        let message = format!("`{path}` has {} bytes, fewer than {}", now.size(), asked.at);
        let error = FileError::new(FileErrorKind::PastEnd, message);
        return Err(FileError { size_bytes: Some(now.size()), ..error });
    }
    let size_bytes = asked.at + asked.content.len() as u64;
    file.seek(SeekFrom::Start(asked.at)).map_err(io)?;
    file.write_all(&asked.content).map_err(io)?;
    file.set_len(size_bytes).map_err(io)?;
    metadata::set(&file, &asked.metadata, path)?;
    if let Some(mode) = asked.mode {
        fchmod(&file, Mode::from_raw_mode(mode & MODE)).map_err(|errno| io(errno.into()))?;
    }
    file.sync_all().map_err(io)?;
    Ok(BytesPut { size_bytes, existed: true })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use tempfile::TempDir;

    use super::*;
    use crate::{FileOperation, FileOutcome, run};

    struct Stage(TempDir, FileRoot);

    impl Stage {
        fn new() -> Self {
            let folder = TempDir::new().expect("a folder");
            let root = FileRoot::folder(folder.path()).expect("opened");
            Self(folder, root)
        }

        fn put(&self, path: &str, content: &[u8], at: u64) -> Result<BytesPut, FileError> {
            self.put_with(path, content, at, &[], None)
        }

        fn put_with(
            &self,
            path: &str,
            content: &[u8],
            at: u64,
            metadata: &[(&str, &str)],
            mode: Option<u32>,
        ) -> Result<BytesPut, FileError> {
            let texts = metadata.iter().map(|(name, text)| ((*name).into(), (*text).into()));
            let asked = PutBytes {
                path: path.to_owned(),
                content: ByteBuf::from(content),
                at,
                metadata: texts.collect(),
                mode,
            };
            let operation = FileOperation::from(asked);
            let outcome = run(&self.1, &operation, &|| false)?;
            assert!(operation.accepts(&outcome));
            match outcome {
                FileOutcome::PutBytes(put) => Ok(put),
                _ => panic!("another outcome"),
            }
        }

        fn get(&self, path: &str) -> GotBytes {
            get(&self.1, &GetBytes { path: path.to_owned(), offset: 0, limit: 99 }).expect("got")
        }
    }

    #[test]
    fn a_file_with_other_names_is_put_whole_or_not() {
        let stage = Stage::new();
        stage.put("f", b"abc", 0).expect("put");
        fs::hard_link(stage.0.path().join("f"), stage.0.path().join("g")).expect("linked");
        let refused = stage.put("f", b"X", 1).expect_err("refused");
        assert_eq!(refused.kind, FileErrorKind::PermissionDenied);
        stage.put("f", b"X", 0).expect("put");
        assert_eq!(fs::read(stage.0.path().join("g")).expect("read"), b"abc");
    }

    #[test]
    fn a_file_without_a_size_is_read() {
        let root = FileRoot::folder("/proc/self".as_ref()).expect("opened");
        let get = |offset, limit| {
            get(&root, &GetBytes { path: "status".to_owned(), offset, limit }).expect("got")
        };
        let whole = get(0, 1 << 20);
        assert!(whole.bytes.starts_with(b"Name:"));
        assert_eq!(whole.size_bytes, whole.bytes.len() as u64);
        let piece = get(2, 3);
        assert_eq!(&piece.bytes[..], b"me:");
        assert!(piece.size_bytes > 5, "there is more");
    }

    #[test]
    fn pieces_make_a_file_and_what_is_behind_them_is_cut() {
        let stage = Stage::new();
        let put = stage.put("d/f", b"abcdef", 0).expect("put");
        assert_eq!(put, BytesPut { size_bytes: 6, existed: false });
        let put = stage.put("d/f", b"XY", 3).expect("put");
        assert_eq!(put, BytesPut { size_bytes: 5, existed: true });
        assert_eq!(stage.get("d/f").bytes.as_slice(), b"abcXY");
        assert!(stage.put("d/f", b"", 0).expect("put").existed);
        assert_eq!(stage.get("d/f").size_bytes, 0);
        let past = stage.put("d/f", b"x", 1).expect_err("behind the end");
        assert_eq!((past.kind, past.size_bytes), (FileErrorKind::PastEnd, Some(0)));
        let none = stage.put("d/g", b"x", 1).expect_err("no file");
        assert_eq!(none.kind, FileErrorKind::NotFound);
        stage.put_with("d/f", b"x", 0, &[], Some(0o600)).expect("put");
        let mode = || fs::metadata(stage.0.path().join("d/f")).expect("there").permissions().mode();
        assert_eq!(mode() & 0o7777, 0o600);
        for at in [0, 1] {
            stage.put_with("d/f", b"y", at, &[], Some(0o4755)).expect("put");
            assert_eq!(mode() & 0o7777, 0o755, "no bit that lends rights");
        }
    }

    #[test]
    fn a_piece_goes_through_no_link_out_and_into_no_device() {
        let stage = Stage::new();
        let outside = TempDir::new().expect("a folder");
        fs::write(outside.path().join("f"), "abc").expect("written");
        std::os::unix::fs::symlink(outside.path().join("f"), stage.0.path().join("out"))
            .expect("linked");
        rustix::fs::mkfifoat(rustix::fs::CWD, stage.0.path().join("pipe"), Mode::RUSR)
            .expect("made");
        fs::create_dir(stage.0.path().join("dir")).expect("made");
        for (path, kind) in [
            ("out", FileErrorKind::Outside),
            ("pipe", FileErrorKind::NotAFile),
            ("dir", FileErrorKind::IsADirectory),
        ] {
            for at in [0, 1] {
                assert_eq!(stage.put(path, b"x", at).expect_err(path).kind, kind, "{path} {at}");
            }
        }
        assert_eq!(fs::read(outside.path().join("f")).expect("there"), b"abc");
    }

    #[test]
    fn metadata_are_kept_with_the_content_that_they_came_with() {
        let stage = Stage::new();
        match stage.put_with("f", b"x", 0, &[("kind", "b\u{e4}"), ("a.b-c_1", "")], None) {
            Err(error) if error.kind == FileErrorKind::NoMetadata => {
                assert!(!stage.0.path().join("f").exists(), "nothing was put");
                return hivekeep_skip::skip(error);
            }
            put => drop(put.expect("put")),
        }
        let texts = |path: &str| -> Vec<(String, String)> {
            stage.get(path).metadata.into_iter().collect()
        };
        let kind = |text: &str| ("kind".to_owned(), text.to_owned());
        assert_eq!(texts("f"), [("a.b-c_1".to_owned(), String::new()), kind("b\u{e4}")]);
        stage.put_with("f", b"y", 1, &[("kind", "2")], None).expect("put");
        assert_eq!(texts("f").len(), 2, "a part more keeps what there is");
        assert_eq!(texts("f")[1], kind("2"));
        stage.put("f", b"z", 0).expect("put");
        assert_eq!(texts("f"), [], "another content has none of the old one's");
        let (long_name, long_text) = ("n".repeat(129), "t".repeat(1025));
        for (name, text) in [
            ("", ""),
            ("a b", ""),
            ("\u{e4}", ""),
            ("n", "\0"),
            (&long_name, ""),
            ("n", &long_text),
        ] {
            let refused = stage.put_with("g", b"", 0, &[(name, text)], None).expect_err(name);
            assert_eq!(refused.kind, FileErrorKind::InvalidMetadata);
        }
        let names: Vec<String> = (0..65).map(|n| n.to_string()).collect();
        let many: Vec<_> = names.iter().map(|name| (&**name, "")).collect();
        let refused = stage.put_with("g", b"", 0, &many, None).expect_err("too many");
        assert_eq!(refused.kind, FileErrorKind::InvalidMetadata);
        assert!(!stage.0.path().join("g").exists());
    }

    #[test]
    fn a_guest_tells_of_no_other_size() {
        let asked = PutBytes {
            path: "f".into(),
            content: ByteBuf::from(*b"abc"),
            at: 4,
            metadata: Metadata::new(),
            mode: None,
        };
        let put = |size_bytes| FileOutcome::PutBytes(BytesPut { size_bytes, existed: true });
        let asked = FileOperation::from(asked);
        assert!(asked.accepts(&put(7)) && !asked.accepts(&put(3)));
        let asked = FileOperation::from(GetBytes { path: "f".into(), offset: 0, limit: 2 });
        let got = |bytes: &[u8], size_bytes| {
            let metadata = Metadata::new();
            FileOutcome::GetBytes(GotBytes { bytes: ByteBuf::from(bytes), size_bytes, metadata })
        };
        assert!(asked.accepts(&got(b"ab", 9)));
        assert!(!asked.accepts(&got(b"abc", 9)) && !asked.accepts(&got(b"ab", 1)));
    }
}
