//! The actor, as the daemon has it: with a journal, in a namespace that is its host.

mod empty;
mod flow;
mod groups;
mod guests;
mod life;
mod trouble;
mod wake;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hivekeep_kernel::{Address, Census, RestartPolicy, WorkspaceId, entity::spawn_root};
use hivekeep_network::selftest::test_network::TestNetwork;
use hivekeep_network::{HostAccess, NetworkActor, NetworkHandle, NetworkModeChoice, Options};
use hivekeep_ports::{GroupChange, Network as _, NetworkMode, NetworkRequest, ReachPolicy};
use hivekeep_runtime::Ports;
use hivekeep_store::Journal;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon's part of it. To be used in a namespace's runtime.
pub(super) struct Daemon {
    pub(super) network: NetworkHandle,
    pub(super) journal: Journal,
    pub(super) census: Census,
    /// What other families offer.
    pub(super) ports: Ports,
    address: Address<hivekeep_network::Msg>,
    cell: ractor::ActorCell,
    ended: tokio::task::JoinHandle<()>,
}

pub(super) fn options(mode: NetworkModeChoice) -> Options {
    let dns_upstreams = vec![([127, 0, 0, 1], 5353).into()];
    Options { mode, tag: Some("test".parse().unwrap()), dns_upstreams, ..Options::default() }
}

/// What the self-test found is the same for all tests of this boot.
fn shared_outcome() -> PathBuf {
    std::env::temp_dir().join("hivekeep-network-selftest-of-tests.json")
}

impl Daemon {
    /// Starts one on what is in a folder.
    pub(super) async fn start(folder: &Path, options: Options) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let outcome = folder.join("network-selftest.json");
        if !outcome.exists() {
            // The first test makes it.
            let _ = std::fs::copy(shared_outcome(), &outcome);
        }
        let daemon = Self::untested(folder, options).await;
        if daemon.network.mode().await.unwrap() == NetworkMode::Bridge {
            let fresh = shared_outcome().with_extension(std::process::id().to_string());
            std::fs::copy(&outcome, &fresh).unwrap();
            std::fs::rename(fresh, shared_outcome()).unwrap();
        }
        daemon
    }

    /// One that knows nothing of what other tests' self-tests found.
    pub(super) async fn untested(folder: &Path, options: Options) -> Self {
        let dir = folder.join("journal");
        let (journal, _) =
            Journal::open(hivekeep_store::Options { dir, ..Default::default() }).unwrap();
        let census = Census::default();
        let address = Address::vacant(census.probe("network", "network", RestartPolicy::TEMPORARY));
        let (state_dir, ports) = (folder.to_owned(), Ports::default());
        let journals = journal.clone();
        let opened =
            hivekeep_network::open(options, state_dir, journals, address.clone(), ports.clone());
        let (network, seed) = opened.await.unwrap();
        let (cell, ended) = spawn_root::<NetworkActor>(&address, seed).await.unwrap();
        network.mode().await.unwrap();
        Self { network, journal, census, ports, address, cell, ended }
    }

    /// As a daemon that stops and leaves its machines running.
    pub(super) async fn stop(self) {
        self.cell.stop(None);
        self.ended.await.unwrap();
        let Self { network, journal, address, .. } = self;
        drop((network, address));
        journal.close().await;
    }

    pub(super) fn state(&self) -> String {
        self.census.rows()[0].state.clone()
    }

    /// Messages that the actor has handled.
    pub(super) fn handled(&self) -> u64 {
        self.census.rows()[0].handled
    }

    /// The kinds of the events so far.
    pub(super) fn events(&self) -> Vec<String> {
        let page = self.journal.events().read(hivekeep_store::Seq::FIRST, 1000).unwrap();
        page.events.into_iter().map(|event| event.kind).collect()
    }
}

pub(super) fn request(policy: &ReachPolicy) -> NetworkRequest {
    let policy = policy.clone();
    NetworkRequest {
        allow_internet: Some(policy.allow_internet),
        allow_inter_vm: Some(policy.allow_inter_vm),
        allowed_ports: Some(policy.allowed_ports),
        egress_allow: Some(policy.egress_allow),
        group: Some(policy.group.map_or(GroupChange::Leave, GroupChange::Join)),
    }
}

/// Runs a test on a stage's host.
pub(super) fn on_stage<F: Future<Output = ()>>(work: impl FnOnce(PathBuf) -> F + Send + 'static) {
    let stage = TestNetwork::new(HostAccess::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    stage.host.block_on(move || work(path));
}

/// What a program says in the namespace of the calling thread.
pub(super) fn said(line: &str) -> String {
    let mut words = line.split(' ');
    let output = std::process::Command::new(words.next().unwrap()).args(words).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The taps that are there.
pub(super) fn taps() -> Vec<String> {
    let listed = said("ip -o link show type tun");
    let mut taps: Vec<_> = listed
        .lines()
        .filter_map(|line| Some(line.split(": ").nth(1)?.to_owned()))
        .filter(|name| name.starts_with("test-t"))
        .collect();
    taps.sort_unstable();
    taps
}

/// Waits for something that comes by itself.
pub(super) async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < end, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(super) fn ids<const N: usize>() -> [WorkspaceId; N] {
    [(); N].map(|()| WorkspaceId::new())
}
