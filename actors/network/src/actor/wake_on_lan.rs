//! Wake-on-LAN: a packet for a parked machine has it woken, and reaches it then.
//!
//! ```text
//! parked ──► holds its tap ──► a packet is kept, the machine woken ──► gives the tap up to it
//!                  ▲                          │ fails                            │ awake
//!                  └── after a pause ◄────────┴──── or never went on ◄───────────┴──► packets sent
//! ```
//! The rules have judged by then who reaches it. One task for each parked machine.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::time::Duration;

use hivekeep_kernel::WorkspaceId;
use hivekeep_ports::WorkspacePorts;
use hivekeep_runtime::Ports;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::plan::Mac;
use crate::{Error, apply};

/// Packets that are kept for a machine. More are lost, as on any way.
const MAX_KEPT: usize = 64;
/// Packets that wait in a tap at most, by the kernel's default.
const MAX_QUEUED: usize = 1000;
/// Longest frame, with the header of a tap: an interface of ours has the usual 1,500 bytes.
const FRAME_BYTES: usize = 2048;
/// Time for a machine to be awake.
const WAKE_PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks whether the machine that is being parked has ended.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// After a tap that could not be taken for another reason.
const ERROR_PAUSE: Duration = Duration::from_secs(1);
/// For a machine to take the tap that was given up to it.
const START_PAUSE: Duration = Duration::from_secs(10);
/// After a machine that could not be woken, before a packet has it tried again.
const FAILED_PAUSE: Duration = Duration::from_secs(15);

/// Machine that is woken.
#[derive(Clone)]
pub(super) struct WakeTarget {
    pub(super) workspace: WorkspaceId,
    pub(super) tap: String,
    pub(super) mac: Mac,
    pub(super) ports: Ports,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Parked,
    Starting,
    Awake,
    Over,
}

/// Hold on the task of one machine, which ends without it.
#[derive(Debug)]
pub(super) struct WakeOnLan(watch::Sender<Phase>);

/// Those of all parked machines.
pub(super) type Wakers = BTreeMap<WorkspaceId, WakeOnLan>;

impl WakeOnLan {
    /// The hold, and the work of the task.
    pub(super) fn new(of: WakeTarget) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (phase, told) = watch::channel(Phase::Parked);
        (Self(phase), run(told, of))
    }

    /// Gives the tap up, soon, to a machine that is about to take it.
    pub(super) fn make_way(&self) {
        self.0.send_replace(Phase::Starting);
    }

    /// Sends what is kept to the machine, which goes on.
    pub(super) fn awake(self) {
        self.0.send_replace(Phase::Awake);
    }

    /// Gives the tap up for good. What is kept is lost.
    pub(super) async fn end(self) {
        self.0.send_replace(Phase::Over);
        self.0.closed().await;
    }
}

/// The tap while it is held, the packets that are kept, and the wake that they began.
#[derive(Default)]
struct Waiting {
    tap: Option<AsyncFd<OwnedFd>>,
    kept: Vec<Vec<u8>>,
    wake: JoinSet<bool>,
}

impl Waiting {
    /// Gives the tap up, once what has come is read: the kernel forgets it with its holder.
    fn give_up(&mut self, mac: Mac) {
        let Some(tap) = self.tap.take() else { return };
        let mut frame = vec![0; FRAME_BYTES];
        for _ in 0..MAX_QUEUED {
            let Ok(len) = rustix::io::read(&tap, &mut frame) else { break };
            keep(&mut self.kept, mac, &frame[..len]);
        }
    }
}

/// True for a packet to the machine, which is kept while there is room.
fn keep(kept: &mut Vec<Vec<u8>>, mac: Mac, read: &[u8]) -> bool {
    let Some(packet) = apply::packet_to(mac, read) else { return false };
    if kept.len() < MAX_KEPT {
        kept.push(packet.to_vec());
    }
    true
}

async fn run(mut told: watch::Receiver<Phase>, of: WakeTarget) {
    let mut waiting = Waiting::default();
    loop {
        let pause = match *told.borrow_and_update() {
            Phase::Parked => Duration::ZERO,
            Phase::Starting => START_PAUSE,
            Phase::Awake => break,
            Phase::Over => return,
        };
        tokio::select! {
            changed = told.changed() => if changed.is_err() { return },
            never = watch_tap(pause, &of, &mut waiting) => match never {},
        }
        waiting.give_up(of.mac);
    }
    if !waiting.kept.is_empty() {
        let (tap, kept) = (of.tap.clone(), waiting.kept);
        let sent = tokio::task::spawn_blocking(move || apply::send(&tap, &kept)).await;
        if let Ok(Err(error)) = sent {
            tracing::warn!(workspace = %of.workspace, %error, "packets that woke it are lost");
        }
    }
}

/// Takes the tap as often as nobody else has it, and listens.
async fn watch_tap(pause: Duration, of: &WakeTarget, waiting: &mut Waiting) -> Infallible {
    sleep(pause).await;
    let mut has_failed = false;
    loop {
        let tap = of.tap.clone();
        // A task of the runtime that ends has ended this one.
        let taken = tokio::task::spawn_blocking(move || apply::cable_of_parked(&tap)).await;
        let listened = match taken {
            Ok(Ok(tap)) => {
                let listened = listen(tap, of, waiting).await;
                waiting.tap = None;
                listened
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Ok(()),
        };
        match listened {
            Ok(()) | Err(Error::TapBusy { .. }) => {}
            Err(error) => {
                if !std::mem::replace(&mut has_failed, true) {
                    tracing::warn!(workspace = %of.workspace, %error, "packets do not wake it for now");
                }
                sleep(ERROR_PAUSE).await;
            }
        }
        sleep(BUSY_PAUSE).await;
    }
}

/// Keeps packets and has the machine woken, until the tap is gone.
async fn listen(tap: OwnedFd, of: &WakeTarget, waiting: &mut Waiting) -> Result<(), Error> {
    let failed = || Error::io(format!("listen on {}", of.tap));
    let Waiting { tap: held, kept, wake } = waiting;
    let tap = held.insert(apply::watched(tap).map_err(failed())?);
    let mut frame = vec![0; FRAME_BYTES];
    loop {
        tokio::select! {
            Some(woken) = wake.join_next() => if !woken.unwrap_or(false) {
                // They are old by now, and nobody is to be answered for them.
                kept.clear();
            },
            ready = tap.readable() => {
                let mut ready = ready.map_err(failed())?;
                let Ok(read) = ready.try_io(|tap| Ok(rustix::io::read(tap, &mut frame)?)) else {
                    continue;
                };
                let len = read.map_err(failed())?;
                if keep(kept, of.mac, &frame[..len]) && wake.is_empty() {
                    wake.spawn(self::wake(of.workspace, of.ports.clone()));
                }
            }
        }
    }
}

/// True when a machine is awake; when it is not, after a pause.
pub(super) async fn wake(workspace: WorkspaceId, ports: Ports) -> bool {
    let woken = async {
        let ports = ports.need::<dyn WorkspacePorts>()?;
        ports.wake(workspace, WAKE_PATIENCE).await
    };
    match woken.await {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!(%workspace, %error, "a packet did not wake a machine");
            sleep(FAILED_PAUSE).await;
            false
        }
    }
}
