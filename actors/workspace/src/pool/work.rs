//! Making and removing machines of the pool, by the ways that all workspaces are made and removed.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{Address, CallCx, CallId, Door, SessionId, ToolError, WorkspaceId};
use hivekeep_ports::{NetworkMode, NetworkRequest};
use tokio::time::Instant;

use crate::{
    claims::ForkSource,
    codes,
    directory::DirectoryEntry,
    lifecycle::create::make_one,
    machine::images::image_name,
    manager,
    messages::{LifecycleMsg, PooledMsg, SnapshotMsg, SnapshotRequest},
    phase::Phase,
    pool::{MadeOf, Order, Outcome, Pooled, Role, WorkspaceSpec},
    records::Planned,
    shared::Shared,
    traffic::Passing,
};

/// Name of a template's snapshot.
const SNAPSHOT: &str = "pool";
/// Time without creations before the next machine is made: a new owner runs something first.
const CALM: Duration = Duration::from_millis(50);
/// How long creations that people wait for may delay one of the pool's.
const GIVE_WAY: Duration = Duration::from_secs(10);
/// Time for each request to a machine: fork source, stop, snapshot, rehearsal.
const PATIENCE: Duration = Duration::from_secs(60);
const DISCARD_PATIENCE: Duration = Duration::from_secs(60);
/// A removal that failed is tried again after this.
pub(super) const DISCARD_AGAIN_IN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// Shared state of the pool's work.
pub(super) struct Work {
    pub(super) shared: Arc<Shared>,
    pub(crate) manager: Address<manager::Msg>,
    pub(super) session: SessionId,
}

impl Work {
    /// Carries out an order that has an outcome; `known` is the last known digest of the class. Returns
    /// the traffic count of what was made too, to be kept until the pool knows the outcome.
    pub(super) async fn outcome(
        &self,
        order: Order,
        spec: WorkspaceSpec,
        known: Option<MadeOf>,
    ) -> (Outcome, Option<Passing>) {
        let now = match made_of(&self.shared, &spec).await {
            Ok(now) => now,
            Err(error) => return (Outcome::Failed(error.to_text()), None),
        };
        if known.as_ref() != Some(&now) || matches!(order, Order::Look(_)) {
            return (Outcome::Looked(now), None);
        }
        self.shared.traffic.quiet(CALM, GIVE_WAY).await;
        let making = self.shared.traffic.make();
        let outcome = match order {
            Order::Template(_) => self.template(spec, now).await,
            Order::Finish(_, id) => self.finish(id, now).await,
            Order::Member(_, template) => self.member(spec, now, template).await,
            Order::Look(_) | Order::Discard(_) => Outcome::Looked(now),
        };
        (outcome, Some(making))
    }

    async fn template(&self, spec: WorkspaceSpec, made_of: MadeOf) -> Outcome {
        let plan = match self.plan(spec, &made_of, Role::Template) {
            Ok(plan) => plan,
            Err(error) => return Outcome::Failed(error.to_text()),
        };
        let id = plan.id;
        if let Err(error) = self.make(plan).await {
            return failed(&error);
        }
        if let Err(error) = self.save(id).await {
            self.discard(id).await;
            let reason = format!("a machine of it could not be saved: {}", error.to_text());
            return Outcome::NoCopies(reason);
        }
        self.finish(id, made_of).await
    }

    /// Stops a template that was saved: its copies need only its files.
    async fn finish(&self, id: WorkspaceId, made_of: MadeOf) -> Outcome {
        let settled = |phase| !matches!(phase, Phase::Creating | Phase::Starting | Phase::Stopping);
        let stopped = async {
            let card = self.wait(id, settled).await?;
            self.fork_source(&card).await?;
            if card.phase != Phase::Stopped {
                card.address.ask(PATIENCE, |done| LifecycleMsg::Stop(done).into()).await?;
                self.wait(id, |phase| phase == Phase::Stopped).await?;
            }
            Ok::<_, ToolError>(())
        };
        match stopped.await {
            Ok(()) => Outcome::Template(id, made_of),
            Err(error) => Outcome::Unfit(id, error.to_text()),
        }
    }

