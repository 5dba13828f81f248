//! Test fixture: repositories in a temporary folder.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicI64, Ordering},
};

use async_trait::async_trait;
use hivekeep_kernel::{Layer, Progress, ToolError, WorkspaceId};

use crate::{
    merge::api::{ConflictFile, MergeResult, MergeStrategy, SourceMerge, SourceStatus},
    merge::{MergeRequest, MergeSide, Merges, Repository, merge},
    run::GitDone,
};

pub(super) const STRATEGIES: [MergeStrategy; 3] =
    [MergeStrategy::Sequential, MergeStrategy::BranchPerSource, MergeStrategy::CherryPick];

/// Folder of repositories.
pub(super) struct Place {
    root: tempfile::TempDir,
    pub(super) merges: Merges,
    target_id: WorkspaceId,
}

impl Place {
    /// Makes a folder with a repository `target` that has one commit.
    pub(super) fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder");
        let place = Self { root, merges: Merges::default(), target_id: WorkspaceId::new() };
        for folder in ["home", "spool"] {
            fs::create_dir(place.path(folder)).expect("made");
        }
        place.init("target");
        place.commit("target", "README", "hello\n");
        place
    }

    pub(super) fn init(&self, name: &str) {
        fs::create_dir(self.path(name)).expect("made");
        self.git(name, &["init", "-q", "-b", "main"]);
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Makes a source as the target is now, as a fork's disk is.
    pub(super) fn fork(&self, name: &str) {
        let mut copy = Command::new("cp");
        copy.arg("-a").arg(self.path("target")).arg(self.path(name));
        assert!(copy.status().expect("cp runs").success());
    }

    pub(super) fn try_git(&self, name: &str, args: &[&str]) -> GitDone {
        run(&self.path("home"), &self.path(name), args, &[]).expect("git runs")
    }

    /// Runs git as a person who works there.
    pub(super) fn git(&self, name: &str, args: &[&str]) -> String {
        let person = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"];
        let done = self.try_git(name, &[&person[..], args].concat());
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.ok(), "{name}: {args:?}: {said}{}", String::from_utf8_lossy(&done.stderr));
        said.trim_end().to_owned()
    }

    pub(super) fn write(&self, name: &str, file: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name).join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, content).expect("written");
    }

    pub(super) fn read(&self, name: &str, file: &str) -> String {
        fs::read_to_string(self.path(name).join(file)).expect("read")
    }

    /// Commits a file; the message names both.
    pub(super) fn commit(&self, name: &str, file: &str, content: impl AsRef<[u8]>) -> String {
        self.write(name, file, content);
        self.git(name, &["add", "-A"]);
        self.git(name, &["commit", "-q", "--allow-empty", "-m", &format!("{name}: {file}")]);
        self.head(name)
    }

    /// Adds commits by `git fast-import`, one per content of a file, and checks them out.
    pub(super) fn import(&self, name: &str, commits: impl Iterator<Item = (String, String)>) {
        let mut stream = String::new();
        for (index, (file, content)) in commits.enumerate() {
            let from = if index == 0 { "from refs/heads/main^0\n" } else { "" };
            let message = format!("{name}: {file}");
            stream += &format!(
                "commit refs/heads/main\ncommitter Ada <ada@example.org> {} +0000\n\
                 data {}\n{message}\n{from}M 100644 inline {file}\ndata {}\n{content}\n",
                1_700_000_000 + index,
                message.len(),
                content.len(),
            );
        }
        let mut import = Command::new("git");
        import.args(["fast-import", "--quiet"]).current_dir(self.path(name)).stdin(Stdio::piped());
        let mut import = import.spawn().expect("git runs");
        let written = import.stdin.take().expect("piped").write_all(stream.as_bytes());
        assert!(written.is_ok() && import.wait().expect("ended").success());
        self.git(name, &["reset", "-q", "--hard"]);
    }

    /// Checks that the target is as it was at a commit, apart from branches that a merge made.
    pub(super) fn reset(&self, name: &str, head: &str) {
        self.git(name, &["reset", "-q", "--hard", head]);
        let branches =
            self.git(name, &["for-each-ref", "--format=%(refname)", "refs/heads/hivekeep/"]);
        for branch in branches.lines() {
            self.git(name, &["update-ref", "-d", branch]);
        }
    }

    pub(super) fn head(&self, name: &str) -> String {
        self.git(name, &["rev-parse", "HEAD"])
    }

    /// First lines of all messages in the history, sorted.
    pub(super) fn subjects(&self, name: &str) -> Vec<String> {
        let said = self.git(name, &["log", "--format=%s"]);
        let mut subjects: Vec<_> = said.lines().map(str::to_owned).collect();
        subjects.sort();
        subjects
    }

    pub(super) fn request(&self, strategy: MergeStrategy) -> MergeRequest {
        MergeRequest {
            path: String::new(),
            strategy,
            commit_message: None,
            commit_uncommitted: false,
            keep_going: false,
        }
    }

    pub(super) fn local(&self, name: &str) -> Local {
        Local {
            home: self.path("home"),
            dir: self.path(name),
            calls: AtomicI64::new(0),
            left: AtomicI64::new(i64::MAX),
            lie: None,
            head: None,
            spoil: AtomicBool::new(false),
        }
    }

    pub(super) fn side(&self, name: &str, local: Local) -> MergeSide {
        let id = if name == "target" { self.target_id } else { WorkspaceId::new() };
        MergeSide { id, name: name.to_owned(), repository: Ok(Box::new(local)) }
    }

    pub(super) async fn merge_sides(
        &self,
        request: &MergeRequest,
        target: &MergeSide,
        sources: &[MergeSide],
    ) -> Result<MergeResult, ToolError> {
        let running = self.merges.begin(target.id).expect("no other");
        let spool = self.path("spool");
        let merged = merge(request, &running, target, sources, &spool, &Progress::default()).await;
        assert_eq!(fs::read_dir(spool).expect("listed").count(), 0, "the host keeps nothing");
        merged
    }

    pub(super) async fn try_merge(
        &self,
        request: &MergeRequest,
        sources: &[&str],
    ) -> Result<MergeResult, ToolError> {
        let target = self.side("target", self.local("target"));
        let all: Vec<_> = sources.iter().map(|name| self.side(name, self.local(name))).collect();
        let merged = self.merge_sides(request, &target, &all).await;
        for name in sources.iter().chain(&["target"]) {
            self.nothing_is_left(name);
        }
        merged
    }

    pub(super) async fn merge(&self, strategy: MergeStrategy, sources: &[&str]) -> MergeResult {
        self.try_merge(&self.request(strategy), sources).await.expect("a result")
    }

    /// Checks that nothing of a merge is left in a repository, and that it is sound.
    pub(super) fn nothing_is_left(&self, name: &str) {
        let Ok(entries) = fs::read_dir(self.path(name).join(".git")) else { return };
        for entry in entries {
            let entry = entry.expect("listed").file_name();
            assert!(!entry.to_string_lossy().contains("hivekeep"), "{name}: {entry:?}");
        }
        assert!(!self.path(name).join(".git/worktrees").exists(), "{name}");
        assert_eq!(self.git(name, &["for-each-ref", "refs/hivekeep/"]), "", "{name}");
    }

    pub(super) fn fsck(&self, name: &str) {
        let done = self.try_git(name, &["fsck", "--full", "--strict", "--no-dangling"]);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.ok() && said.is_empty() && done.stdout.is_empty(), "{name}: {said}");
    }

    /// Contents of every file of a repository and of its work tree except the objects.
    pub(super) fn fingerprint(&self, name: &str) -> BTreeMap<PathBuf, (u32, i64, Vec<u8>)> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.path(name)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("listed") {
                let path = entry.expect("listed").path();
                let facts = fs::symlink_metadata(&path).expect("there");
                if facts.is_dir() && !path.ends_with(".git/objects") {
                    folders.push(path);
                } else if facts.is_file() {
                    let bytes = fs::read(&path).expect("read");
                    found.insert(path, (facts.mode(), facts.mtime_nsec(), bytes));
                }
            }
        }
        found
    }
}

