//! Images on this host: a file that `docker save` or `skopeo copy ... docker-archive:` wrote, and a folder in the
//! OCI image layout.
//!
//! The file is a tar archive with the layers' archives in it, which are read where they lie. Files of the folder
//! are opened beneath its handle and through no link.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::Path;

use oci_spec::image::{Descriptor, ImageIndex};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::FetchedImage;
use crate::digest::RunningDigest;
use crate::layer::{LayerPacking, records};
use crate::manifest::{BlobRef, PlatformConfig, check_compressed};
use crate::options::{DOCUMENT_BYTES, EXTENSION_BYTES, PATH_BYTES};
use crate::{Error, LayerFile, OciResult, PullLimits, Sha256Digest};

/// Maximum number of entries; each layer has about three.
const MAX_ENTRIES: usize = 4096;

/// Open archive with the places of its files.
pub(super) struct DockerArchive {
    file: File,
    place: String,
    files: HashMap<String, Found>,
}

enum Found {
    File {
        offset: u64,
        bytes: u64,
    },
    /// A layer that is there under another name.
    Link(String),
}

/// Entry of `manifest.json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    layers: Vec<String>,
}

impl DockerArchive {
    /// Opens an archive and reads its headers. Blocks.
    pub(super) fn open(path: &Path) -> OciResult<Self> {
        let place = path.display().to_string();
        let doing = || format!("read the archive {place}");
        // A pipe without a writer would hold whoever opens it.
        let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(CWD, path, how, Mode::empty()).map_err(Error::io(doing()))?;
        let file = File::from(file);
        if !file.metadata().map_err(Error::io(doing()))?.is_file() {
            return Err(Error::unsupported(format!("{place} is not a file")));
        }
        let mut head = [0; 4];
        let _short = (&file).read(&mut head).map_err(Error::io(doing()))?;
        if LayerPacking::of_magic(&head) != LayerPacking::Plain {
            return Err(Error::unsupported(format!("{place} is compressed; unpack it first")));
        }
        (&file).seek(SeekFrom::Start(0)).map_err(Error::io(doing()))?;
        let files = index(&file).map_err(Error::io(doing()))?;
        Ok(Self { file, place, files })
    }

    /// Only image in the archive.
    pub(super) fn image(self, limits: &PullLimits) -> OciResult<FetchedImage> {
        let bad =
            |error: serde_json::Error| Error::unsupported(format!("its manifest.json: {error}"));
        let saved: Vec<Saved> =
            serde_json::from_slice(&self.small("manifest.json")?).map_err(bad)?;
        let [saved] = saved.as_slice() else {
            let images = saved.len();
            return Err(Error::unsupported(format!("the archive has {images} images, not one")));
        };
        let config = PlatformConfig::parse(&self.small(&saved.config)?)?;
        if config.diff_ids.len() != saved.layers.len() {
            return Err(Error::unsupported("its manifest and configuration differ in layers"));
        }
        if saved.layers.len() > limits.layers {
            let limit = limits.layers as u64;
            return Err(Error::TooLarge {
                what: "layers",
                key: "workspace.images.max_layers",
                limit,
            });
        }
        let mut sum = 0u64;
        let mut layers = Vec::new();
        for (name, diff_id) in saved.layers.iter().zip(config.diff_ids) {
            let (offset, bytes) = self.find(name)?;
            sum = sum.saturating_add(bytes);
            check_compressed(sum, limits)?;
            let packing = LayerPacking::of_magic(&self.read(offset, bytes.min(4))?);
            let file = self.file.try_clone().map_err(Error::io(format!("read {}", self.place)))?;
            layers.push(LayerFile { file: reopened(&file)?, offset, bytes, packing, diff_id });
        }
        Ok(FetchedImage { digest: None, defaults: config.defaults, layers })
    }

    fn small(&self, name: &str) -> OciResult<Vec<u8>> {
        let (offset, bytes) = self.find(name)?;
        if bytes > DOCUMENT_BYTES {
            let what = "a manifest or configuration in bytes";
            return Err(Error::TooLarge { what, key: "document_bytes", limit: DOCUMENT_BYTES });
        }
        self.read(offset, bytes)
    }

    fn read(&self, offset: u64, bytes: u64) -> OciResult<Vec<u8>> {
        let doing = || format!("read the archive {}", self.place);
        let mut file = &self.file;
        file.seek(SeekFrom::Start(offset)).map_err(Error::io(doing()))?;
        let mut content = Vec::new();
        file.take(bytes).read_to_end(&mut content).map_err(Error::io(doing()))?;
        Ok(content)
    }

    fn find(&self, name: &str) -> OciResult<(u64, u64)> {
        let missing = || Error::NotFound { what: name.to_owned(), place: self.place.clone() };
        match self.files.get(name).ok_or_else(missing)? {
            Found::File { offset, bytes } => Ok((*offset, *bytes)),
            Found::Link(to) => match self.files.get(to) {
                Some(Found::File { offset, bytes }) => Ok((*offset, *bytes)),
                _ => Err(missing()),
            },
        }
    }
}

/// Same file with a position of its own.
fn reopened(file: &File) -> OciResult<File> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    File::open(path).map_err(Error::io("open the archive again"))
}

