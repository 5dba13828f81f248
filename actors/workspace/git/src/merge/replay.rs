//! Replay strategies `sequential` and `cherry-pick`: commits are made anew on top of others.

use std::collections::{HashMap, HashSet};

use hivekeep_kernel::{Layer, ToolError};

use super::{
    conflict::{self, Failure},
    repo::{Repo, failed, is_sha, nonsense, text},
};
use crate::codes;

/// Maximum number of commits of one source that are replayed.
const MAX_COMMITS: usize = 10_000;
/// Maximum number of commits per run of git.
const AT_ONCE: usize = 200;

/// Counts of what was replayed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Applied {
    /// Number of the source's commits applied.
    pub(super) commits: u64,
    /// Number of commits whose change was present already.
    pub(super) already_there: u64,
    /// Number of merge commits that were left out.
    pub(super) merges_flattened: u64,
}

/// Result of a step. Inner error: the source is refused; outer error: git itself failed.
pub(super) type Tried<T> = Result<Result<T, Failure>, ToolError>;

/// Replays what `tip` has beyond HEAD into one line. Merge commits are left out; a comparison with
/// a merge proves that nothing is lost with them.
pub(super) async fn in_a_line(scratch: &Repo<'_>, tip: &str) -> Tried<Applied> {
    let before = scratch.head().await?;
    let rows = match beyond(scratch, &before, tip).await? {
        Ok(rows) => rows,
        Err(failure) => return Ok(Err(failure)),
    };
    let plain = rows.iter().filter(|row| row.parents.len() < 2);
    let line: Vec<&str> = plain.clone().filter(|r| !r.there).map(|r| r.sha.as_str()).collect();
    let (all, already_there) = (rows.len() as u64, count_there(&rows));
    let merges_flattened = all - plain.count() as u64;
    if let Err(failure) = pick(scratch, &line).await? {
        return Ok(Err(failure));
    }
    if merges_flattened > 0 && !same_as_merged(scratch, &before, tip).await? {
        let message = "its history has merge commits whose content is lost in one line";
        let error = ToolError::new(Layer::Guest, codes::MERGE_NOT_LINEAR, message)
            .next("use cherry-pick, which keeps merge commits, or branch-per-source");
        return Ok(Err(error.into()));
    }
    Ok(Ok(Applied { commits: line.len() as u64, already_there, merges_flattened }))
}

/// True if HEAD has the content that a merge of the two gives.
async fn same_as_merged(scratch: &Repo<'_>, before: &str, tip: &str) -> Result<bool, ToolError> {
    let merged = scratch.run(&["merge-tree", "--write-tree", "--no-messages", before, tip]).await?;
    let tree = scratch.line(&["rev-parse", "HEAD^{tree}"]).await?;
    Ok(merged.ok() && text(&merged.stdout).trim() == tree)
}

/// Replays what `tip` has beyond HEAD, keeping its shape. A commit whose parents are unchanged is
/// unchanged too.
pub(super) async fn in_shape(scratch: &Repo<'_>, tip: &str) -> Tried<Applied> {
    let onto = scratch.head().await?;
    let rows = match beyond(scratch, &onto, tip).await? {
        Ok(rows) => rows,
        Err(failure) => return Ok(Err(failure)),
    };
    let mut replay =
        Replay { scratch, onto: &onto, made: HashMap::new(), line: Line::default(), dropped: 0 };
    for row in &rows {
        if let Err(failure) = replay.add(row).await? {
            return Ok(Err(failure));
        }
    }
    if let Err(failure) = replay.flush().await? {
        return Ok(Err(failure));
    }
    let made = replay.made.get(tip).ok_or_else(|| nonsense(&["rev-list"], tip))?;
    scratch.must(&["checkout", "--quiet", "--detach", made]).await?;
    let already_there = count_there(&rows) + replay.dropped;
    let commits = rows.len() as u64 - already_there;
    Ok(Ok(Applied { commits, already_there, merges_flattened: 0 }))
}

fn count_there(rows: &[Row]) -> u64 {
    rows.iter().filter(|row| row.there).count() as u64
}

/// Commit of the source.
struct Row {
    sha: String,
    parents: Vec<String>,
    /// True if HEAD's history has the same change in another commit.
    there: bool,
}

