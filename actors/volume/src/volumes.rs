//! Volumes of all users: a service over one log for each volume.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use cap_std::fs::Dir;
use chrono::Utc;
use hivekeep_kernel::{
    CallCx, Layer, Room, Service, ServiceActor, SessionId, ToolError, ToolGroup, User, VolumeId,
    ports::SessionQuotas,
};
use hivekeep_runtime::{
    Daemon, Ports,
    log::{self, Log},
};
use hivekeep_store::Journal;
use tokio::sync::watch;

use crate::{
    HELD_MB, HELD_VOLUMES, Options, codes,
    held::{Held, VolumeResult, not_found},
    images::VolumeImages,
    support,
    tools::{self, MAX_FILE_BYTES, VolumeList, VolumeListed, VolumeQuota, VolumeRow, VolumeUsage},
    volume::{Volume, VolumePhase},
};

/// Volumes of all users.
pub(crate) struct VolumeService {
    pub(crate) options: Options,
    pub(crate) journal: Journal,
    sessions: Arc<dyn SessionQuotas>,
    /// Asked for folders of the host when there is a call for one.
    pub(crate) ports: Ports,
    pub(crate) room: Room,
    pub(crate) images: VolumeImages,
    /// Why this host mounts none.
    unsupported: Option<String>,
    /// Locked while something is decided, so that labels, sizes and uses are judged on what was decided
    /// before; never across an await.
    held: Mutex<Held>,
    /// True once the workspaces have told what they have.
    pub(crate) all_set: watch::Sender<bool>,
}

impl Service for VolumeService {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = tools::FAMILIES;
}

impl VolumeService {
    /// Reads all records, undoes what was not made and finishes what was to be removed.
    pub(crate) async fn open(daemon: &Daemon, options: Options) -> VolumeResult<Self> {
        let root = daemon.folders.state.join("volumes");
        let opened = tokio::task::spawn_blocking(|| VolumeImages::open(root)).await;
        let images = opened.map_err(lost)?.map_err(|error| failed("open the folder of", &error))?;
        let service = Self {
            options,
            journal: daemon.journal.clone(),
            sessions: daemon.sessions.clone(),
            ports: daemon.ports.clone(),
            room: daemon.room.clone(),
            images,
            unsupported: support::missing().into_iter().next().map(|(what, ..)| what),
            held: Mutex::default(),
            all_set: watch::Sender::new(false),
        };
        for (stream, loaded) in log::read_all::<Volume>(&service.journal).await?.loaded {
            let id = stream.id().parse().map_err(|error| {
                ToolError::new(Layer::Actor, codes::STATE_UNREADABLE, format!("{stream}: {error}"))
            })?;
            let whole = loaded.state.phase == VolumePhase::Ready;
            let log = Log::of(service.journal.clone(), stream, Some(loaded));
            if whole {
                service.held().logs.insert(id, log);
            } else {
                tracing::warn!(volume = %id, "a volume that was cut short is removed");
                service.remove_files(id.to_string()).await?;
                log.forget().await?;
            }
        }
        service.tell_unknown()?;
        Ok(service)
    }

    /// Tells of folders that no record names. No crash leaves one, for the record of a volume is there
    /// before its folder and goes after it: they are of a journal that was exchanged for an older one, or
    /// a person's, and may be all that is left of somebody's work.
    fn tell_unknown(&self) -> VolumeResult<()> {
        for name in self.images.names().map_err(|error| failed("look for", &error))? {
            if !name.parse().is_ok_and(|id| self.held().logs.contains_key(&id)) {
                let folder = self.images.root().join(name);
                tracing::warn!(folder = %folder.display(), "no record names this volume; it is left alone");
            }
        }
        Ok(())
    }

    /// Limits of a user: those of the configuration, and of its tier.
    pub(crate) fn limits(&self, owner: User) -> Options {
        let (options, tier) = (&self.options, |kind| self.sessions.allowance(owner, kind));
        let most =
            tier(HELD_VOLUMES).map_or(usize::MAX, |most| most.try_into().unwrap_or(usize::MAX));
        Options {
            max_volumes: options.max_volumes.min(most),
            max_total_mb: options.max_total_mb.min(tier(HELD_MB).unwrap_or(u64::MAX)),
            ..options.clone()
        }
    }

    pub(crate) fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn owner(&self, session: SessionId) -> VolumeResult<User> {
        self.sessions.user(session).ok_or_else(|| {
            let message = format!("the session {session} is over");
            ToolError::new(Layer::Session, codes::VOLUME_USER_UNKNOWN, message)
                .next("open a session and repeat the call")
        })
    }