    async fn member(
        &self,
        spec: WorkspaceSpec,
        made_of: MadeOf,
        template: Option<WorkspaceId>,
    ) -> Outcome {
        let copied = async {
            let Some(template) = template else { return Ok(None) };
            let card = self.shared.directory.any(template);
            let gone = || ToolError::internal("the machine is gone");
            self.fork_source(&card.ok_or_else(gone)?).await.map(Some)
        };
        let source = match (copied.await, template) {
            (Ok(source), _) => source,
            (Err(error), Some(template)) => return Outcome::Unfit(template, error.to_text()),
            (Err(error), None) => return Outcome::Failed(error.to_text()),
        };
        let plan = self.plan(spec, &made_of, Role::Member).and_then(|plan| match &source {
            None => Ok(plan),
            Some(source) => {
                let Planned { id, name, spec, pool, .. } = plan;
                let fork = source.plan(&self.cx(), id, name, spec, true)?;
                // The policy is that of a machine made from nothing, whatever the template's is by now.
                Ok(Planned { pool, network: NetworkRequest::default(), ..fork })
            }
        });
        let plan = match plan {
            Ok(plan) => plan,
            Err(error) => return Outcome::Failed(error.to_text()),
        };
        let id = plan.id;
        match (self.ready(plan).await, template) {
            (Ok(()), _) => Outcome::Member(id, made_of),
            (Err(error), Some(template)) if of_no_use(&error) => {
                Outcome::Unfit(template, error.to_text())
            }
            (Err(error), _) => failed(&error),
        }
    }

    /// Makes a machine and rehearses a claim and a first command in it.
    async fn ready(&self, plan: Planned) -> Result<(), ToolError> {
        let id = plan.id;
        self.make(plan).await?;
        let rehearsed = async {
            let card = self.wait(id, |phase| phase == Phase::Running).await?;
            card.address.ask(PATIENCE, |done| PooledMsg::Rehearse(done).into()).await?
        };
        let rehearsed = rehearsed.await;
        if rehearsed.is_err() {
            self.discard(id).await;
        }
        rehearsed
    }

    /// Makes a machine; nothing is left of one that could not be made.
    async fn make(&self, plan: Planned) -> Result<(), ToolError> {
        let id = plan.id;
        let made = make_one(&self.shared, &self.manager, &self.cx(), plan).await;
        if made.is_err() {
            self.discard(id).await;
        }
        made.map(drop)
    }

    async fn save(&self, id: WorkspaceId) -> Result<(), ToolError> {
        let card = self.wait(id, |phase| phase == Phase::Running).await?;
        let (cx, session, name) = (self.cx(), card.planned_by, SNAPSHOT.to_owned());
        let saving = |reply| {
            SnapshotMsg::Make(Box::new(SnapshotRequest { cx, session, name, reply })).into()
        };
        card.address.ask(PATIENCE, saving).await??;
        Ok(())
    }

    async fn fork_source(&self, card: &DirectoryEntry) -> Result<ForkSource, ToolError> {
        let (session, snapshot) = (card.planned_by, SNAPSHOT.to_owned());
        let asking = |reply| SnapshotMsg::ForkSource { session, snapshot, reply }.into();
        card.address.ask(PATIENCE, asking).await?
    }

    /// Removes a machine; true when nothing of it is left.
    pub(super) async fn discard(&self, id: WorkspaceId) -> bool {
        let Some(card) = self.shared.directory.any(id) else { return true };
        let discard = |done| PooledMsg::Discard(done).into();
        let outcome = match card.address.ask(DISCARD_PATIENCE, discard).await {
            Ok(outcome) => outcome,
            Err(error) => Err(error.into()),
        };
        match outcome {
            Err(error) if self.shared.directory.knows(id) => {
                tracing::warn!(workspace = %id, %error, "a machine of the pool is not gone yet");
                false
            }
            _ => true,
        }
    }

