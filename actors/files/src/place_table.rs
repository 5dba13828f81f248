//! Places by name: folders of the configuration, volumes, the session's own workspace, its other workspaces.
//! Names are written as scp has them: `[USER@]WORKSPACE[:FOLDER]`.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use hivekeep_file_engine::{PlacePath, WriteText, decode, encode};
use hivekeep_kernel::{CallCx, Layer, ToolError, WorkspaceId};
use hivekeep_ports::{
    FoundWorkspace, LocatedPlace, MOUNTED_PLACE, PlaceFiles, PlaceFolder, PlaceFolders,
    PlaceWorkspace, Places, SESSION_PLACE, VolumeFiles, WorkspaceFiles, own_workspace_name,
};

use crate::{
    Options, codes,
    place::{CommandHost, FilePlace, VOLUME_PREFIX, WORKSPACE_ROOT, no_workspace, refused},
    place_kinds::{HostFolder, VolumePlace, WorkspacePlace},
    session_workspace::{SessionWorkspaces, own},
};

/// Refusal of a user or a folder for other places.
const USERS_AND_FOLDERS: &str = "users and folders are of workspaces";

/// All places.
pub(crate) struct PlaceTable {
    folders: BTreeMap<String, Arc<HostFolder>>,
    default: String,
    own: SessionWorkspaces,
    /// Volumes, if this daemon has them.
    volumes: Option<Arc<dyn VolumeFiles>>,
}

impl PlaceTable {
    /// Table of the configured places. A folder that is the only one is the default place; otherwise the
    /// session's own workspace is.
    pub(crate) fn new(
        options: &Options,
        room: &hivekeep_kernel::Room,
        own: SessionWorkspaces,
        volumes: Option<Arc<dyn VolumeFiles>>,
    ) -> Self {
        let folder = |(name, place): (&String, &crate::PlaceOptions)| {
            (name.clone(), Arc::new(HostFolder::new(name, place, room.clone())))
        };
        let folders: BTreeMap<_, _> = options.places.iter().map(folder).collect();
        let only = folders.keys().next().filter(|_| folders.len() == 1);
        let default = options.default_place.as_ref().or(only);
        let default = default.map_or(SESSION_PLACE, String::as_str).to_owned();
        Self { folders, default, own, volumes }
    }

    /// Guests of the workspaces.
    pub(crate) fn guests(&self) -> &dyn WorkspaceFiles {
        &*self.own.files
    }

    /// Place of a name, or the default one. The session's own workspace runs then.
    ///
    /// # Errors
    /// `place_unknown`, with the names there are; `place_withheld`; `not_owner`; those of making the session's
    /// workspace. A volume that is not there is reported when it is worked in.
    pub(crate) async fn find(
        &self,
        cx: &CallCx,
        name: Option<&str>,
    ) -> Result<Arc<dyn FilePlace>, ToolError> {
        let decided = self.own.decided(cx.session);
        let default = if decided.is_some() { SESSION_PLACE } else { &self.default };
        let name = name.unwrap_or(default);
        if decided.is_some_and(|own| own.only) {
            self.only_own(cx, name)?;
        }
        if let Some(folder) = self.folders.get(name) {
            return Ok(folder.clone());
        }
        if let Some(volume) = name.strip_prefix(VOLUME_PREFIX) {
            return self.volume(cx, name, volume);
        }
        self.only_of_workspaces(name)?;
        let notation = PlaceNotation::parse(name)?;
        if notation.name == SESSION_PLACE {
            let FoundWorkspace { id, .. } = self.own.ready(cx).await?;
            return Ok(Arc::new(self.within(cx, &notation, SESSION_PLACE, id).await?));
        }
        let found = self.own.files.find(notation.name).ok_or_else(|| self.unknown(name))?;
        own(cx, &found)?;
        Ok(Arc::new(self.within(cx, &notation, &found.name, found.id).await?))
    }