/// Commits that `tip` has beyond `head`, parents first.
async fn beyond(scratch: &Repo<'_>, head: &str, tip: &str) -> Tried<Vec<Row>> {
    let range = format!("{head}..{tip}");
    let most = format!("--max-count={}", MAX_COMMITS + 1);
    let args = ["rev-list", "--topo-order", "--reverse", "--parents", &most, &range];
    let lines = scratch.lines(&args).await?;
    if lines.len() > MAX_COMMITS {
        let message = format!("it has more than {MAX_COMMITS} commits to replay");
        let error = ToolError::new(Layer::Guest, codes::TOO_MANY_COMMITS, message)
            .next("use branch-per-source, which replays none");
        return Ok(Err(error.into()));
    }
    let mut rows = Vec::with_capacity(lines.len());
    for line in &lines {
        let mut words = line.split(' ').map(str::to_owned);
        let sha = words.next().unwrap_or_default();
        let parents: Vec<String> = words.collect();
        if !is_sha(&sha) || !parents.iter().all(|parent| is_sha(parent)) {
            return Err(nonsense(&args, line));
        }
        rows.push(Row { sha, parents, there: false });
    }
    if !rows.is_empty() {
        mark_there(scratch, head, tip, &mut rows).await?;
    }
    Ok(Ok(rows))
}

/// Marks the commits that an earlier replay brought, as git compares changes. Empty commits all
/// look like the same change, and are not marked.
async fn mark_there(
    scratch: &Repo<'_>,
    head: &str,
    tip: &str,
    rows: &mut [Row],
) -> Result<(), ToolError> {
    let both = format!("{head}...{tip}");
    let args = ["rev-list", "--no-merges", "--right-only", "--cherry-pick", &both];
    let missing: HashSet<String> = scratch.lines(&args).await?.into_iter().collect();
    let plain = |row: &&mut Row| row.parents.len() == 1 && !missing.contains(&row.sha);
    if !rows.iter_mut().any(|row| plain(&row)) {
        return Ok(());
    }
    let range = format!("{head}..{tip}");
    let args = ["rev-list", "--no-merges", "--full-history", &range, "--", "."];
    let changing: HashSet<String> = scratch.lines(&args).await?.into_iter().collect();
    for row in rows.iter_mut().filter(plain) {
        row.there = changing.contains(&row.sha);
    }
    Ok(())
}

/// Run of consecutive commits, to be replayed together.
#[derive(Default)]
struct Line {
    onto: String,
    shas: Vec<String>,
}

struct Replay<'r, 'p> {
    scratch: &'r Repo<'p>,
    onto: &'r str,
    /// New id of each commit so far.
    made: HashMap<String, String>,
    line: Line,
    /// Number of merge commits of which nothing was left to apply.
    dropped: u64,
}

impl Replay<'_, '_> {
    async fn add(&mut self, row: &Row) -> Tried<()> {
        if let ([parent], Some(last)) = (row.parents.as_slice(), self.line.shas.last())
            && parent == last
            && !row.there
        {
            self.line.shas.push(row.sha.clone());
            return Ok(Ok(()));
        }
        if let Err(failure) = self.flush().await? {
            return Ok(Err(failure));
        }
        let parents: Vec<String> =
            row.parents.iter().enumerate().map(|(index, sha)| self.parent(index, sha)).collect();
        if row.there {
            self.made.insert(row.sha.clone(), parents[0].clone());
        } else if parents == row.parents {
            self.made.insert(row.sha.clone(), row.sha.clone());
        } else if let [onto] = parents.as_slice() {
            self.line = Line { onto: onto.clone(), shas: vec![row.sha.clone()] };
        } else {
            match self.merge(row, &parents).await? {
                Ok(made) => drop(self.made.insert(row.sha.clone(), made)),
                Err(failure) => return Ok(Err(failure)),
            }
        }
        Ok(Ok(()))
    }

    /// New parent of a commit. Its first parent, if in the target's history, is replaced by the
    /// target's HEAD; other parents from there stay.
    fn parent(&self, index: usize, sha: &str) -> String {
        let outside = if index == 0 { self.onto } else { sha };
        self.made.get(sha).map_or(outside, String::as_str).to_owned()
    }

