//! Entries of a layer's archive: headers with their extension records, checked.

use std::collections::BTreeMap;
use std::io::Read;

use tar::EntryType;

use super::beneath::EntryMeta;
use super::refused;
use crate::layer::{Budget, records};
use crate::options::{DEPTH, EXTENSION_BYTES, PATH_BYTES};
use crate::{Error, OciResult};

/// Prefix of pax records that hold extended attributes.
const XATTR: &[u8] = b"SCHILY.xattr.";

/// Records of extension that stand before an entry and are about it.
#[derive(Default)]
pub(super) struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    records: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Extensions {
    /// Takes in an entry that is an extension record; false for all others.
    pub(super) fn take_in(
        &mut self,
        entry: &mut tar::Entry<'_, impl Read>,
        layer: usize,
        budget: &Budget<'_>,
    ) -> OciResult<bool> {
        let kind = entry.header().entry_type();
        if !matches!(
            kind,
            EntryType::XHeader
                | EntryType::GNULongName
                | EntryType::GNULongLink
                | EntryType::XGlobalHeader
        ) {
            return Ok(false);
        }
        let mut bytes = Vec::new();
        let read = entry.take(EXTENSION_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(|error| budget.error_of(layer, &error))?;
        if bytes.len() as u64 > EXTENSION_BYTES {
            let what = "bytes of one entry's extension records";
            return Err(Error::TooLarge { what, key: "extension_bytes", limit: EXTENSION_BYTES });
        }
        let name = |bytes: Vec<u8>| bytes.split(|byte| *byte == 0).next().map(<[u8]>::to_vec);
        match kind {
            EntryType::GNULongName => self.path = name(bytes),
            EntryType::GNULongLink => self.link = name(bytes),
            // About the whole archive: a comment of `git archive`, as a rule.
            EntryType::XGlobalHeader => {}
            _ => self.pax(&bytes, layer)?,
        }
        Ok(true)
    }

    fn pax(&mut self, bytes: &[u8], layer: usize) -> OciResult<()> {
        let malformed =
            || Error::BadLayer { layer, reason: "a pax record is malformed".to_owned() };
        for (key, value) in records(bytes).ok_or_else(malformed)? {
            match key {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                // In raw form the library goes by the header's size alone.
                b"size" => {
                    let reason = "a size in a pax record, as files of 8 GiB have it".to_owned();
                    return Err(Error::BadLayer { layer, reason });
                }
                _ if key.starts_with(b"GNU.sparse.") => {
                    let reason = "a sparse file, which is not supported".to_owned();
                    return Err(Error::BadLayer { layer, reason });
                }
                _ => {
                    self.records.insert(key.to_vec(), value.to_vec());
                }
            }
        }
        Ok(())
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.records.get(key.as_bytes()).and_then(|value| std::str::from_utf8(value).ok())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EntryKind {
    Folder,
    File,
    Symlink(String),
    /// Path of the file that the link names.
    HardLink(String),
    /// Device or pipe.
    Special,
}

/// Checked entry.
#[derive(Debug)]
pub(super) struct LayerEntry {
    /// Path without empty, `.` and `..` parts; empty for the root.
    pub(super) path: String,
    pub(super) kind: EntryKind,
    pub(super) bytes: u64,
    pub(super) meta: EntryMeta,
}

impl LayerEntry {
    pub(super) fn new(
        entry: &tar::Entry<'_, impl Read>,
        extensions: Extensions,
        layer: usize,
    ) -> OciResult<Self> {
        let header = entry.header();
        let raw = match &extensions.path {
            Some(path) => path.clone(),
            None => header.path_bytes().into_owned(),
        };
        let shown = String::from_utf8_lossy(&raw).into_owned();
        let no = |reason: &str| refused(layer, &shown, reason);
        let path = plain(&raw).map_err(no)?;
        let link = match &extensions.link {
            Some(link) => Some(link.clone()),
            None => header.link_name_bytes().map(|link| link.into_owned()),
        };
        let link =
            || link.clone().filter(|link| !link.is_empty()).ok_or_else(|| no("it has no target"));
        let kind = match header.entry_type() {
            EntryType::Directory => EntryKind::Folder,
            // The oldest archives mark folders by a slash at the end.
            EntryType::Regular | EntryType::Continuous if raw.ends_with(b"/") => EntryKind::Folder,
            EntryType::Regular | EntryType::Continuous => EntryKind::File,
            EntryType::Symlink => EntryKind::Symlink(target(link()?).map_err(no)?),
            EntryType::Link => EntryKind::HardLink(
                plain(&link()?).map_err(|why| no(&format!("its target: {why}")))?,
            ),
            EntryType::Char | EntryType::Block | EntryType::Fifo => EntryKind::Special,
            other => {
                return Err(no(&format!("entries of the type {:?}", char::from(other.as_byte()))));
            }
        };
        let meta = meta(header, &extensions).map_err(|why| no(&why))?;
        Ok(Self { path, kind, bytes: entry.size(), meta })
    }
}

fn target(bytes: Vec<u8>) -> std::result::Result<String, &'static str> {
    let text = String::from_utf8(bytes).map_err(|_| "its target is not UTF-8")?;
    if text.len() > PATH_BYTES || text.contains('\0') {
        return Err("its target is not a valid path");
    }
    Ok(text)
}

/// Path of an entry with nothing in it that leads elsewhere.
pub(super) fn plain(bytes: &[u8]) -> std::result::Result<String, &'static str> {
    let text = std::str::from_utf8(bytes).map_err(|_| "its path is not UTF-8")?;
    if text.contains('\0') {
        return Err("its path holds a NUL byte");
    }
    if text.len() > PATH_BYTES {
        return Err("its path is longer than 4095 bytes");
    }
    let parts: Vec<_> = text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return Err("its path leads upward");
    }
    if parts.iter().any(|part| part.len() > 255) {
        return Err("a name in its path is longer than 255 bytes");
    }
    if parts.len() > DEPTH {
        return Err("it is in more than 128 folders");
    }
    Ok(parts.join("/"))
}

