//! `aegis.file.*`: a thin layer over the file engine, for the volumes of the session's user.

use std::sync::Arc;

use base64::{Engine, prelude::BASE64_STANDARD};
use cap_std::fs::Metadata;
use hivekeep_file_engine::{
    ByteRange, FileRoot, ListedFolder, PlacePath, RemovePath, list_folder, make_folder, read_bytes,
    run, write_bytes,
};
use hivekeep_kernel::{CallCx, Layer, ToolError};

use crate::{
    codes,
    held::VolumeResult,
    images::free_bytes,
    refuse::{refused, refused_in},
    tools::{
        Encoding, MAX_FILE_BYTES, VolumeFileDelete, VolumeFileDeleted, VolumeFileEntry,
        VolumeFileList, VolumeFileListed, VolumeFileMade, VolumeFileMkdir, VolumeFileRead,
        VolumeFileText, VolumeFileWrite, VolumeFileWritten,
    },
    volumes::{VolumeService, failed},
};

/// Names of one folder that are looked at; a hostile one has more.
const MAX_NAMES: u64 = 100_000;

impl VolumeService {
    pub(crate) async fn file_list(
        self: Arc<Self>,
        cx: CallCx,
        input: VolumeFileList,
    ) -> VolumeResult<VolumeFileListed> {
        let VolumeFileList { volume_id, path, after, limit } = input;
        let list = move |root: &FileRoot, path: &PlacePath| {
            let listed = list_folder(root, path, after.as_deref(), limit, MAX_NAMES);
            let ListedFolder { entries, total, more, more_than_counted } =
                listed.map_err(refused)?;
            let next = entries.last_key_value().filter(|_| more).map(|(name, _)| name.clone());
            Ok(VolumeFileListed {
                path: path.to_string(),
                entries: entries
                    .into_iter()
                    .map(|(name, metadata)| entry(name, &metadata))
                    .collect(),
                total: total as usize,
                more_than_counted,
                next,
            })
        };
        self.at(&cx, &volume_id, &path, list).await
    }

    pub(crate) async fn file_read(
        self: Arc<Self>,
        cx: CallCx,
        input: VolumeFileRead,
    ) -> VolumeResult<VolumeFileText> {
        let VolumeFileRead { volume_id, path, offset, limit, encoding } = input;
        let read = move |root: &FileRoot, path: &PlacePath| {
            let range = read_bytes(root, path, offset, limit).map_err(refused)?;
            shown(path, range, offset, encoding)
        };
        self.at(&cx, &volume_id, &path, read).await
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
        let write = move |root: &FileRoot, path: &PlacePath| {
            if path.split().is_none() {
                return Err(rootless());
            }
            let written = write_bytes(root, path, &content);
            let replaced = written.map_err(|error| refused_in(error, root.dir()))?;
            let free = free_bytes(root.dir()).map_err(|error| failed("look at", &error))?;
            Ok(VolumeFileWritten {
                path: path.to_string(),
                bytes_written: content.len() as u64,
                replaced: replaced.existed,
                free_bytes: free,
            })
        };
        self.at(&cx, &volume_id, &path, write).await
    }

    pub(crate) async fn file_delete(
        self: Arc<Self>,
        cx: CallCx,
        input: VolumeFileDelete,
    ) -> VolumeResult<VolumeFileDeleted> {
        let remove = |root: &FileRoot, path: &PlacePath| {
            if path.split().is_none() {
                return Err(rootless());
            }
            let asked = RemovePath { path: path.to_string(), recursive: true };
            run(root, &asked.into(), &|| false).map_err(refused)?;
            Ok(VolumeFileDeleted { path: path.to_string(), deleted: true })
        };
        self.at(&cx, &input.volume_id, &input.path, remove).await
    }

    pub(crate) async fn file_mkdir(
        self: Arc<Self>,
        cx: CallCx,
        input: VolumeFileMkdir,
    ) -> VolumeResult<VolumeFileMade> {
        let make = |root: &FileRoot, path: &PlacePath| {
            let made = make_folder(root, path);
            let created = made.map_err(|error| refused_in(error, root.dir()))?;
            Ok(VolumeFileMade { path: path.to_string(), created })
        };
        self.at(&cx, &input.volume_id, &input.path, make).await
    }
}

fn rootless() -> ToolError {
    let message = "the root of a volume cannot be written or deleted";
    ToolError::new(Layer::Actor, codes::INVALID_PATH, message)
        .next("name a path relative to the volume's root, with `/` between folders")
}

fn entry(name: String, metadata: &Metadata) -> VolumeFileEntry {
    let kind = match metadata.file_type() {
        kind if kind.is_file() => "file",
        kind if kind.is_dir() => "folder",
        kind if kind.is_symlink() => "link",
        _ => "other",
    };
    let modified_at = metadata.modified().ok().map(|at| at.into_std().into());
    VolumeFileEntry {
        name,
        is_dir: kind == "folder",
        kind,
        size_bytes: metadata.len(),
        modified_at,
    }
}

/// A range as text where it is, in the encoding that was asked for.
fn shown(
    path: &PlacePath,
    range: ByteRange,
    offset: u64,
    asked: Option<Encoding>,
) -> VolumeResult<VolumeFileText> {
    let ByteRange { mut bytes, size_bytes } = range;
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
