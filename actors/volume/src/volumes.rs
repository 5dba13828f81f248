//! Volumes of all users: a service over one log for each volume.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use cap_std::fs::Dir;
use chrono::Utc;
use futures::future::BoxFuture;
use hivekeep_kernel::{
    CallCx, Layer, Room, Service, ServiceActor, SessionId, ToolError, ToolGroup, User, VolumeId,
    fault_point, ports::SessionQuotas,
};
use hivekeep_runtime::{
    Daemon,
    log::{self, Decision, Log, LogError},
};
use hivekeep_store::{Journal, NewEvent};
use serde_json::json;
use tokio::sync::watch;

use crate::{
    Options, codes,
    held::{Answer, Held, in_use, not_found},
    images::VolumeImages,
    support,
    tools::{
        self, MAX_FILE_BYTES, VolumeCreate, VolumeDelete, VolumeDeleted, VolumeList, VolumeListed,
        VolumeQuota, VolumeRow, VolumeUsage,
    },
    volume::{Record, Volume, VolumePhase},
};

/// Sizes are multiples of it, as in the reference.
const SIZE_UNIT: u64 = 1 << 20;
/// A smaller file system would hold little but its own journal.
const LEAST_BYTES: u64 = 16 << 20;

/// Volumes of all users.
pub(crate) struct VolumeService {
    options: Options,
    journal: Journal,
    sessions: Arc<dyn SessionQuotas>,
    room: Room,
    images: VolumeImages,
    /// Why this host mounts none.
    unsupported: Option<String>,
    /// Locked while something is decided, so that labels, sizes and uses are judged on what was decided
    /// before; never across an await.
    held: Mutex<Held>,
    /// True once the workspaces have told what they have.
    all_set: watch::Sender<bool>,
}

impl Service for VolumeService {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = tools::FAMILIES;
}