fn index(file: &File) -> std::io::Result<HashMap<String, Found>> {
    let mut files = HashMap::new();
    let mut long: Option<String> = None;
    let mut archive = tar::Archive::new(file);
    for (count, entry) in archive.entries_with_seek()?.raw(true).enumerate() {
        let entry = entry?;
        if count >= MAX_ENTRIES {
            return Err(std::io::Error::other("the archive has too many entries"));
        }
        let (offset, bytes) = (entry.raw_file_position(), entry.size());
        let (kind, path) = (entry.header().entry_type(), entry.path_bytes().into_owned());
        let link = entry.header().link_name_bytes().map(std::borrow::Cow::into_owned);
        let name = String::from_utf8_lossy(&path).into_owned();
        match kind {
            tar::EntryType::XHeader | tar::EntryType::GNULongName => {
                long = long_name(entry, kind)?.or(long);
                continue;
            }
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                files.insert(long.take().unwrap_or(name), Found::File { offset, bytes });
            }
            tar::EntryType::Symlink | tar::EntryType::Link => {
                let name = long.take().unwrap_or(name);
                let to = String::from_utf8_lossy(&link.unwrap_or_default()).into_owned();
                // `../LAYER/layer.tar`, relative to the folder of the layer.
                files.insert(name, Found::Link(to.trim_start_matches("../").to_owned()));
            }
            _ => long = None,
        }
    }
    Ok(files)
}

/// Name that an extension record gives to the next entry.
fn long_name(entry: impl Read, kind: tar::EntryType) -> std::io::Result<Option<String>> {
    let mut bytes = Vec::new();
    entry.take(EXTENSION_BYTES).read_to_end(&mut bytes)?;
    if kind == tar::EntryType::GNULongName {
        let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = String::from_utf8_lossy(&name[..name.len().min(PATH_BYTES)]).into_owned();
        return Ok(Some(name));
    }
    let malformed = || std::io::Error::other("a pax record is malformed");
    let all = records(&bytes).ok_or_else(malformed)?;
    let path = all.into_iter().rev().find(|(key, _)| *key == b"path");
    Ok(path.map(|(_, value)| String::from_utf8_lossy(value).into_owned()))
}

/// Annotation of a manifest with its tag.
const TAG: &str = "org.opencontainers.image.ref.name";

/// Open layout, and the image chosen in it.
pub(super) struct OciLayout {
    folder: OwnedFd,
    place: String,
    top: BlobRef,
}

impl OciLayout {
    /// Opens a layout and finds the image in its index. Blocks.
    pub(super) fn open(path: &Path, tag: Option<&str>) -> OciResult<Self> {
        let place = path.display().to_string();
        let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, path, how, Mode::empty())
            .map_err(Error::io(format!("open the layout {place}")))?;
        let bytes = small(&folder, "index.json", DOCUMENT_BYTES)?;
        let index: ImageIndex = serde_json::from_slice(&bytes)
            .map_err(|error| Error::unsupported(format!("its index.json: {error}")))?;
        let top = BlobRef::document(chosen(&index, tag, &place)?)?;
        Ok(Self { folder, place, top })
    }

    /// Document that the index names.
    pub(super) fn top(&self) -> OciResult<(Vec<u8>, Sha256Digest)> {
        let bytes = self.document(&self.top.digest, DOCUMENT_BYTES)?;
        Sha256Digest::of(&bytes).expect(self.top.digest, "the manifest")?;
        Ok((bytes, self.top.digest))
    }

    /// Content of a small blob, not checked yet.
    pub(super) fn document(&self, digest: &Sha256Digest, limit: u64) -> OciResult<Vec<u8>> {
        small(&self.folder, &blob_path(digest), limit)
    }

    /// Blob, checked and opened at its beginning. Blocks as long as reading it takes.
    pub(super) fn blob(&self, blob: BlobRef, cancel: &CancellationToken) -> OciResult<File> {
        let name = blob_path(&blob.digest);
        let mut file = open(&self.folder, &name)
            .map_err(|_| Error::NotFound { what: name.clone(), place: self.place.clone() })?;
        let (mut digest, mut buffer) = (RunningDigest::default(), vec![0; 256 << 10]);
        loop {
            let got = file.read(&mut buffer).map_err(Error::io(format!("read {name}")))?;
            if got == 0 {
                break;
            }
            if cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            digest.update(&buffer[..got]);
        }
        digest.finish().expect(blob.digest, "a layer")?;
        file.seek(SeekFrom::Start(0)).map_err(Error::io(format!("read {name}")))?;
        Ok(file)
    }
}

fn chosen<'a>(index: &'a ImageIndex, tag: Option<&str>, place: &str) -> OciResult<&'a Descriptor> {
    let tag_of = |entry: &Descriptor| entry.annotations().as_ref()?.get(TAG).cloned();
    let entries = index.manifests();
    let found = match tag {
        Some(tag) => entries.iter().find(|entry| tag_of(entry).as_deref() == Some(tag)),
        None if entries.len() == 1 => entries.first(),
        None => None,
    };
    found.ok_or_else(|| {
        let tags: Vec<_> = entries.iter().filter_map(tag_of).take(20).collect();
        let what =
            tag.map_or_else(|| "one image without a tag".to_owned(), |tag| format!("tag {tag}"));
        Error::NotFound { what, place: format!("{place}, which has: {}", tags.join(", ")) }
    })
}

fn blob_path(digest: &Sha256Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn small(folder: &OwnedFd, name: &str, limit: u64) -> OciResult<Vec<u8>> {
    let reading = || format!("read {name} of the layout");
    let file = open(folder, name).map_err(Error::io(reading()))?;
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(Error::io(reading()))?;
    if bytes.len() as u64 > limit {
        let what = "a manifest or configuration in bytes";
        return Err(Error::TooLarge { what, key: "document_bytes", limit });
    }
    Ok(bytes)
}

fn open(folder: &OwnedFd, name: &str) -> std::io::Result<File> {
    let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let file = File::from(openat2(folder, name, how, Mode::empty(), resolve)?);
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(std::io::Error::other("is not a file"))
}
