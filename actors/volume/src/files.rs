//! `aegis.file.*`: a thin layer over the engine, for the volumes of the session's user.

use std::sync::Arc;

use base64::{Engine, prelude::BASE64_STANDARD};
use cap_std::fs::{Dir, Metadata};
use hivekeep_kernel::{CallCx, Layer, ToolError};

use crate::{
    codes,
    engine::{self, FileRange, FolderNames},
    held::VolumeResult,
    images::free_bytes,
    tools::{
        Encoding, MAX_FILE_BYTES, VolumeFileDelete, VolumeFileDeleted, VolumeFileEntry,
        VolumeFileList, VolumeFileListed, VolumeFileMade, VolumeFileMkdir, VolumeFileRead,
        VolumeFileText, VolumeFileWrite, VolumeFileWritten,
    },
    volume_path::VolumePath,
    volumes::VolumeService,
};

impl VolumeService {
    /// Works beneath the root of a volume of the session's user.
    async fn beneath<T: Send + 'static>(
        &self,
        cx: &CallCx,
        volume: &str,
        path: &str,
        work: impl FnOnce(&Dir, &VolumePath) -> VolumeResult<T> + Send + 'static,
    ) -> VolumeResult<T> {
        let path = VolumePath::parse(path)?;
        let (_, root) = self.opened(cx, volume).await?;
        let done = tokio::task::spawn_blocking(move || work(&root, &path)).await;
        done.map_err(|error| ToolError::internal(format!("a file of a volume: {error}")))?
    }

    pub(crate) async fn file_list(
        self: Arc<Self>,
        cx: CallCx,
        input: VolumeFileList,
    ) -> VolumeResult<VolumeFileListed> {
        let VolumeFileList { volume_id, path, after, limit } = input;
        let list = move |root: &Dir, path: &VolumePath| {
            let FolderNames { entries: mut found, more: more_than_counted } =
                engine::list(root, path)?;
            let total = found.len();
            if let Some(after) = after {
                found.retain(|(name, _)| *name > after);
            }
            let more = found.len() > limit;
            found.truncate(limit);
            let next = found.last().filter(|_| more).map(|(name, _)| name.clone());
            let entries = found.into_iter().map(|(name, metadata)| entry(name, metadata)).collect();
            Ok(VolumeFileListed { path: path.to_string(), entries, total, more_than_counted, next })
        };
        self.beneath(&cx, &volume_id, &path, list).await
    }

    pub(crate) async fn file_read(
        self: Arc<Self>,
        cx: CallCx,
        input: VolumeFileRead,
    ) -> VolumeResult<VolumeFileText> {
        let VolumeFileRead { volume_id, path, offset, limit, encoding } = input;
        let read = move |root: &Dir, path: &VolumePath| {
            let range = engine::read(root, path, offset, limit)?;
            shown(path, range, offset, encoding)
        };
        self.beneath(&cx, &volume_id, &path, read).await
    }

    pub(crate) async fn file_write(
        self: Arc<Self>,
        cx: CallCx,
        input: VolumeFileWrite,
    ) -> VolumeResult<VolumeFileWritten> {
        let VolumeFileWrite { volume_id, path, content, encoding } = input;
        let content = match encoding {
            Encoding::Utf8 => content.into_bytes(),
            Encoding::Base64 => BASE64_STANDARD.decode(content).map_err(|error| {
                ToolError::invalid(format!("`content` is not valid base64: {error}"))
            })?,
        };
        if content.len() > MAX_FILE_BYTES {
            let message =
                format!("the content has {} bytes, {MAX_FILE_BYTES} are allowed", content.len());
            return Err(ToolError::new(Layer::Actor, codes::TOO_LARGE, message));
        }
        let write = move |root: &Dir, path: &VolumePath| {
            let replaced = engine::write(root, path, &content)?;
            Ok(VolumeFileWritten {
                path: path.to_string(),
                bytes_written: content.len() as u64,
                replaced,
                free_bytes: free_bytes(root).map_err(|error| engine::failed(&error, path, root))?,
            })
        };
        self.beneath(&cx, &volume_id, &path, write).await
    }

    pub(crate) async fn file_delete(
        self: Arc<Self>,
        cx: CallCx,
        input: VolumeFileDelete,
    ) -> VolumeResult<VolumeFileDeleted> {
        let remove = |root: &Dir, path: &VolumePath| {
            engine::remove(root, path)?;
            Ok(VolumeFileDeleted { path: path.to_string(), deleted: true })
        };
        self.beneath(&cx, &input.volume_id, &input.path, remove).await
    }

    pub(crate) async fn file_mkdir(
        self: Arc<Self>,
        cx: CallCx,
        input: VolumeFileMkdir,
    ) -> VolumeResult<VolumeFileMade> {
        let make = |root: &Dir, path: &VolumePath| {
            Ok(VolumeFileMade { path: path.to_string(), created: engine::make(root, path)? })
        };
        self.beneath(&cx, &input.volume_id, &input.path, make).await
    }
}

fn entry(name: String, metadata: Option<Metadata>) -> VolumeFileEntry {
    let kind = match metadata.as_ref().map(Metadata::file_type) {
        Some(kind) if kind.is_file() => "file",
        Some(kind) if kind.is_dir() => "folder",
        Some(kind) if kind.is_symlink() => "link",
        _ => "other",
    };
    let modified = metadata.as_ref().and_then(|metadata| metadata.modified().ok());
    VolumeFileEntry {
        name,
        is_dir: kind == "folder",
        kind,
        size_bytes: metadata.map_or(0, |metadata| metadata.len()),
        modified_at: modified.map(|at| at.into_std().into()),
    }
}

/// A range as text where it is, in the encoding that was asked for.
fn shown(
    path: &VolumePath,
    range: FileRange,
    offset: u64,
    asked: Option<Encoding>,
) -> VolumeResult<VolumeFileText> {
    let FileRange { mut bytes, size_bytes } = range;
    let whole = offset.saturating_add(bytes.len() as u64) >= size_bytes;
    if let (Err(error), true) = (std::str::from_utf8(&bytes), asked != Some(Encoding::Base64))
        && !whole
        && error.error_len().is_none()
    {
        // A character that the end cuts.
        let text = error.valid_up_to();
        bytes.truncate(text);
    }
    let next_offset = (!whole).then_some(offset + bytes.len() as u64);
    let (content, encoding) = match (asked, String::from_utf8(bytes)) {
        (None | Some(Encoding::Utf8), Ok(text)) => (text, Encoding::Utf8),
        (Some(Encoding::Utf8), Err(_)) => {
            let message = format!("`{path}` is not UTF-8 text in this range");
            return Err(ToolError::new(Layer::Actor, codes::NOT_UTF8, message)
                .next("read it with `encoding` base64"));
        }
        (_, Ok(text)) => (BASE64_STANDARD.encode(text), Encoding::Base64),
        (_, Err(error)) => (BASE64_STANDARD.encode(error.as_bytes()), Encoding::Base64),
    };
    Ok(VolumeFileText {
        path: path.to_string(),
        content,
        encoding,
        content_type: mime_guess::from_path(path.as_str()).first_or_octet_stream().to_string(),
        size_bytes,
        next_offset,
    })
}
