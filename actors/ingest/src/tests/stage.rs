//! A rig of the family with a folder as its place.

use std::{fs, path::PathBuf, sync::Arc};

use hivekeep_kernel::{
    ToolError, User,
    ports::{LateTools, Models, PlaceFolder, PlaceFolders},
};
use hivekeep_testkit::{FakeUsers, Rig, RigServices};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::fake::CountingModel;
use crate::{IngestFamily, Options};

struct OnePlace(PathBuf);

impl PlaceFolders for OnePlace {
    fn folder(&self, name: &str) -> Result<PlaceFolder, ToolError> {
        match name {
            "docs" => Ok(PlaceFolder { folder: self.0.clone(), read_only: true }),
            _ => Err(ToolError::internal("unknown").next("there is `docs`")),
        }
    }

    fn default_place(&self) -> &str {
        "docs"
    }
}

/// A family that runs.
pub(super) struct Stage {
    pub(super) rig: Rig<IngestFamily>,
    pub(super) model: Arc<CountingModel>,
    folder: Arc<TempDir>,
}

impl Stage {
    pub(super) async fn new(options: Options) -> Self {
        Self::of_users(options, FakeUsers::all(User::Uid(7))).await
    }

    pub(super) async fn of_users(options: Options, users: FakeUsers) -> Self {
        let (model, folder) =
            (Arc::<CountingModel>::default(), Arc::new(TempDir::new().expect("a folder")));
        let (offered, place) = (model.clone(), folder.path().to_owned());
        let services = RigServices {
            sessions: Arc::new(users),
            tools: Arc::new(LateTools::default()),
            offer: Arc::new(move |ports| {
                ports.offer::<dyn Models>(offered.clone());
                ports.offer::<dyn PlaceFolders>(Arc::new(OnePlace(place.clone())));
            }),
        };
        Self { rig: Rig::new(options, services).await, model, folder }
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
        let Self { rig, model, folder } = self;
        Self { rig: rig.crashed().await, model, folder }
    }

    pub(super) async fn ingest(&self, more: Value) -> Result<Value, ToolError> {
        let mut input = json!({ "path": "." });
        input.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
        self.rig.call("rag_ingest", input).await
    }

    pub(super) async fn ask(&self, more: Value) -> Result<Value, ToolError> {
        self.rig.call("rag_query", more).await
    }

    /// The one collection, with its state.
    pub(super) async fn listed(&self) -> Value {
        let listed =
            self.rig.call("rag_collections", json!({ "show_stats": true })).await.expect("lists");
        listed["collections"][0].clone()
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
