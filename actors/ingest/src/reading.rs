//! Files of an ingestion: found below a folder or given alone, and read as text of a known form.
//!
//! Everything is opened beneath the handle of the place, so neither a path nor a link leads out of it. What
//! `.gitignore` files exclude is left out, and what is hidden.

use std::path::Path;

use hivekeep_file_engine::{
    FileError, FileErrorKind, FileOperation, FileOutcome, FileRoot, GlobFiles, LookAt, LookedAt,
    PlacePath, ResolvePath, read_bytes, run,
};
use hivekeep_kernel::{Layer, ToolError, ports::PlaceFolder};

use crate::{codes, html, split::TextForm};

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
    /// What could not be looked at, each with the reason.
    pub(crate) unread: Vec<String>,
    pub(crate) unread_total: u64,
}

/// Contents of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SourceText {
    Text(String, TextForm),
    /// Why it has no text: it is no failure.
    NoText(&'static str),
}

/// Place whose files are read.
pub(crate) struct SourcePlace(FileRoot);

impl SourcePlace {
    /// Opens the folder of a place. Blocks.
    ///
    /// # Errors
    /// `ingestion_place_refused`.
    pub(crate) fn open(place: &PlaceFolder) -> Result<Self, ToolError> {
        let opened = FileRoot::folder(&place.folder).map_err(|error| {
            let message = format!("the folder of the place cannot be opened: {error}");
            ToolError::new(Layer::Actor, codes::INGESTION_PLACE_REFUSED, message)
                .next("ask the operator to make it")
        });
        opened.map(Self)
    }

