//! Repository port: the operations that a merge needs, wherever the repository is; and its adapter over a
//! workspace's link.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use hivekeep_kernel::{CallCx, Layer, ToolError};
use hivekeep_link::{CallTerms, Link, link_error};
use hivekeep_protocol::{Argv, Exit, ListFolder, RunCommand, WriteFile};

use crate::codes;
use crate::run::{GitCall, GitDone, git};

/// Place where git runs and files can be stored and fetched.
#[async_trait]
pub trait Repository: Send + Sync {
    /// Runs git in `dir`. Any exit code is a result.
    ///
    /// # Errors
    /// Fails when git could not be run to its end.
    async fn git(
        &self,
        dir: &str,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Result<GitDone, ToolError>;

    /// Copies a file from the repository's machine, and returns its size.
    ///
    /// # Errors
    /// `bundle_too_large` beyond `most_bytes`; errors of the transport.
    async fn fetch(
        &self,
        path: &str,
        into: std::fs::File,
        most_bytes: u64,
    ) -> Result<u64, ToolError>;

    /// Copies a file to the repository's machine.
    ///
    /// # Errors
    /// Errors of the transport.
    async fn send(&self, path: &str, from: std::fs::File, size_bytes: u64)
    -> Result<(), ToolError>;

    /// Names in a directory, at most some thousands.
    ///
    /// # Errors
    /// Errors of the transport.
    async fn names(&self, dir: &str) -> Result<Vec<String>, ToolError>;

    /// Removes a file or a folder with its contents; success if it does not exist.
    ///
    /// # Errors
    /// Errors of the transport.
    async fn remove(&self, path: &str) -> Result<(), ToolError>;

    /// Makes later calls ignore the caller's deadline and cancellation, so that nothing is left
    /// half done.
    fn see_it_through(&self);
}

/// Maximum output of one run of git. Ten thousand commits with their parents are a tenth of it.
const MAX_OUTPUT_BYTES: u64 = 16 * 1024 * 1024;
/// Time limit of each operation once the merge must complete.
const THROUGH: Duration = Duration::from_secs(300);
/// Maximum number of names per answer, and of answers.
const PAGE: u32 = 1_000;
const PAGES: usize = 8;

/// Repository of a guest.
pub struct GuestRepository {
    link: Link,
    cx: CallCx,
    through: AtomicBool,
}

impl GuestRepository {
    /// Makes a repository that uses the caller's deadline until [`Repository::see_it_through`].
    pub fn new(link: Link, cx: CallCx) -> Self {
        Self { link, cx, through: AtomicBool::new(false) }
    }

    fn wait(&self) -> CallTerms {
        if self.through.load(Ordering::Relaxed) {
            return CallTerms::at_most(THROUGH);
        }
        CallTerms { deadline: self.cx.deadline, cancel: self.cx.cancel.clone() }
    }
}

#[async_trait]
impl Repository for GuestRepository {
    async fn git(
        &self,
        dir: &str,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Result<GitDone, ToolError> {
        let through = self.through.load(Ordering::Relaxed);
        let timeout = if through { THROUGH } else { self.cx.remaining() };
        let max_output_bytes = MAX_OUTPUT_BYTES;
        let user = Some(Argv::REPOSITORY_OWNER);
        let run = git(&self.link, GitCall { dir, args, env, user, timeout, max_output_bytes });
        if through { run.await } else { self.cx.guard(run).await }
    }

    async fn fetch(&self, path: &str, into: File, most_bytes: u64) -> Result<u64, ToolError> {
        let sink = tokio::fs::File::from_std(into);
        let limit = Some(most_bytes.saturating_add(1));
        let done = self.link.download(path, 0, limit, sink, self.wait(), |_| {}).await;
        let bytes = done.map_err(link_error)?.sent_bytes;
        if bytes > most_bytes {
            let message = format!("its commits are a bundle of more than {most_bytes} bytes");
            return Err(ToolError::new(Layer::Link, codes::BUNDLE_TOO_LARGE, message)
                .next("push them to a common repository, and fetch them in the target")
                .detail("most_bytes", most_bytes));
        }
        Ok(bytes)
    }

    async fn send(&self, path: &str, from: File, size_bytes: u64) -> Result<(), ToolError> {
        let source = tokio::fs::File::from_std(from);
        // Read by the owner of the repository, whose folder keeps it from others as it does the rest.
        let write = WriteFile { path: path.to_owned(), mode: Some(0o644), size_bytes };
        let sent = self.link.upload(write, size_bytes, source, self.wait(), |_| {});
        sent.await.map(drop).map_err(link_error)
    }

    async fn names(&self, dir: &str) -> Result<Vec<String>, ToolError> {
        let (mut names, mut after) = (Vec::new(), None);
        for _ in 0..PAGES {
            let request = ListFolder { path: dir.to_owned(), after, limit: PAGE };
            let listed = self.link.ask(request, self.wait()).await.map_err(link_error)?;
            // A guest may send more than was asked for, or a path instead of a name.
            let sound = listed.entries.into_iter().take(PAGE as usize).map(|entry| entry.name);
            names.extend(sound.filter(|name| !name.contains('/')));
            after = names.last().cloned();
            if !listed.more {
                break;
            }
        }
        Ok(names)
    }

    async fn remove(&self, path: &str) -> Result<(), ToolError> {
        let request = RunCommand {
            argv: Argv::Direct(["rm", "-rf", "--", path].map(str::to_owned).to_vec()),
            env: Vec::new(),
            workdir: Some("/".to_owned()),
            timeout_ms: u64::try_from(THROUGH.as_millis()).unwrap_or(u64::MAX),
            max_output_bytes: 1024,
        };
        let removed = self.link.exec(request, self.wait(), |_, _| {}).await;
        match removed {
            Ok(output) if output.done.exit == Exit::Code(0) && !output.done.timed_out => Ok(()),
            Ok(output) => {
                let message = format!("a merge's file could not be removed: {path}");
                Err(ToolError::new(Layer::Guest, codes::GUEST_IO, message)
                    .detail("output", output.stderr.text().text))
            }
            Err(error) => Err(link_error(error)),
        }
    }

    fn see_it_through(&self) {
        self.through.store(true, Ordering::Relaxed);
    }
}
