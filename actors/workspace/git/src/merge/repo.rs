//! Repository wrapper: runs git with fixed options and parses its answers.

use hivekeep_kernel::{Layer, ToolError};

use super::repository::Repository;
use crate::codes;
use crate::repo::{TRUSTING, unsafe_repository};
use crate::run::GitDone;

/// Maximum length of git's output in an error, in characters.
const SHOWN: usize = 2_000;

/// Options of every run: nothing of the repository's own runs beside git, nothing is written that
/// was not asked for, and the output is for programs.
const OPTIONS: [&str; 25] = [
    "--no-optional-locks",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "gc.auto=0",
    "-c",
    "maintenance.auto=false",
    "-c",
    "rerere.enabled=false",
    "-c",
    "commit.gpgSign=false",
    "-c",
    "core.quotePath=false",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.logAllRefUpdates=true",
    "-c",
    "merge.conflictStyle=merge",
    "-c",
    "advice.detachedHead=false",
    "-c",
    "submodule.recurse=false",
    "-c",
    "color.ui=false",
];

/// Identity for commits in a repository where git would ask for one.
const NOBODY: [&str; 4] = ["-c", "user.name=hivekeep", "-c", "user.email=hivekeep@localhost"];

/// Operations of git that wait to be concluded, by the ref that each keeps meanwhile.
const OPERATIONS: [(&str, &str); 4] = [
    ("MERGE_HEAD", "merge"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
    ("REBASE_HEAD", "rebase"),
];

/// Repository with its access path.
#[derive(Clone)]
pub(super) struct Repo<'r> {
    pub(super) way: &'r dyn Repository,
    /// Top of its work tree.
    pub(super) dir: String,
    /// Folder shared by all its work trees.
    pub(super) common: String,
    /// True if git has an identity for commits.
    known: bool,
}

impl<'r> Repo<'r> {
    /// Finds the repository that `path` is in.
    ///
    /// # Errors
    /// `not_a_repository`, `unsafe_repository`, `bare_repository`.
    pub(super) async fn open(way: &'r dyn Repository, path: &str) -> Result<Self, ToolError> {
        let here = Self { way, dir: path.to_owned(), common: String::new(), known: true };
        let no_folder = [codes::NOT_FOUND, codes::NOT_A_DIRECTORY];
        let missing = |error: ToolError| match error.is_any(&no_folder) {
            true => not_a_repository(path),
            false => error,
        };
        const ASK: [&str; 2] = ["rev-parse", "--is-inside-work-tree"];
        let inside = here.run(&ASK).await.map_err(missing)?;
        match (inside.exit_code, text(&inside.stdout).trim()) {
            (0, "true") => {}
            (0, _) => {
                let message = format!("{} has no work tree", shown(path));
                return Err(ToolError::new(Layer::Guest, codes::BARE_REPOSITORY, message)
                    .next("name the work tree of a repository in path"));
            }
            _ if here.run(&[&TRUSTING, &ASK[..]].concat()).await?.ok() => {
                return Err(unsafe_repository(&shown(path)));
            }
            _ => return Err(not_a_repository(path).detail("output", shown(&text(&inside.stderr)))),
        }
        let dir = here.line(&["rev-parse", "--show-toplevel"]).await?;
        let common =
            here.line(&["rev-parse", "--path-format=absolute", "--git-common-dir"]).await?;
        // Strict check: fails where a commit would fail for want of a name.
        let known = here.run(&["var", "GIT_COMMITTER_IDENT"]).await?.ok();
        Ok(Self { way, dir, common, known })
    }

    /// Other work tree of the same repository.
    pub(super) fn at(&self, dir: String) -> Self {
        Self { dir, ..self.clone() }
    }

    /// Runs git; any exit code is a result.
    pub(super) async fn run(&self, args: &[&str]) -> Result<GitDone, ToolError> {
        self.run_with(args, &[]).await
    }