    /// Refuses every place but the session's own workspace.
    ///
    /// # Errors
    /// `place_withheld`.
    fn only_own(&self, cx: &CallCx, name: &str) -> Result<(), ToolError> {
        let named = |notation: PlaceNotation<'_>| {
            let found = || self.own.files.find(notation.name).map(|found| found.name);
            notation.name == SESSION_PLACE || found() == Some(own_workspace_name(cx.session))
        };
        if !self.folders.contains_key(name) && PlaceNotation::parse(name).is_ok_and(named) {
            return Ok(());
        }
        let message = format!("this session works in its own workspace alone, not in `{name:.80}`");
        Err(ToolError::new(Layer::Policy, codes::PLACE_WITHHELD, message)
            .next(format!("leave `place` out, or name `{SESSION_PLACE}`")))
    }

    /// Workspace by its id or name, whatever places are called. Its actor judges whose it is.
    ///
    /// # Errors
    /// `workspace_not_found`.
    pub(crate) fn workspace(&self, id_or_name: &str) -> Result<Arc<dyn FilePlace>, ToolError> {
        let FoundWorkspace { id, name, .. } = self.own.files.find(id_or_name).ok_or_else(|| {
            let code = codes::WORKSPACE_NOT_FOUND;
            ToolError::not_found(Layer::Resolve, code, "workspace", id_or_name)
                .next("workspace_list shows the workspaces there are")
        })?;
        let (lasting, root) = (id.to_string(), WORKSPACE_ROOT.to_owned());
        let files = self.own.files.clone();
        Ok(Arc::new(WorkspacePlace { name, id, lasting, user: None, root, files }))
    }

    /// Volume by its label or id, which may have any character.
    ///
    /// # Errors
    /// `place_unknown` where there are no volumes; `place_no_workspace` for a folder of one.
    fn volume(
        &self,
        cx: &CallCx,
        name: &str,
        volume: &str,
    ) -> Result<Arc<dyn FilePlace>, ToolError> {
        let volumes = self.volumes.clone().ok_or_else(|| self.unknown(name))?;
        let within = volume.contains(":/") || volume.contains(":~");
        if within && volumes.find(cx.session, volume).is_err() {
            return Err(no_workspace(name, USERS_AND_FOLDERS));
        }
        Ok(Arc::new(VolumePlace { name: name.to_owned(), volumes }))
    }

    /// Refuses a user and a folder of what has none.
    ///
    /// # Errors
    /// `place_no_workspace`.
    fn only_of_workspaces(&self, text: &str) -> Result<(), ToolError> {
        let rest = match text.split_once('@') {
            Some((user, rest)) if !user.contains(':') => rest,
            _ => text,
        };
        let name = rest.split(':').next().unwrap_or(rest);
        let is_volume = self.volumes.is_some() && rest.starts_with(VOLUME_PREFIX);
        if text != name && (is_volume || self.folders.contains_key(name)) {
            return Err(no_workspace(name, USERS_AND_FOLDERS));
        }
        Ok(())
    }

    /// A workspace as a place, from its folder on and with the rights of its user.
    async fn within(
        &self,
        cx: &CallCx,
        notation: &PlaceNotation<'_>,
        name: &str,
        id: WorkspaceId,
    ) -> Result<WorkspacePlace, ToolError> {
        let root = match notation.folder.map(|folder| (folder, folder.strip_prefix('~'))) {
            None => WORKSPACE_ROOT.to_owned(),
            Some((folder, None)) => folder.to_owned(),
            Some((_, Some(below))) => self.own.files.home(cx, id, notation.user).await? + below,
        };
        let root = PlacePath::in_system("/", &root).map_err(refused)?.to_string();
        Ok(WorkspacePlace {
            name: notation.named(name),
            lasting: notation.named(&id.to_string()),
            id,
            user: notation.user.map(str::to_owned),
            root,
            files: self.own.files.clone(),
        })
    }

    fn unknown(&self, name: &str) -> ToolError {
        let shown: String = name.chars().take(80).collect();
        let folders = self.folders.keys().map(|name| format!(", `{name}`"));
        let next = format!(
            "there are `{SESSION_PLACE}`{}, your workspaces by id or name, and `{VOLUME_PREFIX}` with the id or label of a volume",
            folders.collect::<String>(),
        );
        let message = format!("there is no place and no workspace `{shown}`");
        ToolError::new(Layer::Resolve, codes::PLACE_UNKNOWN, message).next(next)
    }
}

/// The places of sessions, as other families ask for them. Cheap to clone.
#[derive(Clone)]
pub(crate) struct PlacesHandle(pub(crate) Arc<PlaceTable>);

impl PlaceFolders for PlacesHandle {
    fn folder(&self, name: &str) -> Result<PlaceFolder, ToolError> {
        let folder = self.0.folders.get(name).ok_or_else(|| self.0.unknown(name))?;
        Ok(folder.place_folder())
    }

    fn default_place(&self) -> &str {
        &self.0.default
    }
}

#[async_trait]
impl Places for PlacesHandle {
    async fn workspace(
        &self,
        cx: &CallCx,
        place: Option<&str>,
    ) -> Result<PlaceWorkspace, ToolError> {
        let place = cx.guard(self.0.find(cx, place)).await?;
        let name = place.name().to_owned();
        Ok(match place.command_host() {
            CommandHost::Workspace { id, root, user } => {
                PlaceWorkspace { workspace: id, place: name, root, user }
            }
            CommandHost::Beside { source, read_only } => {
                let beside = cx.guard(self.0.own.beside(cx, &source, read_only)).await?;
                let root = MOUNTED_PLACE.to_owned();
                PlaceWorkspace { workspace: beside.id, place: name, root, user: None }
            }
        })
    }