/// Result row of one source.
pub(super) fn row(result: &MergeResult, index: usize) -> &SourceMerge {
    &result.sources[index]
}

pub(super) fn statuses(result: &MergeResult) -> Vec<SourceStatus> {
    result.sources.iter().map(|source| source.status).collect()
}

pub(super) fn conflicting(result: &MergeResult, path: &str) -> ConflictFile {
    let mut files = result.conflicts.iter().flat_map(|conflict| &conflict.files);
    files.find(|file| file.path == path).expect("in conflict").clone()
}

/// Repository of this host, as a [`Repository`].
pub(super) struct Local {
    home: PathBuf,
    dir: PathBuf,
    /// Requests made so far.
    pub(super) calls: AtomicI64,
    /// Number of requests after which the repository is gone.
    pub(super) left: AtomicI64,
    /// Canned output of git for a command.
    pub(super) lie: Option<(&'static str, &'static str)>,
    /// Canned commit that is checked out.
    pub(super) head: Option<&'static str>,
    /// True to damage every fetched file.
    pub(super) spoil: AtomicBool,
}

impl Local {
    fn step(&self) -> Result<(), ToolError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        match self.left.fetch_sub(1, Ordering::SeqCst) {
            1.. => Ok(()),
            _ => Err(ToolError::foreign(Layer::Link, "link_lost", "gone")),
        }
    }
}

