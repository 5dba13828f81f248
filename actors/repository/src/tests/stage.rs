//! Two users over a real journal and the scripted daemon.

use std::sync::Arc;

use hivekeep_kernel::{SessionId, ToolError, User};
use hivekeep_ports::{GitCredentials, Volumes};
use hivekeep_testkit::{FakeUsers, Rig, RigServices, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Duration;

use super::daemon::ScriptedDaemon;
use crate::{Options, RepositoryFamily};

/// The rig's session is the first user's, the other one the second's, whose tier allows one repository;
/// one is over.
pub(super) struct Stage {
    /// `None` only while it is started anew.
    rig: Option<Rig<RepositoryFamily>>,
    pub(super) daemon: Arc<ScriptedDaemon>,
    pub(super) other: SessionId,
    pub(super) over: SessionId,
    _folder: TempDir,
}

impl Stage {
    pub(super) async fn open() -> Self {
        let folder = TempDir::new().expect("a folder");
        let daemon = Arc::new(ScriptedDaemon::at(folder.path().to_owned()));
        let (other, over) = (SessionId::new(), SessionId::new());
        let offered = daemon.clone();
        let (first, second) = (User::Uid(0), User::Uid(1));
        let users = FakeUsers::all(first).and(other, second).over(over);
        let services = RigServices {
            sessions: Arc::new(users.allowed(second, "repositories", 1)),
            tools: daemon.clone(),
            offer: Arc::new(move |ports| {
                ports.offer::<dyn Volumes>(offered.clone());
                ports.offer::<dyn GitCredentials>(offered.clone());
            }),
        };
        let options = Options { max_repositories: 2, ..Options::default() };
        let rig = Some(Rig::new(options, services).await);
        Self { rig, daemon, other, over, _folder: folder }
    }

    pub(super) fn rig(&self) -> &Rig<RepositoryFamily> {
        self.rig.as_ref().expect("it is started")
    }

    /// The daemon dies and starts again; what it had made stays.
    pub(super) async fn crash(&mut self) {
        let rig = self.rig.take().expect("it is started");
        self.rig = Some(rig.crashed().await);
    }

    pub(super) async fn as_session(
        &self,
        session: SessionId,
        tool: &str,
        args: Value,
    ) -> Result<Value, ToolError> {
        let limit = Duration::from_secs(60);
        self.rig().begin_as(session, &format!("aegis.git.{tool}"), args, limit).answer().await
    }

    pub(super) async fn call(&self, tool: &str, args: Value) -> Result<Value, ToolError> {
        self.as_session(self.rig().session, tool, args).await
    }

    pub(super) async fn good(&self, tool: &str, args: Value) -> Value {
        self.call(tool, args).await.unwrap_or_else(|error| panic!("{tool}: {error}"))
    }

    pub(super) async fn refused(&self, tool: &str, args: Value) -> String {
        self.call(tool, args).await.expect_err(tool).code.into_owned()
    }

    pub(super) async fn status(&self) -> Value {
        self.good("status", of("app")).await
    }

    /// Waits until nothing is done with the repository.
    pub(super) async fn done(&self) -> Value {
        self.done_with("app").await
    }

    pub(super) async fn done_with(&self, label: &str) -> Value {
        eventually("nothing is done with it", async || {
            let row = self.good("status", of(label)).await;
            ["ready", "failed"].contains(&row["status"].as_str().expect("a status"))
                && row["step"].is_null()
        })
        .await;
        self.good("status", of(label)).await
    }

    /// Binds the repository `app` and waits for its end.
    pub(super) async fn bound(&self) -> Value {
        let row = self.good("clone", remote("app")).await;
        assert_eq!(row["status"], "pending");
        self.done().await
    }

    /// What the tree of the only volume has.
    pub(super) fn told(&self) -> String {
        let volume = self.daemon.volume_folders().pop().expect("a volume");
        std::fs::read_to_string(volume.join("app/told")).expect("a tree")
    }

    /// No workspace is left, and no tree beside the one with the label.
    pub(super) fn is_tidy(&self) {
        assert_eq!(self.daemon.script().machines.keys().collect::<Vec<_>>(), Vec::<&String>::new());
        for volume in self.daemon.volume_folders() {
            assert!(!volume.join(".app.new").exists());
        }
    }
}

pub(super) fn of(label: &str) -> Value {
    json!({ "binding_id": label })
}

pub(super) fn remote(label: &str) -> Value {
    json!({ "repo_url": "https://example.org/app.git", "label": label })
}