    async fn flush(&mut self) -> Tried<()> {
        let Line { onto, shas } = std::mem::take(&mut self.line);
        if shas.is_empty() {
            return Ok(Ok(()));
        }
        self.scratch.must(&["checkout", "--quiet", "--detach", &onto]).await?;
        let line: Vec<&str> = shas.iter().map(String::as_str).collect();
        if let Err(failure) = pick(self.scratch, &line).await? {
            return Ok(Err(failure));
        }
        let since = format!("{onto}..HEAD");
        let args = ["rev-list", "--reverse", "--topo-order", "--first-parent", &since];
        let made = self.scratch.lines(&args).await?;
        if made.len() != shas.len() || !made.iter().all(|sha| is_sha(sha)) {
            return Err(nonsense(&args, &format!("{} of {}", made.len(), shas.len())));
        }
        self.made.extend(shas.into_iter().zip(made));
        Ok(Ok(()))
    }

    /// Remakes a merge commit: its change against its first parent, including resolutions, on that
    /// parent's new id.
    async fn merge(&mut self, row: &Row, parents: &[String]) -> Tried<String> {
        let scratch = self.scratch;
        scratch.must(&["checkout", "--quiet", "--detach", &parents[0]]).await?;
        let args = ["cherry-pick", "--mainline", "1", "--no-commit", &row.sha];
        let picked = scratch.run(&args).await?;
        if !picked.ok() {
            return Ok(Err(match conflict::read(scratch, Some(&row.sha)).await? {
                Some(conflict) => Failure::Conflict(conflict),
                None => failed(&args, &picked).into(),
            }));
        }
        let tree = scratch.line(&["write-tree"]).await?;
        if parents.iter().all(|parent| *parent == parents[0])
            && tree == scratch.line(&["rev-parse", "HEAD^{tree}"]).await?
        {
            scratch.must(&["reset", "--quiet", "--hard"]).await?;
            self.dropped += 1;
            return Ok(Ok(parents[0].clone()));
        }
        let made = commit_as(scratch, &row.sha, &tree, parents).await?;
        scratch.must(&["reset", "--quiet", "--hard", &made]).await?;
        Ok(Ok(made))
    }
}

/// Makes a commit with the message and author of another.
async fn commit_as(
    scratch: &Repo<'_>,
    like: &str,
    tree: &str,
    parents: &[String],
) -> Result<String, ToolError> {
    let format = ["log", "-1", "--no-show-signature", "--date=raw"];
    let facts = [&format[..], &["--format=%an%x00%ae%x00%ad%x00%B", like]].concat();
    let output = text(&scratch.must(&facts).await?.stdout);
    let mut parts = output.splitn(4, '\0');
    let (Some(name), Some(email), Some(date), Some(message)) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(nonsense(&facts, &output));
    };
    let date = format!("@{date}");
    let env = [("GIT_AUTHOR_NAME", name), ("GIT_AUTHOR_EMAIL", email), ("GIT_AUTHOR_DATE", &*date)];
    let mut args = vec!["commit-tree", tree];
    for parent in parents {
        args.extend(["-p", parent]);
    }
    args.extend(["-m", message.trim_end_matches('\n')]);
    let done = scratch.run_with(&args, &env).await?;
    let made = text(&done.stdout).trim().to_owned();
    if done.ok() && is_sha(&made) { Ok(made) } else { Err(failed(&args, &done)) }
}

/// Replays commits, each on the one before it. Empty ones stay.
async fn pick(scratch: &Repo<'_>, shas: &[&str]) -> Tried<()> {
    const WORDS: [&str; 5] = [
        "cherry-pick",
        "--ff",
        "--allow-empty",
        "--allow-empty-message",
        "--keep-redundant-commits",
    ];
    for some in shas.chunks(AT_ONCE) {
        let args = [&WORDS[..], some].concat();
        let picked = scratch.run(&args).await?;
        if picked.ok() {
            continue;
        }
        let at = scratch.resolve("CHERRY_PICK_HEAD").await?;
        return Ok(Err(match conflict::read(scratch, at.as_deref()).await? {
            Some(conflict) => Failure::Conflict(conflict),
            None => failed(&args, &picked).into(),
        }));
    }
    Ok(Ok(()))
}
