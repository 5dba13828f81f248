//! Files of an ingestion: found below a folder or given alone, and read as text of a known form.
//!
//! All goes through the file engine of the place, a folder of the host, a volume or a guest, so neither a path
//! nor a link leads out of it. What `.gitignore` files exclude is left out, and what is hidden.

use std::{path::Path, sync::Arc, time::Duration};

use hivekeep_file_engine::{
    FileError, FileErrorKind, FileOperation, FileOutcome, GlobFiles, LookAt, LookedAt, Operation,
    PlacePath, ReadBytes, ReadText, ResolvePath, decode, encode,
};
use hivekeep_kernel::{CallCx, Layer, SessionId, ToolError, codes as common};
use hivekeep_ports::PlaceFiles;
use hivekeep_runtime::charset::{self, DecodedText, TextMarkup};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::{codes, html, split::TextForm};

/// Time of an operation in a place.
const OPERATION_LIMIT: Duration = Duration::from_secs(120);
/// Error for a guest that lacks the operation to read bytes.
const OLD_GUEST: &str =
    "the workspace's guest is of an older daemon and reads UTF-8 alone: start it anew";
/// Bytes of a file that are read at a time.
const PIECE_BYTES: u64 = 4 * 1024 * 1024;

/// File of an ingestion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceFile {
    /// Path from the folder that is ingested; of a single file, as it was given.
    pub(crate) source: String,
    /// Path from the place's root.
    path: String,
}

impl SourceFile {
    /// Path from the place's root.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}

/// Files that were found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundFiles {
    /// Path of the folder or file from the place's root, without links.
    pub(crate) top: String,
    pub(crate) files: Vec<SourceFile>,
    /// True if one file was given.
    pub(crate) single: bool,
    /// Paths that could not be looked at, each with the reason.
    pub(crate) unread: Vec<String>,
    pub(crate) unread_total: u64,
}

impl FoundFiles {
    /// Refuses to ingest nothing.
    ///
    /// # Errors
    /// `nothing_to_ingest`.
    pub(crate) fn not_none(self, path: &str) -> Result<Self, ToolError> {
        if !self.files.is_empty() {
            return Ok(self);
        }
        let message = format!("`{path}` has no files that are not hidden or ignored");
        Err(ToolError::new(Layer::Actor, codes::NOTHING_TO_INGEST, message)
            .next("fs.glob lists what is there"))
    }
}

/// Contents of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SourceText {
    Text(String, TextForm),
    /// A PDF, as it is.
    Pdf(Vec<u8>),
    /// Why the file has no text, which is not a failure.
    NoText(String),
}

/// Contents of a file, and what of them was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadSource {
    pub(crate) text: SourceText,
    pub(crate) partly: Option<String>,
}

impl From<SourceText> for ReadSource {
    fn from(text: SourceText) -> Self {
        Self { text, partly: None }
    }
}

/// Largest files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileLimits {
    pub(crate) text_bytes: u64,
    pub(crate) pdf_bytes: u64,
}

/// Bytes of a file, or its size if it is too large.
enum FileBytes {
    All(Vec<u8>),
    Larger(u64),
}

/// Why a file is not read.
#[derive(Debug)]
pub(crate) enum ReadFailure {
    /// Failure of this file alone; others can be read.
    File(String),
    /// Failure of the place.
    Place(ToolError),
}

impl From<ToolError> for ReadFailure {
    fn from(error: ToolError) -> Self {
        if is_of_path(&error) { Self::File(error.message) } else { Self::Place(error) }
    }
}

/// Place whose files are read on a session's behalf. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SourcePlace {
    pub(crate) files: Arc<dyn PlaceFiles>,
    pub(crate) session: SessionId,
    /// Lasting name of the place.
    pub(crate) id: String,
    /// Cancels requests to the place.
    pub(crate) stop: CancellationToken,
}

impl SourcePlace {
    /// Whether the place may be one that is not there yet.
    pub(crate) fn may_come(&self, error: &ToolError) -> bool {
        self.id.starts_with("ws_") && error.is(common::PLACE_UNKNOWN)
    }

    async fn ask<O: Operation>(&self, operation: O) -> Result<O::Outcome, ToolError> {
        let span = tracing::info_span!("ingest", place = %self.id);
        let cx = CallCx::internal(self.session, OPERATION_LIMIT, self.stop.clone(), span);
        let wrong = |why: String| ToolError::internal(format!("a file operation: {why}"));
        let operation: FileOperation = operation.into();
        let encoded = encode(&operation).map_err(|error| wrong(error.message))?;
        let outcome: FileOutcome =
            decode(&self.files.run(&cx, &self.id, encoded).await?).map_err(wrong)?;
        O::outcome_of(outcome).ok_or_else(|| wrong("an outcome of another".to_owned()))
    }