impl VolumeService {
    /// Reads all records, undoes what was not made and finishes what was to be removed.
    pub(crate) async fn open(daemon: &Daemon, options: Options) -> Answer<Self> {
        let root = daemon.folders.state.join("volumes");
        let opened = tokio::task::spawn_blocking(|| VolumeImages::open(root)).await;
        let images = opened.map_err(lost)?.map_err(|error| failed("open the folder of", &error))?;
        let service = Self {
            options,
            journal: daemon.journal.clone(),
            sessions: daemon.sessions.clone(),
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
        service.sweep().await?;
        Ok(service)
    }

    /// Removes folders that no record names.
    async fn sweep(&self) -> Answer<()> {
        let names = self.images.names().map_err(|error| failed("look for", &error))?;
        for name in names {
            let known = name.parse().is_ok_and(|id| self.held().logs.contains_key(&id));
            if !known {
                tracing::warn!(volume = %name, "a volume that no record names is removed");
                self.remove_files(name).await?;
            }
        }
        Ok(())
    }

    pub(crate) fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn owner(&self, session: SessionId) -> Answer<User> {
        self.sessions.user(session).ok_or_else(|| {
            let message = format!("the session {session} is over");
            ToolError::new(Layer::Session, codes::VOLUME_USER_UNKNOWN, message)
                .next("open a session and repeat the call")
        })
    }

    pub(crate) fn supported(&self) -> Answer<()> {
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
    ) -> Answer<T> {
        let (turn, images) = (self.held().turn(id), self.images.clone());
        let done = tokio::task::spawn_blocking(move || {
            let mut used = turn.0.lock().unwrap_or_else(PoisonError::into_inner);
            *used = Some(Instant::now());
            work(&images)
        });
        done.await.map_err(lost)?.map_err(|error| failed("mount or change", &error))
    }

    /// A volume's root, mounted, for the user of a session. It stays mounted while the handle is open.
    pub(crate) async fn opened(&self, cx: &CallCx, asked: &str) -> Answer<(VolumeId, Dir)> {
        let owner = self.owner(cx.session)?;
        let (id, _) = self.held().usable(owner, asked, Utc::now())?;
        self.supported()?;
        Ok((id, self.on_mount(id, move |images| images.mount(id)).await?))
    }

    pub(crate) async fn create(
        self: Arc<Self>,
        cx: CallCx,
        input: VolumeCreate,
    ) -> Answer<VolumeRow> {
        let owner = self.owner(cx.session)?;
        self.supported()?;
        self.room.admit(self.images.root())?;
        let size_bytes = rounded(input.size_limit_bytes);
        let (id, at) = (VolumeId::new(), Utc::now());
        let expires_at = input.ttl_hours.map(|hours| at + chrono::TimeDelta::hours(hours.into()));
        let label = input.label;
        let (log, written) = {
            let mut held = self.held();
            held.admit(owner, &label, size_bytes, &self.options)?;
            let stream = log::stream::<Volume>(id)
                .map_err(|error| ToolError::internal(error.to_string()))?;
            let log = Log::of(self.journal.clone(), stream, None);
            let wanted = Record::Wanted { owner, label, size_bytes, at, expires_at };
            let written = log.decide(|_| Ok::<_, ToolError>(Decision::record(wanted)))?;
            held.logs.insert(id, log.clone());
            (log, written)
        };
        // To its end, whether or not anybody waits.
        let made = tokio::spawn(self.clone().make(id, size_bytes, log, written));
        made.await.map_err(lost)??;
        self.row_of(id)
    }

    async fn make(
        self: Arc<Self>,
        id: VolumeId,
        size_bytes: u64,
        log: Log<Volume>,
        wanted: BoxFuture<'static, Result<(), LogError>>,
    ) -> Answer<()> {
        let made = async {
            wanted.await?;
            fault_point!("volume.after_wanted");
            let make = move |images: &VolumeImages| {
                images.make(id, size_bytes)?;
                fault_point!("volume.after_image");
                VolumeImages::empty(&images.mount(id)?)
            };
            self.on_mount(id, make).await?;
            fault_point!("volume.before_made");
            let made = Decision::record(Record::Made).event(event("volume.created", id));
            log.decide(|_| Ok::<_, ToolError>(made))?.await?;
            fault_point!("volume.after_made");
            Ok(())
        };
        let made: Answer<()> = made.await;
        if made.is_err()
            && let Err(error) = self.forget(id, &log).await
        {
            // Its label stays taken until the next start, which undoes it.
            tracing::error!(volume = %id, %error, "a volume that was not made could not be removed");
        }
        made
    }

    /// Removes what there is of a volume, then its records.
    async fn forget(&self, id: VolumeId, log: &Log<Volume>) -> Answer<()> {
        let remove = move |images: &VolumeImages| images.remove(&id.to_string());
        self.on_mount(id, remove).await?;
        fault_point!("volume.after_remove");
        log.forget().await?;
        self.held().drop_volume(id);
        Ok(())
    }

    async fn remove_files(&self, name: String) -> Answer<()> {
        let images = self.images.clone();
        let removed = tokio::task::spawn_blocking(move || images.remove(&name)).await;
        removed.map_err(lost)?.map_err(|error| failed("remove", &error))
    }

    pub(crate) async fn delete(
        self: Arc<Self>,
        cx: CallCx,
        input: VolumeDelete,
    ) -> Answer<VolumeDeleted> {
        let owner = self.owner(cx.session)?;
        // An earlier daemon's workspaces have told what they have.
        let _sender_is_ours = self.all_set.subscribe().wait_for(|told| *told).await.is_ok();
        let (id, volume) = self.held().usable(owner, &input.volume_id, Utc::now())?;
        self.remove(id, "volume.deleted").await?;
        Ok(VolumeDeleted { volume_id: id, label: volume.label, deleted: true })
    }

    /// Removes a volume that no workspace has.
    async fn remove(self: &Arc<Self>, id: VolumeId, kind: &str) -> Answer<()> {
        let (log, written) = {
            let held = self.held();
            let users = held.users(id);
            if !users.is_empty() {
                return Err(in_use(id, &users));
            }
            let there = held.logs.get(&id).filter(|_| held.is_there(id));
            let log = there.cloned().ok_or_else(|| not_found(&id.to_string()))?;
            let wanted = Decision::record(Record::DeleteWanted).event(event(kind, id));
            let written = log.decide(|_| Ok::<_, ToolError>(wanted))?;
            (log, written)
        };
        let this = self.clone();
        let removed = tokio::spawn(async move {
            written.await?;
            fault_point!("volume.after_delete_wanted");
            this.forget(id, &log).await
        });
        removed.await.map_err(lost)?
    }

    pub(crate) async fn list(self: Arc<Self>, cx: CallCx, _: VolumeList) -> Answer<VolumeListed> {
        let owner = self.owner(cx.session)?;
        let held = self.held();
        let durable = held.logs.iter().filter_map(|(id, log)| Some((*id, log.state()?)));
        let own = durable.filter(|(_, volume)| volume.is_ready(owner));
        let volumes: Vec<_> = own.map(|(id, volume)| self.row(&held, id, volume)).collect();
        Ok(VolumeListed { count: volumes.len(), volumes })
    }

    pub(crate) async fn quota(self: Arc<Self>, cx: CallCx, _: VolumeQuota) -> Answer<VolumeUsage> {
        let owner = self.owner(cx.session)?;
        let held = self.held();
        let own: Vec<_> = held.decided().filter(|(_, volume)| volume.owner == owner).collect();
        Ok(VolumeUsage {
            volume_count: own.len(),
            max_volumes: self.options.max_volumes,
            total_bytes_used: own.iter().map(|(id, _)| self.images.held_bytes(*id)).sum(),
            total_allocated_bytes: own.iter().map(|(_, volume)| volume.size_bytes).sum(),
            total_storage_bytes: self.options.max_total_bytes(),
            max_file_size_bytes: MAX_FILE_BYTES as u64,
        })
    }

    fn row_of(&self, id: VolumeId) -> Answer<VolumeRow> {
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

    /// Removes what has expired and unmounts what nothing uses.
    pub(crate) async fn tend(self: &Arc<Self>, now: chrono::DateTime<Utc>) {
        if !*self.all_set.borrow() {
            return;
        }
        let expired = self.held().expired(now);
        for id in expired {
            match self.remove(id, "volume.expired").await {
                Ok(()) => tracing::info!(volume = %id, "an expired volume is removed"),
                // A workspace came first.
                Err(error) if error.is(codes::VOLUME_IN_USE) => {}
                Err(error) => tracing::error!(volume = %id, %error, "an expired volume stays"),
            }
        }
        let all = self.held().all();
        for id in all {
            if let Err(error) = self.unmount_idle(id).await {
                tracing::error!(volume = %id, %error, "a volume stays mounted");
            }
        }
    }

    /// Unmounts all of which nothing is open, once no machine runs any more.
    pub(crate) async fn unmount_all(&self) {
        let all = self.held().all();
        for id in all {
            match self.on_mount(id, move |images| images.unmount(id)).await {
                Ok(true) => {}
                Ok(false) => tracing::warn!(volume = %id, "a volume is in use and stays mounted"),
                Err(error) => tracing::error!(volume = %id, %error, "a volume stays mounted"),
            }
        }
    }

    /// Unmounts a volume that no workspace has and nothing has used for a while.
    async fn unmount_idle(self: &Arc<Self>, id: VolumeId) -> Answer<()> {
        let idle = Duration::from_secs(self.options.idle_unmount_secs);
        let (this, turn) = (self.clone(), self.held().turn(id));
        let done = tokio::task::spawn_blocking(move || {
            let mut used = turn.0.lock().unwrap_or_else(PoisonError::into_inner);
            let is_idle = used.is_some_and(|used| used.elapsed() >= idle);
            // Who attaches it from here on mounts it in a later turn.
            if is_idle && this.held().users(id).is_empty() && this.images.unmount(id)? {
                *used = None;
            }
            Ok(())
        });
        done.await.map_err(lost)?.map_err(|error| failed("unmount", &error))
    }
}

/// Size of a volume for a size that is asked for.
pub(crate) fn rounded(asked_bytes: u64) -> u64 {
    asked_bytes.div_ceil(SIZE_UNIT).saturating_mul(SIZE_UNIT).max(LEAST_BYTES)
}

fn event(kind: &str, id: VolumeId) -> NewEvent {
    NewEvent { kind: kind.to_owned(), subject: id.to_string(), data: json!({}) }
}

fn lost(error: tokio::task::JoinError) -> ToolError {
    ToolError::internal(format!("a volume: {error}"))
}

fn failed(what: &str, error: &io::Error) -> ToolError {
    let message = format!("could not {what} a volume: {error}");
    ToolError::new(Layer::Machine, codes::VOLUME_FAILED, message)
        .next("look at `hivekeep check` and `hivekeep logs` on the host")
}