    async fn put_program(
        &self,
        cx: &CallCx,
        place: &PlaceWorkspace,
        path: &str,
        text: String,
    ) -> Result<(), ToolError> {
        // Root writes the file, for all users there.
        let notation = PlaceNotation { user: Some("root"), name: &place.place, folder: None };
        let files = self.0.within(cx, &notation, &place.place, place.workspace).await?;
        let files: &dyn FilePlace = &files;
        let write = WriteText { path: path.to_owned(), content: text, mode: Some(0o755) };
        cx.guard(files.ask(cx, write)).await.map(drop)
    }
}

#[async_trait]
impl PlaceFiles for PlacesHandle {
    async fn locate(&self, cx: &CallCx, place: Option<&str>) -> Result<LocatedPlace, ToolError> {
        let place = cx.guard(self.0.find(cx, place)).await?;
        let folder = place.folder().map(Into::into);
        Ok(LocatedPlace { id: place.lasting(cx)?, name: place.name().to_owned(), folder })
    }

    async fn run(
        &self,
        cx: &CallCx,
        place: &str,
        operation: Vec<u8>,
    ) -> Result<Vec<u8>, ToolError> {
        let operation = decode(&operation)
            .map_err(|why| ToolError::internal(format!("no operation: {why}")))?;
        let work = async { self.0.find(cx, Some(place)).await?.run(cx, operation).await };
        encode(&cx.guard(work).await?).map_err(refused)
    }
}

/// Longest name of a user, in bytes.
const MAX_USER_BYTES: usize = 256;

/// Parts of a place's name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PlaceNotation<'n> {
    /// User of the guest, by name or number.
    user: Option<&'n str>,
    /// Name or id.
    name: &'n str,
    /// Folder of the guest: absolute, or `~` or below it, which is the user's home.
    folder: Option<&'n str>,
}

impl<'n> PlaceNotation<'n> {
    /// Parses a place's name. The first `:` begins the folder; a user is before an `@` before that.
    ///
    /// # Errors
    /// `invalid_input` for a user or a folder that makes no sense.
    fn parse(text: &'n str) -> Result<Self, ToolError> {
        let (rest, folder) = match text.split_once(':') {
            Some((rest, folder)) => (rest, Some(folder)),
            None => (text, None),
        };
        let (user, name) = match rest.split_once('@') {
            Some((user, name)) => (Some(user), name),
            None => (None, rest),
        };
        let odd = |c: char| c.is_whitespace() || c.is_control() || "/@".contains(c);
        let is_user = |it: &str| !it.is_empty() && it.len() <= MAX_USER_BYTES && !it.contains(odd);
        if user.is_some_and(|user| !is_user(user)) {
            return Err(wrong(text, "has no valid user before its `@`"));
        }
        let is_folder =
            |it: &str| it.starts_with('/') || it.split('/').next().is_some_and(|it| it == "~");
        if folder.is_some_and(|folder| !is_folder(folder)) {
            return Err(wrong(text, "has a folder that is neither absolute nor begins with `~/`"));
        }
        Ok(Self { user, name, folder })
    }

    /// The same place, whose workspace has this name.
    fn named(&self, name: &str) -> String {
        let user = self.user.map(|user| format!("{user}@")).unwrap_or_default();
        let folder = self.folder.map(|folder| format!(":{folder}")).unwrap_or_default();
        format!("{user}{name}{folder}")
    }
}

fn wrong(text: &str, what: &str) -> ToolError {
    let shown: String = text.chars().take(80).collect();
    ToolError::invalid(format!("the place `{shown}` {what}"))
        .next("write [USER@]WORKSPACE[:FOLDER], such as `app@w:/srv`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_user_and_a_folder_or_not() {
        for (text, user, name, folder) in [
            ("w", None, "w", None),
            ("app@w", Some("app"), "w", None),
            ("w:/", None, "w", Some("/")),
            ("1000@w:~/src", Some("1000"), "w", Some("~/src")),
            ("w:~", None, "w", Some("~")),
            ("w:/a:b@c", None, "w", Some("/a:b@c")),
            ("", None, "", None),
        ] {
            let parsed = PlaceNotation::parse(text).expect(text);
            assert_eq!(parsed, PlaceNotation { user, name, folder }, "{text}");
            assert_eq!(parsed.named(name), text);
        }
        let long = format!("{}@w", "u".repeat(257));
        for text in ["@w", "a b@w", "a/b@w", "\n@w", "w:", "w:src", "w:~bob", &long] {
            assert!(PlaceNotation::parse(text).is_err(), "{text:?}");
        }
    }
}