    /// Finds the files of a path, in order of their paths.
    ///
    /// # Errors
    /// `ingestion_path_refused`; `ingestion_too_large` for more than `most`; those of the place.
    pub(crate) async fn find(&self, path: &str, most: usize) -> Result<FoundFiles, ToolError> {
        if self.look(path).await? == LookedAt::Nothing {
            let error =
                FileError::new(FileErrorKind::NotFound, format!("there is nothing at `{path}`"));
            return Err(path_refused(error.message));
        }
        let resolved = self.ask(ResolvePath { path: path.to_owned() }).await;
        let top = resolved.map_err(refused)?.path;
        if top.split('/').any(|name| name == "..") {
            return Err(path_refused(format!("`{path}` ends in `..`: name the folder itself")));
        }
        if self.look(&top).await? == LookedAt::File {
            // A guest's paths are absolute, and are shown so.
            let given = PlacePath::parse(path).ok().filter(|_| !top.starts_with('/'));
            let source = given.map_or_else(|| top.clone(), |path| path.to_string());
            let files = vec![SourceFile { source, path: top.clone() }];
            return Ok(FoundFiles { top, files, single: true, ..FoundFiles::default() });
        }
        let all = GlobFiles {
            path: top.clone(),
            pattern: "*".to_owned(),
            gitignore: true,
            limit: usize::MAX,
        };
        let found = self.ask(all).await.map_err(refused)?;
        let mut files: Vec<_> = found.paths.iter().filter_map(|path| source(&top, path)).collect();
        if found.total > found.paths.len() as u64 || files.len() > most {
            let message = format!("`{path}` has {} files, {most} are allowed", found.total);
            return Err(ToolError::new(Layer::Actor, codes::INGESTION_TOO_LARGE, message)
                .next(
                    "ingest a smaller folder, or ask the operator for a higher `ingest.max_files`",
                )
                .detail("files", found.total));
        }
        files.sort_by(|one, other| one.source.cmp(&other.source));
        Ok(FoundFiles {
            top,
            files,
            single: false,
            unread: found.unread.named,
            unread_total: found.unread.total,
        })
    }