    /// Runs git like [`Repo::run`], with variables.
    pub(super) async fn run_with(
        &self,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Result<GitDone, ToolError> {
        let nobody: &[&str] = if self.known { &[] } else { &NOBODY };
        let words: Vec<&str> = OPTIONS.iter().chain(nobody).chain(args).copied().collect();
        self.way.git(&self.dir, &words, env).await
    }

    /// Runs git, which has to exit with 0 and whose output must be complete.
    ///
    /// # Errors
    /// `git_failed`.
    pub(super) async fn must(&self, args: &[&str]) -> Result<GitDone, ToolError> {
        let done = self.run(args).await?;
        if done.ok() && !done.truncated { Ok(done) } else { Err(failed(args, &done)) }
    }

    /// Output of a successful run, without the end of line.
    pub(super) async fn line(&self, args: &[&str]) -> Result<String, ToolError> {
        Ok(text(&self.must(args).await?.stdout).trim_end_matches('\n').to_owned())
    }

    /// Output lines of a successful run.
    pub(super) async fn lines(&self, args: &[&str]) -> Result<Vec<String>, ToolError> {
        Ok(text(&self.must(args).await?.stdout).lines().map(str::to_owned).collect())
    }

    /// Number that a successful run prints.
    pub(super) async fn count(&self, args: &[&str]) -> Result<u64, ToolError> {
        let line = self.line(args).await?;
        line.parse().map_err(|_| nonsense(args, &line))
    }

    /// Commit id of a name, if it exists.
    pub(super) async fn resolve(&self, name: &str) -> Result<Option<String>, ToolError> {
        let commit = format!("{name}^{{commit}}");
        let args = ["rev-parse", "--quiet", "--verify", "--end-of-options", &commit];
        let done = self.run(&args).await?;
        if !done.ok() {
            return Ok(None);
        }
        let sha = text(&done.stdout).trim().to_owned();
        if is_sha(&sha) { Ok(Some(sha)) } else { Err(nonsense(&args, &sha)) }
    }

    /// Commit that is checked out.
    ///
    /// # Errors
    /// `no_commits`.
    pub(super) async fn head(&self) -> Result<String, ToolError> {
        self.resolve("HEAD").await?.ok_or_else(|| {
            ToolError::new(Layer::Guest, codes::NO_COMMITS, "the repository has no commit yet")
                .next("commit something there first")
        })
    }

    /// True if `old` is part of the history of `new`.
    pub(super) async fn contains(&self, new: &str, old: &str) -> Result<bool, ToolError> {
        let args = ["merge-base", "--is-ancestor", old, new];
        let done = self.run(&args).await?;
        match done.exit_code {
            0 => Ok(true),
            1 => Ok(false),
            _ => Err(failed(&args, &done)),
        }
    }

    /// Refuses a repository in which an operation waits to be concluded.
    ///
    /// # Errors
    /// `operation_in_progress`.
    pub(super) async fn idle(&self) -> Result<(), ToolError> {
        for (name, operation) in OPERATIONS {
            if self.resolve(name).await?.is_some() {
                let message = format!("a {operation} is in progress in {}", shown(&self.dir));
                return Err(ToolError::new(Layer::Guest, codes::OPERATION_IN_PROGRESS, message)
                    .next(format!("conclude it there, or end it with `git {operation} --abort`")));
            }
        }
        Ok(())
    }

    /// Paths that differ from the last commit, as git names them.
    pub(super) async fn changed(&self) -> Result<Vec<String>, ToolError> {
        let args =
            ["status", "--porcelain=v1", "-z", "--untracked-files=normal", "--no-ahead-behind"];
        let done = self.run(&args).await?;
        if !done.ok() {
            return Err(failed(&args, &done));
        }
        Ok(paths_of_status(&done.stdout))
    }
}

/// Parses the paths of `git status --porcelain=v1 -z`; both paths of a renamed file.
fn paths_of_status(bytes: &[u8]) -> Vec<String> {
    let mut paths = Vec::new();
    let mut entries = bytes.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
    while let Some(entry) = entries.next() {
        let (state, path) = entry.split_at(entry.len().min(3));
        paths.push(text(path));
        if state.iter().any(|byte| matches!(byte, b'R' | b'C')) {
            paths.extend(entries.next().map(text));
        }
    }
    paths
}

fn not_a_repository(path: &str) -> ToolError {
    let message = format!("{} is not in a git repository", shown(path));
    ToolError::new(Layer::Guest, codes::NOT_A_REPOSITORY, message)
        .next("give in path where the repository is; it is the same in all workspaces")
}

/// Error of a run of git that was expected to succeed.
pub(super) fn failed(args: &[&str], done: &GitDone) -> ToolError {
    let command = args.iter().find(|word| !word.starts_with('-')).unwrap_or(&"");
    let output = if done.stderr.is_empty() { &done.stdout } else { &done.stderr };
    let what = if done.truncated { "said too much" } else { "failed" };
    ToolError::new(Layer::Guest, codes::GIT_FAILED, format!("git {command} {what}"))
        .next("git's output says why")
        .detail("exit_code", done.exit_code)
        .detail("output", shown(&text(output)))
}

pub(super) fn nonsense(args: &[&str], output: &str) -> ToolError {
    let command = args.first().unwrap_or(&"");
    let message = format!("git {command} said something else than expected");
    ToolError::new(Layer::Guest, codes::GIT_FAILED, message).detail("output", shown(output))
}

/// True if the word is an object id.
pub(super) fn is_sha(word: &str) -> bool {
    matches!(word.len(), 40 | 64) && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Bounds a guest's text.
pub(super) fn shown(words: &str) -> String {
    words.chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_a_status() {
        let output = b" M a b\0R  new\0old\0?? dir/\0UU \xff\0";
        assert_eq!(paths_of_status(output), ["a b", "new", "old", "dir/", "\u{fffd}"]);
        assert_eq!(paths_of_status(b""), [""; 0]);
        assert_eq!(paths_of_status(b"M"), [""]);
    }
}
