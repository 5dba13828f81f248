//! This repository as of its last commit, and what the host finds in it by itself.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

/// The tracked files, unpacked on the host too.
pub(super) struct Sources {
    shell: Shell,
    /// Folder that the sources are unpacked in.
    folder: PathBuf,
    /// The archive that goes into the workspace.
    pub(super) archive: PathBuf,
    /// Name of the tree that the last commit has in git.
    pub(super) tree: String,
    /// Contents by path, in the order of git's index.
    files: BTreeMap<String, Vec<u8>>,
}

impl Sources {
    /// Archives the checkout's last commit to `archive` and unpacks it to `folder`.
    pub(super) fn take(shell: &Shell, archive: PathBuf, folder: PathBuf) -> Result<Self> {
        let tree = "HEAD^{tree}";
        let tree = cmd!(shell, "git rev-parse {tree}")
            .quiet()
            .read()
            .context("the demo plays with the last commit of this checkout")?;
        cmd!(shell, "git archive --format tar --output {archive} HEAD").quiet().run()?;
        fs::create_dir(&folder)?;
        cmd!(shell, "tar -x -f {archive} -C {folder}").quiet().run()?;
        let mut files = BTreeMap::new();
        collect(&folder, &folder, &mut files)?;
        let shell = shell.clone();
        shell.change_dir(&folder);
        Ok(Self { shell, folder, archive, tree, files })
    }

    pub(super) fn count(&self) -> usize {
        self.files.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }

    pub(super) fn text(&self, path: &str) -> Result<&str> {
        let bytes = self.files.get(path).with_context(|| format!("{path} is not tracked"))?;
        Ok(std::str::from_utf8(bytes)?)
    }

    fn rust(&self) -> impl Iterator<Item = (&String, &Vec<u8>)> {
        self.files.iter().filter(|(path, _)| path.ends_with(".rs"))
    }

    /// Lines of Rust, as `wc -l` counts them.
    pub(super) fn rust_lines(&self) -> usize {
        self.rust().map(|(_, bytes)| bytes.iter().filter(|byte| **byte == b'\n').count()).sum()
    }

    /// `PATH:LINE` of each line of Rust that holds `needle`.
    pub(super) fn search(&self, needle: &str) -> Vec<String> {
        let mut found = Vec::new();
        for (path, bytes) in self.rust() {
            let text = String::from_utf8_lossy(bytes);
            let lines = text.lines().enumerate().filter(|(_, line)| line.contains(needle));
            found.extend(lines.map(|(at, _)| format!("{path}:{}", at + 1)));
        }
        found
    }

    /// Output of `sha256sum` for the files of Rust below a folder.
    pub(super) fn sums(&self, folder: &str) -> Result<String> {
        let paths = self.rust().map(|(path, _)| path).filter(|path| path.starts_with(folder));
        let sums = cmd!(self.shell, "sha256sum {paths...}").quiet().output()?.stdout;
        Ok(String::from_utf8(sums)?)
    }

    /// Applies a patch; what the file then holds.
    pub(super) fn patched(&self, patch: &Path, path: &str) -> Result<String> {
        cmd!(self.shell, "git apply {patch}").quiet().run()?;
        Ok(fs::read_to_string(self.folder.join(path))?)
    }
}

fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            collect(root, &path, files)?;
            continue;
        }
        let name = path.strip_prefix(root)?.to_str().context("a path is not UTF-8")?.to_owned();
        files.insert(name, fs::read(&path)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_commit_is_taken_and_counted_not_what_lies_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let shell = Shell::new().unwrap();
        shell.change_dir(dir.path());
        fs::create_dir(dir.path().join("src")).unwrap();
        fs::write(dir.path().join("src/a.rs"), "one\ntwo\nno two\n").unwrap();
        fs::write(dir.path().join("b.md"), "two\n").unwrap();
        cmd!(shell, "git init -q").run().unwrap();
        cmd!(shell, "git add -A").run().unwrap();
        let who = ["-c", "user.name=T", "-c", "user.email=t@localhost"];
        cmd!(shell, "git {who...} commit -q -m first").run().unwrap();
        fs::write(dir.path().join("src/a.rs"), "two\n").unwrap();
        fs::write(dir.path().join("untracked.rs"), "two\n").unwrap();

        let (archive, folder) = (dir.path().join("a.tar"), dir.path().join("unpacked"));
        let sources = Sources::take(&shell, archive, folder).unwrap();
        assert_eq!((sources.count(), sources.bytes(), sources.rust_lines()), (2, 19, 3));
        assert_eq!(sources.search("two"), ["src/a.rs:2", "src/a.rs:3"]);
        assert_eq!(sources.text("b.md").unwrap(), "two\n");
        assert!(sources.text("untracked.rs").is_err());
        let sums = sources.sums("src/").unwrap();
        assert!(sums.ends_with("  src/a.rs\n") && sums.lines().count() == 1, "{sums}");
    }
}
