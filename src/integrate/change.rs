//! Change of one file: read, shown as a diff, and written whole.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
};

use similar::TextDiff;

/// Longest file that is edited.
const MOST_BYTES: u64 = 8 << 20;
/// Suffix of the copy of a file as it was.
const BACKUP: &str = "hivekeep-backup";

/// The reason why a client's files stay as they are.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// `HOME` is not set to an absolute path.
    #[error("HOME is not set to an absolute path")]
    NoHome,
    /// The file is none that can be edited.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl Refused {
    pub(super) fn not_text(path: &Path) -> Self {
        Self::file(path, "is not a path in UTF-8")
    }

    fn file(path: &Path, why: impl Into<String>) -> Self {
        Self::File { path: path.to_owned(), why: why.into() }
    }

    fn io(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), source }
    }
}

/// Text of a file; none where there is no file.
///
/// # Errors
/// When it is a link or no plain file, too long, or no text.
pub(super) fn read(path: &Path) -> Result<Option<String>, Refused> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Refused::io(path)(error)),
    };
    if meta.is_symlink() {
        return Err(Refused::file(path, "is a symbolic link: edit the file that it leads to"));
    }
    if !meta.is_file() || meta.len() > MOST_BYTES {
        return Err(Refused::file(path, "is no plain file of at most 8 MiB"));
    }
    fs::read_to_string(path).map(Some).map_err(Refused::io(path))
}

/// A file before and after its change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    path: PathBuf,
    before: Option<String>,
    after: Option<String>,
    /// Keep a copy of the file as it was.
    backup: bool,
    /// Folder that is removed with its last file.
    folder: Option<PathBuf>,
}

impl Change {
    /// The change of a file by an edit; a missing file counts as an empty text.
    ///
    /// # Errors
    /// When the file cannot be read, or the edit refuses it.
    pub(super) fn edit(
        path: &Path,
        edit: impl FnOnce(&str) -> Result<Option<String>, String>,
    ) -> Result<Self, Refused> {
        let before = read(path)?;
        let text = before.as_deref().unwrap_or_default();
        let after = edit(text).map_err(|why| Refused::file(path, why))?;
        // An edit that leaves a missing file empty makes no file.
        let after = after.filter(|after| before.is_some() || !after.is_empty());
        let backup = before.is_some();
        Ok(Self { path: path.to_owned(), before, after, backup, folder: None })
    }

    /// The removal of a file that hivekeep wrote, and of folders up to `folder` that are empty then. A copy
    /// of the file is kept where somebody has changed it.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn removal(path: &Path, ours: &str, folder: &Path) -> Result<Self, Refused> {
        let change = Self::edit(path, |_| Ok(None))?;
        let backup = change.before.as_deref().is_some_and(|before| before != ours);
        Ok(Self { backup, folder: Some(folder.to_owned()), ..change })
    }

    /// False when the file stays as it is.
    pub(super) fn is_any(&self) -> bool {
        self.before != self.after
    }

    /// The change as a unified diff.
    pub fn diff(&self) -> String {
        let none = "/dev/null".to_owned();
        let name = |text: &Option<String>| {
            text.as_ref().map_or(none.clone(), |_| self.path.display().to_string())
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (before, after) = (text(&self.before), text(&self.after));
        TextDiff::from_lines(&before, &after)
            .unified_diff()
            .header(&name(&self.before), &name(&self.after))
            .to_string()
    }

    /// Makes the change: the file as it was is beside it first, and the new one takes its place
    /// in one step.
    ///
    /// # Errors
    /// When the file is another one meanwhile, or cannot be written.
    pub fn apply(&self) -> Result<(), Refused> {
        if read(&self.path)? != self.before {
            return Err(Refused::file(
                &self.path,
                "was changed meanwhile; nothing was written to it",
            ));
        }
        let folder = self.path.parent().ok_or_else(|| Refused::file(&self.path, "is a root"))?;
        fs::create_dir_all(folder).map_err(Refused::io(folder))?;
        if let Some(before) = self.before.as_ref().filter(|_| self.backup) {
            self.write(&self.backup(), before)?;
        }
        match &self.after {
            Some(after) => self.write(&self.path, after)?,
            None => fs::remove_file(&self.path).map_err(Refused::io(&self.path))?,
        }
        sync(folder)?;
        self.remove_empty_folders();
        Ok(())
    }

    fn remove_empty_folders(&self) {
        let Some(last) = &self.folder else { return };
        for folder in self.path.ancestors().skip(1).take_while(|it| it.starts_with(last)) {
            // A folder that is not empty stays, and those above it.
            if fs::remove_dir(folder).is_err() {
                return;
            }
        }
    }

    /// Path of the copy of the file as it was.
    pub fn backup(&self) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".");
        name.push(BACKUP);
        self.path.with_file_name(name)
    }

    /// True when a copy of the file as it was is kept.
    pub fn has_backup(&self) -> bool {
        self.backup
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), Refused> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        let write = || {
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(text.as_bytes())?;
            if let Ok(meta) = fs::metadata(&self.path) {
                file.as_file().set_permissions(meta.permissions())?;
            }
            file.as_file().sync_all()?;
            file.persist(path).map_err(|error| error.error)?;
            Ok(())
        };
        write().map_err(Refused::io(path))
    }
}

fn sync(folder: &Path) -> Result<(), Refused> {
    hivekeep_fs::sync_folder(folder).map_err(Refused::io(folder))
}