    /// Finds the files of a path, in order of their paths. Blocks.
    ///
    /// # Errors
    /// `ingestion_path_refused`; `ingestion_too_large` for more than `most`; `nothing_to_ingest`.
    pub(crate) fn find(
        &self,
        path: &str,
        most: usize,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<FoundFiles, ToolError> {
        let parsed = PlacePath::parse(path).map_err(refused)?;
        if self.look(path)? == LookedAt::Nothing {
            let error =
                FileError::new(FileErrorKind::NotFound, format!("there is nothing at `{parsed}`"));
            return Err(refused(error));
        }
        let top = self.resolve(path)?;
        if top.split('/').any(|name| name == "..") {
            let why = format!("`{parsed}` ends in `..`: name the folder itself");
            return Err(refused(FileError::new(FileErrorKind::InvalidPath, why)));
        }
        if self.look(&top)? == LookedAt::File {
            let files = vec![SourceFile { source: parsed.to_string(), path: top.clone() }];
            return Ok(FoundFiles { top, files, single: true, ..FoundFiles::default() });
        }
        let all = GlobFiles {
            path: top.clone(),
            pattern: "*".to_owned(),
            gitignore: true,
            limit: usize::MAX,
        };
        let FileOutcome::GlobFiles(found) =
            run(&self.0, &FileOperation::from(all), stop).map_err(refused)?
        else {
            return Err(ToolError::internal("an outcome of another operation"));
        };
        let mut files: Vec<_> = found.paths.iter().filter_map(|path| source(&top, path)).collect();
        if found.total > found.paths.len() as u64 || files.len() > most {
            let message = format!("`{parsed}` has {} files, {most} are allowed", found.total);
            return Err(ToolError::new(Layer::Actor, codes::INGESTION_TOO_LARGE, message)
                .next(
                    "ingest a smaller folder, or ask the operator for a higher `ingest.max_files`",
                )
                .detail("files", found.total));
        }
        files.sort_by(|one, other| one.source.cmp(&other.source));
        if files.is_empty() {
            let message = format!("`{parsed}` has no files that are not hidden or ignored");
            return Err(ToolError::new(Layer::Actor, codes::NOTHING_TO_INGEST, message)
                .next("fs.glob lists what is there"));
        }
        Ok(FoundFiles {
            top,
            files,
            single: false,
            unread: found.unread.named,
            unread_total: found.unread.total,
        })
    }

    fn look(&self, path: &str) -> Result<LookedAt, ToolError> {
        let look = FileOperation::from(LookAt { path: path.to_owned() });
        match run(&self.0, &look, &|| false).map_err(refused)? {
            FileOutcome::LookAt(looked) => Ok(looked),
            _ => Err(ToolError::internal("an outcome of another operation")),
        }
    }

    /// The path without links and dots, so that a file has one name.
    fn resolve(&self, path: &str) -> Result<String, ToolError> {
        let resolve = FileOperation::from(ResolvePath { path: path.to_owned() });
        match run(&self.0, &resolve, &|| false).map_err(refused)? {
            FileOutcome::ResolvePath(resolved) => Ok(resolved.path),
            _ => Err(ToolError::internal("an outcome of another operation")),
        }
    }

    /// Reads a file of at most `max_bytes`. Blocks.
    ///
    /// # Errors
    /// The reason, for people.
    pub(crate) fn read(&self, file: &SourceFile, max_bytes: u64) -> Result<SourceText, String> {
        let path = PlacePath::parse(&file.path).map_err(|error| error.message)?;
        let range = read_bytes(&self.0, &path, 0, max_bytes + 1).map_err(|error| error.message)?;
        if range.bytes.len() as u64 > max_bytes {
            return Err(format!("it has {} bytes, {max_bytes} are allowed", range.size_bytes));
        }
        contents(&file.source, range.bytes)
    }
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

/// Reads bytes by the name of their file.
fn contents(source: &str, bytes: Vec<u8>) -> Result<SourceText, String> {
    let extension = Path::new(source).extension().map(|it| it.to_string_lossy().to_lowercase());
    let extension = extension.as_deref().unwrap_or_default();
    if extension == "pdf" {
        return Err("PDF is not read".to_owned());
    }
    let Ok(text) = String::from_utf8(bytes) else {
        return Ok(SourceText::NoText("it is not UTF-8 text"));
    };
    if text.contains('\0') {
        return Ok(SourceText::NoText("it is not text"));
    }
    if text.trim().is_empty() {
        return Ok(SourceText::NoText("it is blank"));
    }
    let text = match text.contains('\r') {
        true => text.replace("\r\n", "\n"),
        false => text,
    };
    Ok(match extension {
        "html" | "htm" | "xhtml" => SourceText::Text(html::text(&text), TextForm::Markdown),
        "md" | "markdown" | "mdx" => SourceText::Text(text, TextForm::Markdown),
        "" | "txt" | "text" | "log" | "csv" | "tsv" | "rst" | "adoc" | "org" | "json" | "lock" => {
            SourceText::Text(text, TextForm::Plain)
        }
        _ => SourceText::Text(text, TextForm::Code),
    })
}

fn refused(error: FileError) -> ToolError {
    ToolError::new(Layer::Actor, codes::INGESTION_PATH_REFUSED, error.message)
        .next("fs.list shows what the place holds")
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn place(folder: &Path) -> SourcePlace {
        SourcePlace::open(&PlaceFolder { folder: folder.to_owned(), read_only: true })
            .expect("it opens")
    }

    #[test]
    fn what_is_hidden_ignored_or_outside_is_not_read() {
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
        let found = place.find("docs", 10, &|| false).expect("found");
        let sources: Vec<_> = found.files.iter().map(|file| file.source.as_str()).collect();
        // The ignore file is above the folder that is walked.
        assert_eq!(sources, ["a.md", "c.tmp", "deep/b.rs", "link.md"]);
        let link = found.files.iter().find(|file| file.source == "link.md").expect("there");
        assert!(place.read(link, 100).is_err(), "it leads out");
        let all = place.find(".", 10, &|| false).expect("found");
        assert_eq!(all.files.len(), 3);
        for (path, code) in
            [("nothing", "ingestion_path_refused"), ("../x", "ingestion_path_refused")]
        {
            assert_eq!(place.find(path, 10, &|| false).expect_err(path).code, code);
        }
        assert_eq!(place.find(".", 2, &|| false).expect_err("many").code, "ingestion_too_large");
        let single = place.find("docs/a.md", 10, &|| false).expect("found");
        assert!(single.single && single.files[0].source == "docs/a.md");
    }

    #[test]
    fn contents_have_their_form_and_their_limits() {
        let read = |name: &str, bytes: &[u8]| contents(name, bytes.to_vec());
        assert_eq!(
            read("a.md", b"x\r\ny"),
            Ok(SourceText::Text("x\ny".to_owned(), TextForm::Markdown))
        );
        assert_eq!(
            read("a.HTML", b"<p>x"),
            Ok(SourceText::Text("x".to_owned(), TextForm::Markdown))
        );
        assert!(matches!(read("a.rs", b"fn"), Ok(SourceText::Text(_, TextForm::Code))));
        assert!(matches!(read("a", b"\xff"), Ok(SourceText::NoText(_))));
        assert!(matches!(read("a", b"x\0"), Ok(SourceText::NoText(_))));
        assert!(matches!(read("a.md", b" \n"), Ok(SourceText::NoText(_))));
        assert!(read("a.pdf", b"%PDF").is_err());
    }
}
