//! Folder in the OCI image layout. Its files are opened beneath its handle and through no link.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    os::fd::OwnedFd,
    path::Path,
};

use oci_spec::image::{Descriptor, ImageIndex};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use tokio_util::sync::CancellationToken;

use crate::{
    Error, OciResult, Sha256Digest, digest::RunningDigest, limits::DOCUMENT_BYTES,
    manifest::BlobRef,
};

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
