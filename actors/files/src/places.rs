//! Places by name: folders of the host, each opened once and kept as a handle.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock},
};

use cap_std::{ambient_authority, fs::Dir};
use hivekeep_kernel::{Layer, Room, ToolError};
use tokio::sync::Semaphore;

use crate::{Options, codes};

/// Calls that work in one place at a time.
const MOST_AT_ONCE: usize = 8;

/// Folder that sessions work in.
pub(crate) struct Place {
    pub(crate) name: String,
    folder: PathBuf,
    read_only: bool,
    /// Handle that every path is resolved beneath, once the folder could be opened.
    root: OnceLock<Dir>,
    /// Free space of the host.
    room: Room,
    /// Permits of the calls that work; others wait within their deadline. A place on a file
    /// system that hangs holds up its own calls.
    pub(crate) permits: Arc<Semaphore>,
    /// Held while a file is compared with what was read of it and replaced; never across an await.
    pub(crate) replacing: Mutex<()>,
}

impl Place {
    /// Root folder. One that is not there yet is looked for again at the next call.
    ///
    /// # Errors
    /// `file_failed` when it cannot be opened.
    pub(crate) fn root(&self) -> Result<&Dir, ToolError> {
        if let Some(root) = self.root.get() {
            return Ok(root);
        }
        let opened = Dir::open_ambient_dir(&self.folder, ambient_authority()).map_err(|error| {
            let message = format!("the folder of the place `{}`: {error}", self.name);
            ToolError::new(Layer::Actor, codes::FILE_FAILED, message)
                .next("ask the operator to make it, or work in another place")
        })?;
        Ok(self.root.get_or_init(|| opened))
    }

    /// Root folder, for a change that takes room on the disk.
    ///
    /// # Errors
    /// `host_disk_full`, and as [`Self::changeable`].
    pub(crate) fn writable(&self) -> Result<&Dir, ToolError> {
        let root = self.changeable()?;
        self.room.admit(&self.folder)?;
        Ok(root)
    }

    /// Root folder, for a change that takes no room, such as a deletion.
    ///
    /// # Errors
    /// `place_read_only`, and as [`Self::root`].
    pub(crate) fn changeable(&self) -> Result<&Dir, ToolError> {
        if self.read_only {
            let message = format!("the place `{}` may be read only", self.name);
            return Err(ToolError::new(Layer::Policy, codes::PLACE_READ_ONLY, message)
                .next("write in another place, or ask the operator for `read_only = false`"));
        }
        self.root()
    }
}

/// All places.
pub(crate) struct Places {
    places: BTreeMap<String, Arc<Place>>,
    default: Option<String>,
}

impl Places {
    pub(crate) fn new(options: &Options, room: Room) -> Self {
        let place = |(name, place): (&String, &crate::PlaceOptions)| {
            let place = Place {
                name: name.clone(),
                folder: place.folder.clone(),
                read_only: place.read_only,
                root: OnceLock::new(),
                room: room.clone(),
                permits: Arc::new(Semaphore::new(MOST_AT_ONCE)),
                replacing: Mutex::default(),
            };
            (name.clone(), Arc::new(place))
        };
        let places: BTreeMap<_, _> = options.places.iter().map(place).collect();
        let only = places.keys().next().filter(|_| places.len() == 1);
        let default = options.default_place.as_ref().or(only).cloned();
        Self { places, default }
    }

    /// Place of a name, or the default one.
    ///
    /// # Errors
    /// `place_unknown`, with the names there are.
    pub(crate) fn find(&self, name: Option<&str>) -> Result<Arc<Place>, ToolError> {
        if let Some(place) = name.or(self.default.as_deref()).and_then(|name| self.places.get(name))
        {
            return Ok(place.clone());
        }
        let names: Vec<_> = self.places.keys().map(|name| format!("`{name}`")).collect();
        let (message, next) = match (name, names.is_empty()) {
            (_, true) => (
                "the operator has opened no folder to sessions".to_owned(),
                "ask for one under `session.places`, or work in a workspace: file_read, file_write and file_edit take `workspace_id`"
                    .to_owned(),
            ),
            (None, false) => (
                "no place is the default one".to_owned(),
                format!("give `place`: {}", names.join(", ")),
            ),
            (Some(name), false) => {
                (format!("there is no place `{name}`"), format!("there are {}", names.join(", ")))
            }
        };
        Err(ToolError::new(Layer::Resolve, codes::PLACE_UNKNOWN, message).next(next))
    }
}
