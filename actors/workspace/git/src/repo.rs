//! Handle on the guest's git, for one call, with the certificate authorities that the operator trusts beside those of
//! the image.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hivekeep_kernel::{ErrorCode, Layer, ToolError};
use hivekeep_link::{CallTerms, Link, link_error};
use hivekeep_protocol::{Argv, WriteFile};

use crate::codes;
use crate::run::{self, AuthenticationRecord, GitCall, GitDone};
use crate::{Login, SecretRedactor};

/// Time limit of runs that reach no server.
const LOCAL: Duration = Duration::from_secs(60);
/// Maximum output of runs that print a line or two.
const SHORT_BYTES: u64 = 64 * 1024;

/// Variables of git that a workspace's environment may set for the tools. Others move the
/// repository, or log what passes.
const LET_THROUGH: [&str; 5] =
    ["GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_HTTP_", "GIT_SSL_", "GIT_SSH_COMMAND"];

/// Options that keep git from running programs that the repository or its user names while an
/// operator's token is in reach: a hook can ask for it as git does.
const WITHOUT_HOOKS: [&str; 4] = ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"];

/// Options of a run that only asks whether git refuses a repository because of its owner.
pub(crate) const TRUSTING: [&str; 2] = ["-c", "safe.directory=*"];

/// Error for a repository of another user than git runs as.
pub(crate) fn unsafe_repository(dir: &str) -> ToolError {
    let message =
        format!("{dir} belongs to another user than git runs as, so git does not trust it");
    ToolError::new(Layer::Guest, codes::UNSAFE_REPOSITORY, message).next(
        "git runs as the owner of .git: give all to one user by exec with user root (chown -R USER PATH), or allow it by exec as that owner: git config --global --add safe.directory PATH",
    )
}

/// Guest's git, in one folder.
pub struct Git {
    link: Link,
    dir: String,
    env: Vec<(String, String)>,
    /// User that it runs as; `None` for root.
    user: Option<String>,
    /// File of the host with authorities trusted beside those of the image.
    ca_file: Option<PathBuf>,
    /// Redactor of its output.
    pub hider: SecretRedactor,
}

impl Git {
    /// Makes a handle that runs as the owner of the folder's repository, with the workspace's
    /// environment without most of git's own variables.
    pub fn new(link: Link, dir: String, env: Vec<(String, String)>) -> Self {
        let stays = |name: &str| {
            !name.starts_with("GIT_") || LET_THROUGH.iter().any(|own| name.starts_with(own))
        };
        let mut env: Vec<_> = env.into_iter().filter(|(name, _)| stays(name)).collect();
        // Status commands change nothing in a repository, and paths are literal.
        env.push(("GIT_OPTIONAL_LOCKS".to_owned(), "0".to_owned()));
        env.push(("GIT_LITERAL_PATHSPECS".to_owned(), "1".to_owned()));
        let user = Some(Argv::REPOSITORY_OWNER.to_owned());
        Self { link, dir, env, user, ca_file: None, hider: SecretRedactor::default() }
    }

    /// Runs as a user, whoever owns the folder; `None` for root.
    #[must_use]
    pub fn as_user(self, user: Option<String>) -> Self {
        Self { user, ..self }
    }