    async fn wait(
        &self,
        id: WorkspaceId,
        like: impl Fn(Phase) -> bool,
    ) -> Result<DirectoryEntry, ToolError> {
        let patience = Duration::from_secs(self.shared.options.boot_timeout_secs);
        let begun = Instant::now();
        loop {
            let card = self.shared.directory.any(id);
            let card = card.ok_or_else(|| ToolError::internal("the machine is gone"))?;
            if like(card.phase) {
                return Ok(card);
            }
            if begun.elapsed() > patience {
                let message = format!("the machine stays {}", card.phase.word());
                return Err(ToolError::internal(message));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn plan(
        &self,
        spec: WorkspaceSpec,
        made_of: &MadeOf,
        role: Role,
    ) -> Result<Planned, ToolError> {
        let id = WorkspaceId::new();
        Ok(Planned {
            pool: Some(Pooled { role, made_of: made_of.clone() }),
            ..Planned::new(id, crate::pool::name(id)?, self.session, spec)?
        })
    }

    fn cx(&self) -> CallCx {
        let patience = Duration::from_secs(self.shared.options.boot_timeout_secs * 2);
        CallCx {
            id: CallId::new(),
            session: self.session,
            tool: "internal",
            caller: None,
            door: Door::Internal,
            view: Default::default(),
            deadline: Instant::now() + patience,
            cancel: Default::default(),
            progress: Default::default(),
            receipt: Default::default(),
            slot: Default::default(),
            reserved: None,
            trace: None,
            client: None,
            effect: None,
            span: tracing::info_span!("pool"),
        }
    }
}

fn failed(error: &ToolError) -> Outcome {
    match error.is(codes::TOO_MANY_WORKSPACES) {
        true => Outcome::Crowded(error.to_text()),
        false => Outcome::Failed(error.to_text()),
    }
}

/// Whether an error means that the template must be discarded at once.
fn of_no_use(error: &ToolError) -> bool {
    error.is_any(&[codes::SNAPSHOT_DOES_NOT_FIT, codes::SNAPSHOT_DAMAGED])
}

/// The digest of what a machine would be made from now. Reads file stamps; reads the image's content the
/// first time only.
///
/// # Errors
/// When the image is not there or not whole.
pub(crate) async fn made_of(shared: &Shared, spec: &WorkspaceSpec) -> Result<MadeOf, ToolError> {
    let name = image_name(&spec.image)?;
    let image = shared.images.resolve(name).await?;
    let driver = shared.driver(spec.isolation)?;
    let facts = driver.facts();
    let mut digest = blake3::Hasher::new();
    let mut add = |part: &[u8]| {
        digest.update(&(part.len() as u64).to_le_bytes());
        digest.update(part);
    };
    add(env!("CARGO_PKG_VERSION").as_bytes());
    // Objects are named by their content.
    for path in [image.kernel(), image.initrd(), Some(image.rootfs())].into_iter().flatten() {
        add(path.as_os_str().as_encoded_bytes());
    }
    if let Some(defaults) = image.defaults() {
        add(format!("{defaults:?}").as_bytes());
    }
    add(facts.program.as_bytes());
    add(facts.carrier.as_str().as_bytes());
    add(format!("{:?}", facts.accelerator).as_bytes());
    // A memory that was saved without an interface gets none later.
    add(match shared.network.mode().await? {
        NetworkMode::Bridge => b"bridge",
        NetworkMode::User { .. } => b"user",
        NetworkMode::Off { .. } => b"off",
    });
    // The guest daemon may be installed anew under a daemon that runs.
    if let Ok(guest) = tokio::fs::metadata(&shared.options.driver.guest_path).await {
        use std::os::unix::fs::MetadataExt;
        let stamp = [guest.dev(), guest.ino(), guest.size(), guest.mtime() as u64];
        stamp.iter().for_each(|part| add(&part.to_le_bytes()));
        add(&guest.mtime_nsec().to_le_bytes());
    }
    Ok(MadeOf(digest.finalize().to_hex()[..32].to_owned()))
}