#[async_trait]
impl Repository for Local {
    async fn git(
        &self,
        dir: &str,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Result<GitDone, ToolError> {
        self.step()?;
        // The requested path is the same everywhere; here each repository has its own.
        let dir = if dir.is_empty() { self.dir.clone() } else { PathBuf::from(dir) };
        let mut done = run(&self.home, &dir, args, env).map_err(|error| failed(&error))?;
        if let Some(head) = self.head.filter(|_| args.contains(&"HEAD^{commit}")) {
            done.stdout = head.into();
        }
        if let Some((_, lie)) = self.lie.filter(|(asked, _)| args.contains(asked)) {
            (done.exit_code, done.stdout) = (0, lie.into());
        }
        Ok(done)
    }

    async fn fetch(&self, path: &str, mut into: File, most: u64) -> Result<u64, ToolError> {
        self.step()?;
        let mut bytes = fs::read(path).map_err(|error| failed(&error))?;
        assert!(bytes.len() as u64 <= most);
        if self.spoil.load(Ordering::SeqCst) {
            let middle = bytes.len() - 30;
            bytes[middle] ^= 0x55;
        }
        io::copy(&mut &*bytes, &mut into).map_err(|error| failed(&error))
    }

    async fn send(&self, path: &str, mut from: File, size: u64) -> Result<(), ToolError> {
        self.step()?;
        let mut file = File::create(path).map_err(|error| failed(&error))?;
        let bytes = io::copy(&mut from, &mut file).map_err(|error| failed(&error))?;
        assert_eq!(bytes, size);
        Ok(())
    }

    async fn names(&self, dir: &str) -> Result<Vec<String>, ToolError> {
        self.step()?;
        let entries = fs::read_dir(dir).map_err(|error| failed(&error))?;
        Ok(entries.map(|e| e.expect("listed").file_name().to_string_lossy().into_owned()).collect())
    }

    async fn remove(&self, path: &str) -> Result<(), ToolError> {
        self.step()?;
        let path = Path::new(path);
        let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&error)),
            _ => Ok(()),
        }
    }

    fn see_it_through(&self) {}
}

fn failed(error: &io::Error) -> ToolError {
    let code = if error.kind() == io::ErrorKind::NotFound { "not_found" } else { "guest_io" };
    ToolError::foreign(Layer::Guest, code, error.to_string())
}

/// Runs the host's git without the host's configuration, and without an identity.
fn run(home: &Path, dir: &Path, args: &[&str], env: &[(&str, &str)]) -> io::Result<GitDone> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let output = Command::new("git")
        .args(["-c", "user.useConfigOnly=true", "-c", "protocol.file.allow=always"])
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", path)
        .env("HOME", home)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_EDITOR", ":")
        .env("LC_ALL", "C")
        .envs(env.iter().copied())
        .output()?;
    Ok(GitDone {
        exit_code: output.status.code().unwrap_or(255),
        stdout_bytes: output.stdout.len() as u64,
        stdout: output.stdout,
        stderr: output.stderr,
        truncated: false,
    })
}