fn meta(header: &tar::Header, extensions: &Extensions) -> std::result::Result<EntryMeta, String> {
    let number = |key: &str, header: std::io::Result<u64>| -> std::result::Result<u32, String> {
        let value = match extensions.text(key) {
            Some(text) => text.parse::<u64>().map_err(|_| format!("its {key} is not a number"))?,
            None => header.map_err(|_| format!("its {key} is not a number"))?,
        };
        // The last is "no change" to chown(2).
        u32::try_from(value)
            .ok()
            .filter(|id| *id != u32::MAX)
            .ok_or(format!("its {key} is too large"))
    };
    let mode = header.mode().map_err(|_| "its mode is not a number")? & 0o7777;
    let xattrs = extensions.records.iter().filter_map(|(key, value)| {
        Some((String::from_utf8_lossy(key.strip_prefix(XATTR)?).into_owned(), value.clone()))
    });
    Ok(EntryMeta {
        mode,
        uid: number("uid", header.uid())?,
        gid: number("gid", header.gid())?,
        modified: match extensions.text("mtime") {
            Some(text) => seconds(text).ok_or("its mtime is not a time")?,
            None => (header.mtime().ok().and_then(|at| i64::try_from(at).ok()).unwrap_or(0), 0),
        },
        xattrs: xattrs.collect(),
    })
}

/// Seconds and nanoseconds of a pax time, `[-]SECONDS[.FRACTION]`.
fn seconds(text: &str) -> Option<(i64, i64)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let secs: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos: i64 = format!("{:0<9}", &fraction[..fraction.len().min(9)]).parse().ok()?;
    match whole.starts_with('-') && nanos > 0 {
        true => Some((secs.checked_sub(1)?, 1_000_000_000 - nanos)),
        false => Some((secs, nanos)),
    }
}

#[cfg(test)]
mod tests {
    use super::{plain, seconds};

    #[test]
    fn paths_stay_below_and_are_bounded() {
        for (given, read) in [("/a//./b/", "a/b"), ("./", ""), ("a/..b/c..", "a/..b/c..")] {
            assert_eq!(plain(given.as_bytes()), Ok(read.to_owned()));
        }
        let (long, deep) = ("n".repeat(256), "d/".repeat(129));
        let longest = "n/".repeat(2048);
        for bad in ["..", "a/../b", "a\0b", &long, &deep, &longest] {
            assert!(plain(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(plain(b"a\xff").is_err());
    }

    #[test]
    fn times_of_pax_records() {
        assert_eq!(seconds("12.5"), Some((12, 500_000_000)));
        assert_eq!(seconds("-1.25"), Some((-2, 750_000_000)));
        assert_eq!(seconds("1712345678.1234567891"), Some((1_712_345_678, 123_456_789)));
        assert_eq!((seconds("x"), seconds("1.x")), (None, None));
    }
}