    async fn look(&self, path: &str) -> Result<LookedAt, ToolError> {
        self.ask(LookAt { path: path.to_owned() }).await.map_err(refused)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The reason, for people; or what is wrong with the place.
    pub(crate) async fn read(
        &self,
        file: &SourceFile,
        limits: FileLimits,
    ) -> Result<ReadSource, ReadFailure> {
        if extension(&file.source) == "pdf" {
            let most = limits.pdf_bytes;
            return match self.bytes(&file.path, most).await? {
                FileBytes::All(bytes) => Ok(SourceText::Pdf(bytes).into()),
                FileBytes::Larger(size_bytes) => Err(ReadFailure::File(larger(size_bytes, most))),
            };
        }
        let most = limits.text_bytes;
        let read = ReadText { path: file.path.clone(), offset: 0, limit: most + 1 };
        let text = match self.ask(read).await {
            Ok(read) if read.size_bytes > most => {
                return Err(ReadFailure::File(larger(read.size_bytes, most)));
            }
            Ok(read) => read.text.into_bytes(),
            Err(error) if error.is(common::NOT_UTF8) => match self.bytes(&file.path, most).await? {
                FileBytes::All(bytes) => bytes,
                FileBytes::Larger(size_bytes) => {
                    let why = format!("it is not UTF-8 text, and {}", larger(size_bytes, most));
                    return Ok(SourceText::NoText(why).into());
                }
            },
            Err(error) => return Err(error.into()),
        };
        let source = file.source.clone();
        let read = spawn_blocking(move || contents(&source, &text));
        read.await.map_err(|panic| ReadFailure::File(format!("it cannot be read: {panic}")))
    }

    /// Bytes of a whole file of at most `most`.
    async fn bytes(&self, path: &str, most: u64) -> Result<FileBytes, ReadFailure> {
        let mut bytes = Vec::new();
        loop {
            let offset = bytes.len() as u64;
            let read = ReadBytes { path: path.to_owned(), offset, limit: PIECE_BYTES };
            let piece =
                self.ask(read).await.map_err(|error| match error.is(common::INVALID_INPUT) {
                    true => ReadFailure::File(OLD_GUEST.to_owned()),
                    false => error.into(),
                })?;
            if piece.size_bytes > most || offset + piece.bytes.len() as u64 > most {
                return Ok(FileBytes::Larger(piece.size_bytes));
            }
            if piece.bytes.is_empty() {
                return Ok(FileBytes::All(bytes));
            }
            bytes.extend_from_slice(&piece.bytes);
        }
    }
}

fn larger(size_bytes: u64, most: u64) -> String {
    format!("it has {size_bytes} bytes, {most} are allowed")
}

/// File of a path that a walk showed; `None` for what is hidden below the folder.
fn source(top: &str, path: &str) -> Option<SourceFile> {
    let below = match top {
        "." => path,
        top => path.strip_prefix(top.trim_end_matches('/')).unwrap_or(path).trim_start_matches('/'),
    };
    let hidden = below.split('/').any(|name| name.starts_with('.'));
    (!hidden).then(|| SourceFile { source: below.to_owned(), path: path.to_owned() })
}

/// Extension of a file's name in lower case, or nothing.
fn extension(source: &str) -> String {
    let extension = Path::new(source).extension();
    extension.map(|it| it.to_string_lossy().to_lowercase()).unwrap_or_default()
}

/// Text of a file in the form that its name tells.
fn contents(source: &str, bytes: &[u8]) -> ReadSource {
    let none = |why: &str| SourceText::NoText(why.to_owned()).into();
    let extension = extension(source);
    let markup = match extension.as_str() {
        "html" | "htm" | "xhtml" => TextMarkup::Html,
        _ => TextMarkup::Other,
    };
    // Text beyond ASCII that is valid UTF-8 is read as UTF-8, whatever the file declares.
    let is_utf8 = !bytes.is_ascii() && std::str::from_utf8(bytes).is_ok();
    let told = is_utf8.then(|| charset::named("utf-8")).flatten();
    let Some(DecodedText { text, encoding, malformed }) = charset::decode(bytes, told, markup)
    else {
        return none("it is not UTF-8 text, and names no other encoding");
    };
    if text.contains('\0') {
        return none("it is not text: it has NUL characters");
    }
    if text.trim().is_empty() {
        return none("it is blank");
    }
    let text = match text.contains('\r') {
        true => text.replace("\r\n", "\n"),
        false => text.into_owned(),
    };
    let partly = malformed.then(|| format!("some of its bytes are not characters of {encoding}"));
    ReadSource { text: in_form(&extension, text), partly }
}

fn in_form(extension: &str, text: String) -> SourceText {
    match extension {
        "html" | "htm" | "xhtml" => SourceText::Text(html::text(&text), TextForm::Markdown),
        "md" | "markdown" | "mdx" => SourceText::Text(text, TextForm::Markdown),
        "" | "txt" | "text" | "log" | "csv" | "tsv" | "rst" | "adoc" | "org" | "json" | "lock" => {
            SourceText::Text(text, TextForm::Plain)
        }
        _ => SourceText::Text(text, TextForm::Code),
    }
}

/// Whether an error is of one path, whatever else the place holds.
fn is_of_path(error: &ToolError) -> bool {
    error.is_any(&[
        common::INVALID_PATH,
        common::OUTSIDE_PLACE,
        common::NOT_FOUND,
        common::PERMISSION_DENIED,
        common::NOT_A_DIRECTORY,
        common::IS_A_DIRECTORY,
        common::NOT_A_FILE,
        common::TOO_LARGE,
        common::FILE_FAILED,
    ])
}

fn path_refused(message: String) -> ToolError {
    ToolError::new(Layer::Actor, codes::INGESTION_PATH_REFUSED, message)
        .next("fs.list shows what the place holds")
}

/// Turns an error of a path into a refusal; errors of its place stay as they are.
fn refused(error: ToolError) -> ToolError {
    if is_of_path(&error) { path_refused(error.message) } else { error }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::tests::places::FolderPlaces;

    fn place(folder: &Path) -> SourcePlace {
        SourcePlace {
            files: Arc::new(FolderPlaces::of("docs", folder)),
            session: SessionId::new(),
            id: "docs".to_owned(),
            stop: CancellationToken::new(),
        }
    }

    const LIMITS: FileLimits = FileLimits { text_bytes: 100, pdf_bytes: 100 };

    #[tokio::test]
    async fn what_is_hidden_ignored_or_outside_is_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let outside = tempfile::tempdir().expect("another");
        fs::write(outside.path().join("secret"), "s").expect("writes");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("docs/deep")).expect("made");
        for (name, text) in [
            (".gitignore", "*.tmp\n"),
            ("docs/a.md", "a"),
            ("docs/deep/b.rs", "b"),
            ("docs/c.tmp", "c"),
            ("docs/.env", "K=1"),
        ] {
            fs::write(at(name), text).expect("writes");
        }
        symlink(outside.path().join("secret"), at("docs/link.md")).expect("links");
        let place = place(folder.path());
        let found = place.find("docs", 10).await.expect("found");
        let sources: Vec<_> = found.files.iter().map(|file| file.source.as_str()).collect();
        // The ignore file is above the folder that is walked.
        assert_eq!(sources, ["a.md", "c.tmp", "deep/b.rs", "link.md"]);
        let link = found.files.iter().find(|file| file.source == "link.md").expect("there");
        let read = place.read(link, LIMITS).await;
        assert!(matches!(read, Err(ReadFailure::File(_))), "it leads out: {read:?}");
        let all = place.find(".", 10).await.expect("found");
        assert_eq!(all.files.len(), 3);
        for path in ["nothing", "../x"] {
            let refused = place.find(path, 10).await.expect_err(path);
            assert_eq!(refused.code, "ingestion_path_refused");
        }
        assert_eq!(place.find(".", 2).await.expect_err("many").code, "ingestion_too_large");
        let single = place.find("docs/a.md", 10).await.expect("found");
        assert!(single.single && single.files[0].source == "docs/a.md");
        let elsewhere = SourcePlace { id: "other".to_owned(), ..place };
        assert_eq!(elsewhere.find(".", 10).await.expect_err("no place").code, "place_unknown");
    }

    #[tokio::test]
    async fn contents_have_their_form_and_their_limits() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = place(folder.path());
        let read = async |name: &str, bytes: &[u8]| {
            fs::write(folder.path().join(name), bytes).expect("writes");
            let file = SourceFile { source: name.to_owned(), path: name.to_owned() };
            place.read(&file, LIMITS).await
        };
        let text = |text: &str, form| {
            let text = SourceText::Text(text.to_owned(), form);
            Some(ReadSource { text, partly: None })
        };
        assert_eq!(read("a.md", b"x\r\ny").await.ok(), text("x\ny", TextForm::Markdown));
        assert_eq!(read("a.HTML", b"<p>x").await.ok(), text("x", TextForm::Markdown));
        assert_eq!(read("a.rs", b"fn").await.ok(), text("fn", TextForm::Code));
        assert_eq!(read("a.md", b"\xef\xbb\xbf# x").await.ok(), text("# x", TextForm::Markdown));
        for (name, bytes, read_as) in [
            ("a.html", &b"<meta charset=windows-1251><p>\xcf\xf0"[..], "Пр"),
            ("b.htm", b"<meta charset=Shift_JIS><p>\x93\xfa", "日"),
            ("c.xhtml", b"<?xml version='1.0' encoding='koi8-r'?><p>\xd0", "п"),
            ("d.html", b"<meta charset=iso-2022-jp>\x1b$BF|\x1b(B", "日"),
            ("e.html", "<meta charset=windows-1251><p>é".as_bytes(), "é"),
            ("f.txt", b"\xff\xfe\x3f\x04\x0a\x00", "п\n"),
            ("g.txt", b"\xfe\xff\x04\x3f", "п"),
            ("h.xml", b"<?xml encoding='latin1'?>\xe9", "<?xml encoding='latin1'?>é"),
        ] {
            let Ok(ReadSource { text: SourceText::Text(text, _), partly: None }) =
                read(name, bytes).await
            else {
                panic!("{name}")
            };
            assert_eq!(text, read_as, "{name}");
        }
        let partly = read("a.html", b"<meta charset=shift_jis>a\x93").await.expect("read").partly;
        assert_eq!(partly.as_deref(), Some("some of its bytes are not characters of Shift_JIS"));
        for (name, bytes) in [("a", &b"\xff"[..]), ("a", b"x\0"), ("a.md", b" \n")] {
            let read = read(name, bytes).await.expect("it is not a failure");
            assert!(matches!(read.text, SourceText::NoText(_)), "{bytes:?}");
        }
        assert_eq!(
            read("a.pdf", b"%PDF\xff").await.ok(),
            Some(SourceText::Pdf(b"%PDF\xff".to_vec()).into())
        );
        let binary = read("a.png", &[0xff; 101]).await.expect("it is not a failure");
        assert!(matches!(binary.text, SourceText::NoText(_)), "{binary:?}");
        for (name, size) in [("a.md", 101), ("a.pdf", 101)] {
            let failed = read(name, &vec![b'x'; size]).await;
            assert!(matches!(failed, Err(ReadFailure::File(_))), "{name} of {size}: {failed:?}");
        }
    }
}
