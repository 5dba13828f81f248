//! Supervised llama.cpp server: a sandboxed process on the host's network, where it listens.

use std::{process::Stdio, sync::Arc, time::Duration};

use hivekeep_kernel::{Backoff, Children, Context, Entity, Fault, GiveUp, Restart, RestartPolicy};
use hivekeep_runtime::host_process::{
    self, HostBounds, HostChild, HostProgram, HostSandbox, PROGRAM_PATH, StderrTail,
};
use tokio::{fs::DirBuilder, time::sleep};

use super::ProviderShared;
use crate::ModelProviderKind;

/// Pause between two checks whether the server answers.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Time limit of such a check.
const LOOK_LIMIT: Duration = Duration::from_secs(5);
/// Home of the server within its sandbox.
const HOME: &str = "/srv/model";
/// Processes and threads of one server.
const MOST_PROCESSES: u64 = 4096;
/// A server that fails is started again, with growing pauses, and stays down if failures go on.
const POLICY: RestartPolicy = RestartPolicy {
    restart: Restart::Always,
    max_restarts: 10,
    window_secs: 600,
    backoff: Backoff { initial_ms: 500, max_ms: 30_000 },
    give_up: GiveUp::StayDown,
};

/// State of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum ServerState {
    /// Not started by the daemon: somebody else's server, or not there yet.
    #[default]
    Unknown,
    /// Loading its model.
    Starting,
    Ready,
    /// Ended, for this reason.
    Down(String),
}

/// Starts the server of a provider that has one.
pub(super) fn start(children: &mut Children, shared: &Arc<ProviderShared>) -> Result<(), Fault> {
    if shared.options.kind != ModelProviderKind::LlamaServer {
        return Ok(());
    }
    let address = children.address("server", "model-server", POLICY);
    children.start::<ModelServer>("server", POLICY, &address, shared.clone())
}

/// Notice that the process ended, with the reason.
pub(crate) struct ServerEnded(String);

struct ModelServer {
    shared: Arc<ProviderShared>,
}

impl Entity for ModelServer {
    type Msg = ServerEnded;
    type Args = Arc<ProviderShared>;

    async fn start(shared: Arc<ProviderShared>, me: Context<ServerEnded>) -> Result<Self, Fault> {
        shared.server.send_replace(ServerState::Starting);
        let (child, tail) = spawn(&shared).await.map_err(|why| down(&shared, why))?;
        let seen = shared.clone();
        me.address.probe().set_detail(move || Some(format!("{:?}", *seen.server.borrow())));
        let address = me.address.clone();
        // The process ends with this worker, and the worker with the actor.
        let watched = watch(shared.clone(), child, tail);
        let _detached = me.workers.spawn(async move {
            let why = watched.await;
            // If the address is gone, the actor has ended already.
            let _ = address.send(ServerEnded(why));
        });
        Ok(Self { shared })
    }

    fn handle(&mut self, ServerEnded(why): ServerEnded) -> Result<(), Fault> {
        Err(down(&self.shared, why))
    }
}

fn down(shared: &ProviderShared, why: String) -> Fault {
    shared.server.send_replace(ServerState::Down(why.clone()));
    Fault::new(why)
}

async fn spawn(shared: &ProviderShared) -> Result<(HostChild, StderrTail), String> {
    let home = &shared.home;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(home).await;
    made.map_err(|error| format!("its folder {} cannot be made: {error}", home.display()))?;
    let folders: Vec<_> = shared.options.folders.iter().map(|it| format!("{it}:ro")).collect();
    let sandbox = HostSandbox {
        hostname: "model",
        uid: shared.users.uid(HostProgram::Model(shared.name.as_str())),
        home: (home, HOME),
        network: true,
        etc: host_process::ETC,
        folders: &folders,
        tmp_mb: None,
        nests: false,
        bounds: HostBounds { memory_mb: None, processes: MOST_PROCESSES },
    };
    let mut command = sandbox.command().await?;
    command
        .args(&shared.options.command)
        .env_clear()
        .envs([("PATH", PROGRAM_PATH), ("LANG", "C.UTF-8"), ("HOME", HOME)])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = HostChild::spawn(command, home)?;
    let stderr = child.stderr().ok_or("it has no standard error")?;
    Ok((child, StderrTail::of(stderr)))
}

/// Waits until the server answers, and then for its end; returns the reason.
async fn watch(shared: Arc<ProviderShared>, mut child: HostChild, mut tail: StderrTail) -> String {
    let ready = async {
        loop {
            let backend = shared.backend();
            if let Some(backend) = backend
                && backend.list(LOOK_LIMIT).await.is_ok()
            {
                break shared.server.send_replace(ServerState::Ready);
            }
            sleep(LOOK_EVERY).await;
        }
    };
    let ended = tokio::select! {
        _ = ready => false,
        _ = child.wait() => true,
    };
    if !ended {
        let _told_below = child.wait().await;
    }
    tail.last_words(&mut child).await
}