    pub(super) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Trusts the authorities of a host's file too, unless the workspace sets its own.
    pub fn trusting(mut self, ca_file: Option<PathBuf>) -> Self {
        let chosen = self.env.iter().any(|(name, _)| name == "GIT_SSL_CAINFO");
        self.ca_file = ca_file.filter(|_| !chosen);
        self
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    /// Moves the handle to another folder.
    pub(super) fn at(self, dir: String) -> Self {
        Self { dir, ..self }
    }

    /// Sets a variable for the following runs.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// # Errors
    ///
    /// See [`run::git`].
    pub(super) async fn run(&self, args: &[&str]) -> Result<GitDone, ToolError> {
        self.run_for(args, LOCAL, SHORT_BYTES).await
    }

    /// # Errors
    ///
    /// See [`run::git`].
    pub(super) async fn run_for(
        &self,
        args: &[&str],
        timeout: Duration,
        max_output_bytes: u64,
    ) -> Result<GitDone, ToolError> {
        let env = self.pairs();
        let (dir, user) = (&*self.dir, self.user());
        let call = GitCall { dir, args, env: &env, user, timeout, max_output_bytes };
        run::git(&self.link, call).await
    }

    /// Runs a command that reaches a server, which may ask for credentials; without hooks while a
    /// configured token is in use.
    ///
    /// # Errors
    /// See [`run::git_asking`]; `credential_unavailable`, `ca_file_unavailable`.
    pub(super) async fn ask(
        &mut self,
        args: &[&str],
        login: Option<&Login>,
        timeout: Duration,
    ) -> Result<(GitDone, AuthenticationRecord), ToolError> {
        let credential = match login {
            Some(login) => Some(login.credential().await?),
            None => None,
        };
        if let Some(credential) = &credential {
            self.hider.add(&credential.secret);
        }
        let mut env = self.pairs();
        if let Some(file) = &self.ca_file {
            bring_authorities(&self.link, file).await?;
            env.insert(0, ("GIT_SSL_CAPATH", USUAL_AUTHORITIES));
            env.push(("GIT_SSL_CAINFO", AUTHORITIES_PLACE));
        }
        let max_output_bytes = SHORT_BYTES;
        let without = login.is_some_and(Login::is_configured).then_some(WITHOUT_HOOKS);
        let args: Vec<&str> = without.iter().flatten().chain(args).copied().collect();
        let (dir, user) = (&*self.dir, self.user());
        let call = GitCall { dir, args: &args, env: &env, user, timeout, max_output_bytes };
        run::git_asking(&self.link, call, credential).await
    }

    fn pairs(&self) -> Vec<(&str, &str)> {
        self.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    /// First line of a run's output; `None` when it failed.
    ///
    /// # Errors
    /// See [`run::git`].
    pub(super) async fn line(&self, args: &[&str]) -> Result<Option<String>, ToolError> {
        let done = self.run(args).await?;
        let text = String::from_utf8_lossy(&done.stdout);
        let line = text.lines().next().unwrap_or_default().to_owned();
        Ok((done.ok() && !line.is_empty()).then_some(line))
    }

    /// Branch that is checked out; `None` where it is a commit.
    ///
    /// # Errors
    /// See [`run::git`].
    pub(super) async fn branch(&self) -> Result<Option<String>, ToolError> {
        self.line(&["symbolic-ref", "--quiet", "--short", "HEAD"]).await
    }

    /// Commit that is checked out; `None` before the first.
    ///
    /// # Errors
    /// See [`run::git`].
    pub(super) async fn head(&self) -> Result<Option<String>, ToolError> {
        self.line(&["rev-parse", "--quiet", "--verify", "HEAD^{commit}"]).await
    }

    /// # Errors
    ///
    /// `not_a_repository`, `unsafe_repository`; `not_found` and similar for the folder.
    pub(super) async fn check_work_tree(&self) -> Result<(), ToolError> {
        const ASK: [&str; 2] = ["rev-parse", "--is-inside-work-tree"];
        if self.line(&ASK).await?.as_deref() == Some("true") {
            return Ok(());
        }
        if self.line(&[&TRUSTING, &ASK[..]].concat()).await?.as_deref() == Some("true") {
            return Err(unsafe_repository(&self.dir));
        }
        let message = format!("{} is in no git work tree", self.dir);
        Err(ToolError::new(Layer::Guest, codes::NOT_A_REPOSITORY, message).next(
            "give the folder of a repository as `path`, clone one with git_clone, or run git init",
        ))
    }

    /// Makes an error with git's own output.
    pub(super) fn failed(
        &self,
        code: &ErrorCode,
        message: impl Into<String>,
        done: &GitDone,
    ) -> ToolError {
        ToolError::new(Layer::Guest, code, message)
            .detail("exit_code", done.exit_code)
            .detail("output", self.said(done))
    }

    /// Output of git for people; its end if it is long.
    pub(super) fn said(&self, done: &GitDone) -> String {
        const SHOWN: usize = 8 * 1024;
        let words = self.hider.words(&done.stderr);
        match words.char_indices().rev().map(|(at, _)| at).nth(SHOWN) {
            Some(at) => words[at..].to_owned(),
            None => words,
        }
    }

    /// Authentication error of a run, if that is why it failed.
    pub(super) fn not_let_in(
        &self,
        done: &GitDone,
        asked: &AuthenticationRecord,
    ) -> Option<ToolError> {
        let shown = |origin: &str| self.hider.text(&origin.chars().take(300).collect::<String>()).0;
        if asked.rejected {
            let error = self.failed(
                codes::AUTHENTICATION_FAILED,
                "the server did not take the credential",
                done,
            );
            return Some(error.next(
                "check that the token is valid, has not expired and may do this with the repository",
            ));
        }
        let origin = asked.unanswered.as_deref().map(shown)?;
        let message = format!("{origin} asks who it is, and there is no credential for it");
        let error = self.failed(codes::AUTHENTICATION_REQUIRED, message, done);
        let next =
            "give `credential` with a token, or have the operator add one to git.credentials";
        Some(error.next(next).detail("server", origin))
    }
}

/// Path at which the guest's git finds the operator's authorities.
const AUTHORITIES_PLACE: &str = "/run/hivekeep/git-authorities.pem";
/// Folder in images with the commonly trusted authorities.
const USUAL_AUTHORITIES: &str = "/etc/ssl/certs";
/// Maximum size of the file, several times the usual set of a browser.
const MAX_AUTHORITIES_BYTES: u64 = 1024 * 1024;
/// Maximum time to upload them to the guest.
const PATIENCE: Duration = Duration::from_secs(30);

/// Uploads the certificates of a host's file to the guest.
///
/// # Errors
/// `ca_file_unavailable`; errors of the link to the guest.
async fn bring_authorities(link: &Link, file: &Path) -> Result<(), ToolError> {
    let refused = |why: String| {
        let message = format!("the configured certificates in {}: {why}", file.display());
        ToolError::new(Layer::Machine, codes::CA_FILE_UNAVAILABLE, message)
            .next("mend git.ca_file on the host")
    };
    let bytes = read(file).await.map_err(refused)?;
    let (size_bytes, wait) = (bytes.len() as u64, CallTerms::at_most(PATIENCE));
    let write = WriteFile { path: AUTHORITIES_PLACE.to_owned(), mode: Some(0o644), size_bytes };
    let sent = link.upload(write, size_bytes, bytes.as_slice(), wait, |_| {}).await;
    sent.map(drop).map_err(link_error)
}

async fn read(file: &Path) -> Result<Vec<u8>, String> {
    let describe = |error: std::io::Error| error.to_string();
    let bytes = tokio::fs::metadata(file).await.map_err(describe)?.len();
    if bytes > MAX_AUTHORITIES_BYTES {
        return Err("more than 1 MiB".to_owned());
    }
    let text = tokio::fs::read_to_string(file).await.map_err(describe)?;
    match text.contains("-----BEGIN CERTIFICATE-----") {
        true => Ok(text.into_bytes()),
        false => Err("does not contain a PEM certificate".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_no_certificate_is_not_sent() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.pem");
        assert!(read(&file).await.is_err());
        std::fs::write(&file, "-----BEGIN RSA PRIVATE KEY-----\n").unwrap();
        assert_eq!(read(&file).await.unwrap_err(), "does not contain a PEM certificate");
        std::fs::write(&file, "-----BEGIN CERTIFICATE-----\n").unwrap();
        assert!(read(&file).await.is_ok());
        std::fs::File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_len(MAX_AUTHORITIES_BYTES + 1)
            .unwrap();
        assert_eq!(read(&file).await.unwrap_err(), "more than 1 MiB");
    }
}
