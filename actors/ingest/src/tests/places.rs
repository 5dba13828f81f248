//! Places of tests: folders that the real file engine works in.

use std::{
    path::{Path, PathBuf},
    sync::Mutex,
};

use async_trait::async_trait;
use hivekeep_file_engine::{FileOperation, FileRoot, decode, encode, run};
use hivekeep_kernel::{CallCx, Layer, SessionId, ToolError, User, WorkspaceId, codes as common};
use hivekeep_ports::{
    FoundWorkspace, GuestOperation, KnownUsers, LocatedPlace, PlaceFiles, WorkspaceFiles,
    WorkspaceReadiness,
};

/// One folder.
pub(crate) struct FolderPlaces {
    name: &'static str,
    folder: PathBuf,
    /// It tells of its changes, as those of the host do.
    tells: bool,
}

impl FolderPlaces {
    pub(crate) fn of(name: &'static str, folder: &Path) -> Self {
        Self { name, folder: folder.to_owned(), tells: true }
    }

    /// A folder that is looked at from time to time, as one of a guest.
    pub(crate) fn quiet(name: &'static str, folder: &Path) -> Self {
        Self { tells: false, ..Self::of(name, folder) }
    }

    fn known(&self, place: &str) -> Result<(), ToolError> {
        let unknown = || ToolError::foreign(Layer::Resolve, "place_unknown", "there is `docs`");
        if place == self.name { Ok(()) } else { Err(unknown()) }
    }
}

#[async_trait]
impl PlaceFiles for FolderPlaces {
    async fn locate(&self, _: &CallCx, place: Option<&str>) -> Result<LocatedPlace, ToolError> {
        self.known(place.unwrap_or(self.name))?;
        let name = self.name.to_owned();
        Ok(LocatedPlace { id: name.clone(), name, folder: self.tells.then(|| self.folder.clone()) })
    }

    async fn run(&self, _: &CallCx, place: &str, operation: Vec<u8>) -> Result<Vec<u8>, ToolError> {
        self.known(place)?;
        let operation: FileOperation = decode(&operation).expect("an operation");
        let root = FileRoot::folder(&self.folder).expect("a folder");
        let done = tokio::task::spawn_blocking(move || run(&root, &operation, &|| false)).await;
        let outcome = done.expect("no panic").map_err(|error| {
            use hivekeep_file_engine::FileErrorKind as Kind;
            let code = match error.kind {
                Kind::NotText => common::NOT_UTF8.name,
                Kind::NotFound => common::NOT_FOUND.name,
                _ => "outside_place",
            };
            ToolError::foreign(Layer::Actor, code, error.message)
        })?;
        Ok(encode(&outcome).expect("it fits"))
    }
}

/// Users of whom one may be gone.
#[derive(Default)]
pub(crate) struct Gone(Mutex<Option<User>>);

impl Gone {
    pub(crate) fn set(&self, user: User) {
        *self.0.lock().expect("not poisoned") = Some(user);
    }
}

impl KnownUsers for Gone {
    fn knows(&self, user: User) -> bool {
        *self.0.lock().expect("not poisoned") != Some(user)
    }
}

/// Workspaces, of which only the owners are known.
#[derive(Default)]
pub(crate) struct Owners(Mutex<Vec<FoundWorkspace>>);

impl Owners {
    /// Makes a workspace a session's, whoever had it before.
    pub(crate) fn give(&self, name: &str, session: SessionId) {
        let mut all = self.0.lock().expect("not poisoned");
        let before = all.iter().position(|found| found.name == name).map(|at| all.remove(at));
        let id = before.map_or_else(WorkspaceId::new, |found| found.id);
        let (owner, readiness) = (Some(session), WorkspaceReadiness::Ready);
        all.push(FoundWorkspace { id, name: name.to_owned(), owner, readiness });
    }
}

#[async_trait]
impl WorkspaceFiles for Owners {
    fn find(&self, id_or_name: &str) -> Option<FoundWorkspace> {
        let all = self.0.lock().expect("not poisoned");
        let is = |it: &&FoundWorkspace| it.name == id_or_name || it.id.to_string() == id_or_name;
        all.iter().find(is).cloned()
    }

    async fn run(
        &self,
        _: &CallCx,
        _: WorkspaceId,
        _: GuestOperation,
    ) -> Result<Vec<u8>, ToolError> {
        Err(ToolError::internal("nothing runs"))
    }
}