    pub(crate) fn supported(&self) -> VolumeResult<()> {
        let Some(why) = &self.unsupported else { return Ok(()) };
        Err(ToolError::new(Layer::Machine, codes::VOLUMES_UNSUPPORTED, why.clone())
            .next("run `hivekeep check` on the host to see what is missing"))
    }

    pub(crate) fn told_all(&self) {
        self.all_set.send_replace(true);
    }

    /// Runs work on a mounted volume in its turn, and notes its use.
    pub(crate) async fn on_mount<T: Send + 'static>(
        &self,
        id: VolumeId,
        work: impl FnOnce(&VolumeImages) -> io::Result<T> + Send + 'static,
    ) -> VolumeResult<T> {
        let (turn, images) = (self.held().turn(id), self.images.clone());
        let done = tokio::task::spawn_blocking(move || {
            let mut used = turn.0.lock().unwrap_or_else(PoisonError::into_inner);
            *used = Some(Instant::now());
            work(&images)
        });
        done.await.map_err(lost)?.map_err(|error| failed("mount or change", &error))
    }

    /// A volume's root, mounted, for the user of a session. It stays mounted while the handle is open.
    pub(crate) async fn opened(&self, cx: &CallCx, asked: &str) -> VolumeResult<(VolumeId, Dir)> {
        let owner = self.owner(cx.session)?;
        let (id, _) = self.held().usable(owner, asked, Utc::now())?;
        self.supported()?;
        Ok((id, self.on_mount(id, move |images| images.mount(id)).await?))
    }

    async fn remove_files(&self, name: String) -> VolumeResult<()> {
        let images = self.images.clone();
        let removed = tokio::task::spawn_blocking(move || images.remove(&name)).await;
        removed.map_err(lost)?.map_err(|error| failed("remove", &error))
    }

    pub(crate) async fn list(
        self: Arc<Self>,
        cx: CallCx,
        _: VolumeList,
    ) -> VolumeResult<VolumeListed> {
        let owner = self.owner(cx.session)?;
        let held = self.held();
        let durable = held.logs.iter().filter_map(|(id, log)| Some((*id, log.state()?)));
        let own = durable.filter(|(_, volume)| volume.is_ready(owner));
        let volumes: Vec<_> = own.map(|(id, volume)| self.row(&held, id, volume)).collect();
        Ok(VolumeListed { count: volumes.len(), volumes })
    }

    pub(crate) async fn quota(
        self: Arc<Self>,
        cx: CallCx,
        _: VolumeQuota,
    ) -> VolumeResult<VolumeUsage> {
        let owner = self.owner(cx.session)?;
        let limits = self.limits(owner);
        let held = self.held();
        let own: Vec<_> = held.decided().filter(|(_, volume)| volume.owner == owner).collect();
        Ok(VolumeUsage {
            volume_count: own.len(),
            max_volumes: limits.max_volumes,
            total_bytes_used: own.iter().map(|(id, _)| self.images.held_bytes(*id)).sum(),
            total_allocated_bytes: own.iter().map(|(_, volume)| volume.size_bytes).sum(),
            total_storage_bytes: limits.max_total_bytes(),
            max_file_size_bytes: MAX_FILE_BYTES as u64,
        })
    }

    pub(crate) fn row_of(&self, id: VolumeId) -> VolumeResult<VolumeRow> {
        let held = self.held();
        let volume = held.logs.get(&id).and_then(Log::state);
        volume.map(|volume| self.row(&held, id, volume)).ok_or_else(|| not_found(&id.to_string()))
    }

    fn row(&self, held: &Held, id: VolumeId, volume: Volume) -> VolumeRow {
        VolumeRow {
            id,
            volume_id: id,
            name: volume.label.clone(),
            label: volume.label,
            status: if volume.expires_at.is_some() { "ephemeral" } else { "persistent" },
            size_limit_bytes: volume.size_bytes,
            used_bytes: self.images.held_bytes(id),
            created_at: volume.created_at,
            expires_at: volume.expires_at,
            workspaces: held.users(id),
        }
    }
}

pub(crate) fn lost(error: tokio::task::JoinError) -> ToolError {
    ToolError::internal(format!("a volume: {error}"))
}

pub(crate) fn failed(what: &str, error: &io::Error) -> ToolError {
    let message = format!("could not {what} a volume: {error}");
    ToolError::new(Layer::Machine, codes::VOLUME_FAILED, message)
        .next("look at `hivekeep check` and `hivekeep logs` on the host")
}
