//! Catalogue of operations, with the type of each outcome, and their codec for a link into a guest:
//! postcard, bounded.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{FileError, FileErrorKind, MAX_EDIT_BYTES, *};

/// Effect of an operation on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileEffect {
    /// Changes nothing.
    Reads,
    /// Takes away.
    Frees,
    /// May take room.
    Writes,
}

/// Operation with a known type of outcome.
pub trait Operation: Into<FileOperation> + Send + 'static {
    /// Type of the outcome.
    type Outcome: Send + 'static;
    /// Path that it is about.
    fn path(&self) -> &str;
    /// Outcome of this operation; `None` for that of another.
    fn outcome_of(outcome: FileOutcome) -> Option<Self::Outcome>;
}

macro_rules! operations {
    ($($(#[$doc:meta])* $operation:ident => $outcome:ident, $effect:ident,
        |$root:ident, $asked:ident, $stop:ident| $run:expr;)+) => {
        /// Operation on files. New kinds are added at the end.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub enum FileOperation { $($(#[$doc])* $operation($operation),)+ }

        /// Outcome of an operation, in the order of [`FileOperation`].
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub enum FileOutcome { $(
            #[doc = concat!("Of [`FileOperation::", stringify!($operation), "`].")]
            $operation($outcome),
        )+ }

        $(impl From<$operation> for FileOperation {
            fn from(operation: $operation) -> Self { Self::$operation(operation) }
        }

        impl Operation for $operation {
            type Outcome = $outcome;
            fn path(&self) -> &str { &self.path }
            fn outcome_of(outcome: FileOutcome) -> Option<$outcome> {
                match outcome { FileOutcome::$operation(outcome) => Some(outcome), _ => None }
            }
        })+

        impl FileOperation {
            /// Effect on the disk.
            pub fn effect(&self) -> FileEffect {
                match self { $(Self::$operation(_) => FileEffect::$effect,)+ }
            }

            /// Whether an outcome is one of this kind of operation.
            fn is_kind_of(&self, outcome: &FileOutcome) -> bool {
                match (self, outcome) {
                    $((Self::$operation(_), FileOutcome::$operation(_)) => true,)+
                    _ => false,
                }
            }
        }

        /// Runs an operation beneath a root. Blocks. Once `stop` says so, a search ends early with an
        /// outcome that is not whole; a change is made whole or not at all.
        ///
        /// # Errors
        /// [`FileError`]; what was there before is there still, but for a recursive deletion.
        pub fn run(
            root: &FileRoot,
            operation: &FileOperation,
            stop: Stop<'_>,
        ) -> Result<FileOutcome, FileError> {
            Ok(match operation { $(
                FileOperation::$operation(asked) => {
                    let ($root, $asked, $stop) = (root, asked, stop);
                    let _not_all_ask = $stop;
                    FileOutcome::$operation($run?)
                }
            )+ })
        }
    };
}

operations! {
    /// A range of bytes.
    ReadText => TextRange, Reads, |root, asked, stop| read::text(root, asked);
    /// A range of lines.
    ReadLines => NumberedLines, Reads, |root, asked, stop| read::lines(root, asked, stop);
    /// The whole content.
    WriteText => Replaced, Writes, |root, asked, stop| write::write(root, asked);
    /// Texts in place of others.
    EditFileText => EditOutcome, Writes, |root, asked, stop| edit::edit(root, asked);
    /// A text after edits that are not made.
    EditPreview => EditedText, Reads, |root, asked, stop| edit::preview(root, asked);
    /// A page of a folder.
    ListNames => FolderPage, Reads, |root, asked, stop| folders::list(root, asked);
    /// A folder.
    MakeFolder => FolderMade, Writes, |root, asked, stop| folders::make(root, asked);
    /// A deletion.
    RemovePath => PathRemoved, Frees, |root, asked, stop| folders::remove(root, asked);
    /// Another name.
    RenamePath => Renamed, Writes, |root, asked, stop| folders::rename(root, asked);
    /// The kind of an entry.
    LookAt => LookedAt, Reads, |root, asked, stop| stat::look(root, asked);
    /// A search of contents.
    GrepFiles => FoundLines, Reads, |root, asked, stop| grep::grep(root, asked, stop);
    /// A search of names.
    GlobFiles => FoundPaths, Reads, |root, asked, stop| glob::glob(root, asked, stop);
    /// Where a path leads.
    ResolvePath => ResolvedPath, Reads, |root, asked, stop| root::resolve(root, asked);
    /// A range of bytes of any content.
    ReadBytes => ByteRange, Reads, |root, asked, stop| read::bytes(root, asked);
    /// A file that was not there.
    PutFile => FilePut, Writes, |root, asked, stop| draft::put(root, asked);
    /// The attributes of a path and of the entries below it.
    StatPath => StatEntries, Reads, |root, asked, stop| stat::stat(root, asked, stop);
    /// A range of bytes with the metadata.
    GetBytes => GotBytes, Reads, |root, asked, stop| bytes::get(root, asked);
    /// A file of any content, whole or behind a part.
    PutBytes => BytesPut, Writes, |root, asked, stop| bytes::put(root, asked);
}

impl FileOperation {
    /// Whether it walks a tree, and may so take long.
    pub fn walks(&self) -> bool {
        matches!(self, Self::GrepFiles(_) | Self::GlobFiles(_))
            || matches!(self, Self::RemovePath(asked) if asked.recursive)
            || matches!(self, Self::StatPath(asked) if asked.depth > 1)
    }

    /// Whether an outcome, which a guest may have made up, is one that this operation can have: of its
    /// kind and within its limits.
    pub fn accepts(&self, outcome: &FileOutcome) -> bool {
        let shown =
            |shown: usize, total: u64, limit: usize| shown <= limit && shown as u64 <= total;
        let named = |unread: &Unread| {
            unread.named.len() <= workers::MAX_NAMED && unread.named.len() as u64 <= unread.total
        };
        match (self, outcome) {
            (Self::ReadText(asked), FileOutcome::ReadText(read)) => {
                read.text.len() as u64 <= asked.limit.max(8)
                    && read.next_offset.checked_sub(read.offset) == Some(read.text.len() as u64)
            }
            (Self::ReadBytes(asked), FileOutcome::ReadBytes(read)) => {
                read.bytes.len() as u64 <= asked.limit.min(read.size_bytes)
            }
            (Self::ReadLines(asked), FileOutcome::ReadLines(read)) => {
                read.lines.len() as u64 <= asked.limit
            }
            (Self::ListNames(asked), FileOutcome::ListNames(page)) => {
                shown(page.entries.len(), page.total, asked.limit)
            }
            (Self::GrepFiles(asked), FileOutcome::GrepFiles(found)) => {
                shown(found.shown.len(), found.total, asked.limit) && named(&found.unread)
            }
            (Self::GlobFiles(asked), FileOutcome::GlobFiles(found)) => {
                shown(found.paths.len(), found.total, asked.limit) && named(&found.unread)
            }
            (Self::EditPreview(_), FileOutcome::EditPreview(edited)) => {
                edited.text.len() as u64 <= MAX_EDIT_BYTES
            }
            (Self::PutFile(asked), FileOutcome::PutFile(put)) => put.is_of(asked),
            (Self::StatPath(asked), FileOutcome::StatPath(found)) => {
                let most = if asked.depth == 0 { 1 } else { asked.limit };
                found.entries.len() <= most && found.entries.iter().all(StatEntry::is_sound)
            }
            (Self::GetBytes(asked), FileOutcome::GetBytes(got)) => {
                got.bytes.len() as u64 <= asked.limit.min(got.size_bytes)
                    && got.metadata.len() <= MAX_METADATA
            }
            (Self::PutBytes(asked), FileOutcome::PutBytes(put)) => {
                put.size_bytes == asked.at + asked.content.len() as u64
            }
            _ => self.is_kind_of(outcome),
        }
    }

    /// Size of its encoded outcome, or of its error, at most.
    pub fn max_answer_bytes(&self) -> u64 {
        /// Size of a name, each byte of which may be replaced, and of its entry.
        const NAME_BYTES: u64 = 800;
        /// Size of a file's metadata.
        const METADATA_BYTES: u64 = 128 * 1024;
        let content = match self {
            Self::ReadText(asked) => asked.limit.min(MAX_EDIT_BYTES + 1),
            Self::ReadBytes(asked) => asked.limit.min(MAX_EDIT_BYTES),
            Self::ReadLines(_) => 2 * read::MAX_TEXT_BYTES as u64,
            Self::EditPreview(_) => MAX_EDIT_BYTES,
            Self::ListNames(asked) => asked.limit as u64 * NAME_BYTES,
            Self::GetBytes(asked) => asked.limit.min(MAX_EDIT_BYTES) + METADATA_BYTES,
            Self::GrepFiles(_) | Self::GlobFiles(_) | Self::StatPath(_) => {
                2 * walk::MAX_SHOWN_BYTES as u64
            }
            _ => 0,
        };
        content.saturating_add(64 * 1024).min(MAX_ENCODED_BYTES)
    }
}

/// Size of an encoded operation and of an encoded outcome: the largest file that is edited, twice for the
/// text of an edit and its replacement, and what is around them.
pub const MAX_ENCODED_BYTES: u64 = 2 * MAX_EDIT_BYTES + 1024 * 1024;

/// Encodes an operation or what came of it.
///
/// # Errors
/// `TooLarge`.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, FileError> {
    let refuse = |what: String| FileError::new(FileErrorKind::TooLarge, what);
    let bytes = postcard::to_stdvec(value).map_err(|error| refuse(error.to_string()))?;
    if bytes.len() as u64 > MAX_ENCODED_BYTES {
        return Err(refuse(format!("the operation or its outcome has {} bytes", bytes.len())));
    }
    Ok(bytes)
}

/// Decodes what [`encode`] made. Takes no more memory than a small multiple of the bytes, whatever they say.
///
/// # Errors
/// A sentence, when the bytes are not exactly one value of the type.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(format!("{} bytes are left over", rest.len())),
        Err(error) => Err(error.to_string()),
    }
}
