//! Vault port for other actors: files of the daemon's own, by path.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hivekeep_kernel::ToolError;
use tokio::sync::oneshot;

use super::shared::{Stopped, VaultShared};
use super::{Change, Inner, Msg, answered};
use crate::Error;
use crate::folder::{WalkEntryKind, WalkParams, WritePrecondition};
use crate::ops::VaultView;
use crate::path::{NotePath, Scope};

/// Maximum time that work may wait for its turn and run.
const PATIENCE: Duration = Duration::from_secs(60);

/// Handle on the vault. Cheap to clone.
#[derive(Clone)]
pub struct VaultHandle(pub(super) Arc<VaultShared>);

impl VaultHandle {
    /// Path of a file that the daemon may keep: a note, or below `teams/` a JSON file.
    fn file(&self, path: &str) -> Result<NotePath, Error> {
        let parsed = NotePath::parse(path)?;
        self.0.rules.admit_kept(&parsed)?;
        Ok(parsed)
    }

    async fn change<T: Send + 'static>(
        &self,
        path: NotePath,
        work: impl FnOnce(&VaultView, &NotePath) -> Result<T, Error> + Send + Sync + 'static,
    ) -> Result<T, ToolError> {
        let (reply, answer) = oneshot::channel();
        let notes = vec![path.clone()];
        let work = move |vault: Result<VaultView, Error>| {
            let _gone = reply.send(vault.and_then(|vault| work(&vault, &path)));
        };
        let change = Change { notes, scope: Scope::whole(), slow: false, work: Box::new(work) };
        self.0.address.send(Msg(Inner::Change(change)))?;
        within_patience(answered(answer)).await
    }

    /// Runs work that changes nothing, for at most [`PATIENCE`], after which it is told to stop.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        work: impl FnOnce(&VaultView, Stopped<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, ToolError> {
        let readers = self.0.readers.clone();
        within_patience(self.0.clone().look(readers, Scope::whole(), work)).await
    }
}

async fn within_patience<T>(
    work: impl Future<Output = Result<T, ToolError>>,
) -> Result<T, ToolError> {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => done,
        Err(_) => Err(ToolError::deadline(hivekeep_kernel::Layer::Actor, PATIENCE.as_secs())),
    }
}

#[async_trait]
impl hivekeep_ports::Vault for VaultHandle {
    async fn write(&self, path: &str, content: Vec<u8>) -> Result<(), ToolError> {
        let path = self.file(path)?;
        let save = move |vault: &VaultView, path: &NotePath| {
            vault.folder.save(path, &content, WritePrecondition::Any).map(drop)
        };
        self.change(path, save).await
    }

    async fn remove(&self, path: &str) -> Result<bool, ToolError> {
        let path = self.file(path)?;
        self.change(path, |vault, path| vault.folder.remove(path)).await
    }

    async fn read(&self, path: &str) -> Result<Option<Vec<u8>>, ToolError> {
        let path = self.file(path)?;
        self.look(move |vault, _| match vault.folder.read(&path) {
            Ok((bytes, _)) => Ok(Some(bytes)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        })
        .await
    }

    async fn list(&self, folder: &str) -> Result<Vec<String>, ToolError> {
        let at = NotePath::parse(folder).map_err(ToolError::from)?;
        self.0.rules.admit(&at)?;
        let handle = self.clone();
        self.look(move |vault, stopped| {
            let is_file = |kind| kind == WalkEntryKind::Note;
            let walk =
                WalkParams { every_file: true, wants: is_file, ..WalkParams::everything(stopped) };
            let (items, _) = match walk.of(&vault.folder, &at) {
                Err(Error::NotFound { .. }) => (Vec::new(), false),
                walked => walked?,
            };
            let prefix = vault.shown(&at);
            let paths = items.into_iter().map(|item| format!("{prefix}{}", item.path));
            Ok(paths.filter(|path| handle.file(path).is_ok()).collect())
        })
        .await
    }
}
