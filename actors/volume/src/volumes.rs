//! Volumes of all users: a service over one log for each volume. Its durable timer goes, each time it looks,
//! by what the records say.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use cap_std::fs::Dir;
use chrono::{DateTime, Utc};
use hivekeep_kernel::{CallCx, Layer, Room, ToolError, User, VolumeId, lock};
use hivekeep_ports::SessionQuotas;
use hivekeep_runtime::{
    Daemon, Ports,
    log::{self, Log},
};
use hivekeep_store::Journal;
use tokio::sync::watch;

use crate::{
    Options, codes,
    images::{self, VolumeImages},
    volume::{Held, Volume, VolumePhase, VolumeResult},
};

/// Kinds of a user's things, for tiers: volumes, and their sizes together in MiB.
pub(crate) const HELD_VOLUMES: &str = "volumes";
pub(crate) const HELD_MB: &str = "volume_mb";

/// Volumes of all users.
pub(crate) struct VolumeService {
    pub(crate) options: Options,
    pub(crate) journal: Journal,
    pub(crate) sessions: Arc<dyn SessionQuotas>,
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
            unsupported: images::missing().into_iter().next().map(|(what, ..)| what),
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
        lock(&self.held)
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
            let mut used = lock(&turn.0);
            *used = Some(Instant::now());
            work(&images)
        });
        done.await.map_err(lost)?.map_err(|error| failed("mount or change", &error))
    }

    /// A volume's root, mounted, for the user of a session. It stays mounted while the handle is open.
    pub(crate) async fn opened(&self, cx: &CallCx, asked: &str) -> VolumeResult<(VolumeId, Dir)> {
        let owner = self.sessions.caller(cx.session)?;
        let (id, _) = self.held().usable(owner, asked, Utc::now())?;
        self.supported()?;
        Ok((id, self.on_mount(id, move |images| images.mount(id)).await?))
    }

    async fn remove_files(&self, name: String) -> VolumeResult<()> {
        let images = self.images.clone();
        let removed = tokio::task::spawn_blocking(move || images.remove(&name)).await;
        removed.map_err(lost)?.map_err(|error| failed("remove", &error))
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

/// How often expiries and unused mounts are looked for. Times are given in hours.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(15);

impl VolumeService {
    /// Removes what has expired and unmounts what nothing uses.
    pub(crate) async fn tend(self: &Arc<Self>, now: DateTime<Utc>) {
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
    async fn unmount_idle(self: &Arc<Self>, id: VolumeId) -> VolumeResult<()> {
        let idle = Duration::from_secs(self.options.idle_unmount_secs);
        let (this, turn) = (self.clone(), self.held().turn(id));
        let done = tokio::task::spawn_blocking(move || {
            let mut used = lock(&turn.0);
            let is_idle = used.is_some_and(|used| used.elapsed() >= idle);
            // A caller that attaches the volume from here on mounts it in a later turn.
            if is_idle && this.held().users(id).is_empty() && this.images.unmount(id)? {
                *used = None;
            }
            Ok(())
        });
        done.await.map_err(lost)?.map_err(|error| failed("unmount", &error))
    }
}
