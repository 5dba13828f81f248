//! A rig of the family with a folder as its place.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use hivekeep_kernel::{Room, SessionId, ToolError, User};
use hivekeep_ports::{KnownUsers, LateTools, Models, PlaceFiles, WorkspaceFiles};
use hivekeep_testkit::{FakeUsers, Rig, RigServices};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    fake::CountingModel,
    places::{FolderPlaces, Gone, Owners},
};
use crate::{IngestFamily, Options};

/// A family that runs.
pub(super) struct Stage {
    pub(super) rig: Rig<IngestFamily>,
    pub(super) model: Arc<CountingModel>,
    pub(super) owners: Arc<Owners>,
    pub(super) gone: Arc<Gone>,
    /// Bytes that are free on the disk, of which 1,000 have to be.
    pub(super) free: Arc<AtomicU64>,
    folder: Arc<TempDir>,
}

impl Stage {
    pub(super) async fn new(options: Options) -> Self {
        Self::of_users(options, FakeUsers::all(User::Uid(7))).await
    }

    pub(super) async fn of_users(options: Options, users: FakeUsers) -> Self {
        Self::of_places(options, users, FolderPlaces::of).await
    }

    pub(super) async fn of_places(
        options: Options,
        users: FakeUsers,
        places: fn(&'static str, &Path) -> FolderPlaces,
    ) -> Self {
        let (model, folder) =
            (Arc::<CountingModel>::default(), Arc::new(TempDir::new().expect("a folder")));
        let (owners, gone) = (Arc::<Owners>::default(), Arc::<Gone>::default());
        let free = Arc::new(AtomicU64::new(1_000));
        let (offered, place, known) = (model.clone(), folder.path().to_owned(), owners.clone());
        let (users_left, disk) = (gone.clone(), free.clone());
        let services = RigServices {
            sessions: Arc::new(users),
            tools: Arc::new(LateTools::default()),
            offer: Arc::new(move |ports| {
                ports.offer::<dyn Models>(offered.clone());
                ports.offer::<dyn WorkspaceFiles>(known.clone());
                ports.offer::<dyn PlaceFiles>(Arc::new(places("docs", &place)));
                ports.offer::<dyn KnownUsers>(users_left.clone());
                ports.offer(Arc::new(Room::from_counter(1_000, disk.clone())));
            }),
        };
        let rig = Rig::new(options, services).await;
        Self { rig, model, owners, gone, free, folder }
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("writes");
    }

    pub(super) fn remove(&self, name: &str) {
        fs::remove_file(self.folder.path().join(name)).expect("removed");
    }

    /// Folder of the place.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) async fn crashed(self) -> Self {
        Self { rig: self.rig.crashed().await, ..self }
    }

    pub(super) async fn ingest(&self, more: Value) -> Result<Value, ToolError> {
        let mut input = json!({ "path": "." });
        input.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
        self.rig.call("rag_ingest", input).await
    }

    /// Calls a tool as another session.
    pub(super) async fn call_as(
        &self,
        session: SessionId,
        tool: &'static str,
        input: Value,
    ) -> Result<Value, ToolError> {
        self.rig.begin_as(session, tool, input, Duration::from_secs(60)).answer().await
    }

    pub(super) async fn ask(&self, more: Value) -> Result<Value, ToolError> {
        self.rig.call("rag_query", more).await
    }

    /// The first collection, with its state.
    pub(super) async fn listed(&self) -> Value {
        let listed =
            self.rig.call("rag_collections", json!({ "show_stats": true })).await.expect("lists");
        listed["collections"][0].clone()
    }

    /// Sources with words of a question, by name.
    pub(super) async fn with_words(&self, words: &str) -> Vec<String> {
        let found = self.ask(json!({ "question": words, "mode": "bm25" })).await.expect("asked");
        let mut found: Vec<_> = sources(&found).into_iter().map(str::to_owned).collect();
        found.sort();
        found
    }
}

/// Sources of an answer.
pub(super) fn sources(answer: &Value) -> Vec<&str> {
    answer["results"]
        .as_array()
        .expect("results")
        .iter()
        .map(|row| row["source"].as_str().expect("one"))
        .collect()
}

/// Code of an error.
pub(super) fn code<T: std::fmt::Debug>(outcome: Result<T, ToolError>) -> String {
    outcome.expect_err("it is refused").code.into_owned()
}
