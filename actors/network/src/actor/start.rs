//! Choice of the network backend, from the configuration, the rights of this process, and the
//! self-test of this kernel.
//!
//! A start of the daemon need not repeat what a start before has proven on the same kernel since
//! the same boot, with the same nft, the same rules and the same settings of the host: the self-test's
//! outcome is kept in a file. A file that is missing, broken or of anything else means that the test
//! runs. `hivekeep check` always runs it. An outcome with checks that could not run is not kept: those
//! are repeated, each time after a longer pause, until it is known.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hivekeep_kernel::Fault;
use serde::{Deserialize, Serialize};

use super::backend::{Backend, ESSENTIAL};
use super::shared::{NetworkShared, hold_all, hold_tag};
use super::{Inner, Msg, NetworkActor};
use crate::capability::{self, ConnectionMeans};
use crate::selftest::{self, NetworkProperty, PropertyFinding, SelfTestReport};
use crate::{Enforcer, Error, HostAccess, NetworkModeChoice};

/// Before each further try of what there is no bridge without.
const PAUSES_SECS: [u64; 4] = [1, 2, 4, 8];

/// Before what the self-test could not check is tried again; doubled each time, up to the last.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LAST_PAUSE: Duration = Duration::from_secs(600);

impl NetworkActor {
    pub(super) fn find_backend(&self) {
        self.me.address.probe().set_state("testing");
        let (shared, actor) = (self.shared.clone(), self.me.address.clone());
        let _detached = self.me.workers.spawn(async move {
            let found = backend(&shared).await;
            // An actor that is gone is followed by one that looks again.
            let _ = actor.send(Msg(Inner::Found(found)));
        });
    }

    /// Begins to keep the network, now that its backend is known.
    pub(super) fn stand(&mut self, backend: Arc<Backend>) -> Result<(), Fault> {
        tracing::info!(mode = ?backend.mode(), tag = %self.shared.tag, "the network");
        self.backend = Some(backend.clone());
        match &*backend {
            Backend::Bridge { .. } => self.start_worker()?,
            // Machines of a daemon before may run, with ports of their own.
            Backend::User { .. } => {
                self.applied = self.generation;
                self.in_force = Arc::new(self.durable.clone());
                let members = self.durable.members().collect::<Vec<_>>();
                let running = members.iter().filter(|(_, member)| !member.parked);
                running.for_each(|(id, member)| self.held.hand_over(*id, member));
            }
            Backend::Off { .. } => {}
        }
        self.hold_ports();
        self.test_again(FIRST_PAUSE);
        self.show();
        self.say_condition();
        self.shared.backend.send_replace(Some(backend));
        Ok(())
    }

    /// Has the self-test repeat what it could not check, where there is such.
    fn test_again(&self, pause: Duration) {
        let Some(Backend::Bridge { report }) = self.backend.as_deref() else { return };
        if report.unknown().next().is_none() {
            return;
        }
        let (shared, actor, report) =
            (self.shared.clone(), self.me.address.clone(), report.clone());
        let _detached = self.me.workers.spawn(async move {
            let outcome = test_again(&shared, report, pause).await;
            // An actor that is gone is followed by one that tests again.
            let _ = actor.send(Msg(Inner::Tested(outcome, pause)));
        });
    }

    pub(super) fn tested(&mut self, outcome: Result<SelfTestReport, Error>, pause: Duration) {
        match outcome {
            Ok(report) => {
                let backend = Arc::new(Backend::Bridge { report });
                self.backend = Some(backend.clone());
                self.shared.backend.send_replace(Some(backend));
                self.show();
                self.say_condition();
            }
            Err(error) => tracing::warn!(%error, "the network's self-test could not be repeated"),
        }
        self.test_again((pause * 2).min(LAST_PAUSE));
    }
}

/// Decides. Takes some seconds where the self-test has to run.
///
/// # Errors
/// What stands against a bridge, if there has to be one.
async fn backend(shared: &NetworkShared) -> Result<Backend, Error> {
    let reason = match shared.options.mode {
        NetworkModeChoice::Off => {
            return Ok(Backend::Off { reason: "network.mode is \"off\"".to_owned() });
        }
        NetworkModeChoice::User => "network.mode is \"user\"".to_owned(),
        NetworkModeChoice::Auto => match bridge(shared).await {
            Ok(backend) => return Ok(backend),
            Err(error) => error.to_string(),
        },
        NetworkModeChoice::Bridge => return bridge(shared).await,
    };
    Ok(Backend::User { reason })
}

async fn bridge(shared: &NetworkShared) -> Result<Backend, Error> {
    let nft = possible(shared).await?;
    let access = shared.options.access();
    let mut report = find(&access, &nft, &shared.state_dir).await?;
    let essential = |finding: &&PropertyFinding| ESSENTIAL.contains(&finding.property);
    for pause_secs in PAUSES_SECS {
        let unknown: Vec<_> = report.unknown().filter(essential).map(|f| f.property).collect();
        if unknown.is_empty() {
            break;
        }
        tracing::warn!(?unknown, "the network's self-test could not look; again soon");
        tokio::time::sleep(Duration::from_secs(pause_secs)).await;
        report = again((&access, &nft, &shared.state_dir), report, unknown).await?;
    }
    if let Some(fatal) = report.broken().find(essential) {
        let seen = fatal.reason().to_owned();
        return Err(Error::NotProven { property: fatal.property, seen });
    }
    if let Some(fatal) = report.unknown().find(essential) {
        let why = fatal.reason().to_owned();
        return Err(Error::NotChecked { property: fatal.property, why });
    }
    Ok(Backend::Bridge { report })
}

/// Repeats, after a pause, the checks that could not be made before.
///
/// # Errors
/// As the self-test.
async fn test_again(
    shared: &NetworkShared,
    report: SelfTestReport,
    pause: Duration,
) -> Result<SelfTestReport, Error> {
    tokio::time::sleep(pause).await;
    let access = shared.options.access();
    let nft = capability::detect(&access).await.nft.unwrap_or_default();
    let unknown = report.unknown().map(|finding| finding.property).collect();
    again((&access, &nft, &shared.state_dir), report, unknown).await
}

/// Looks whether there can be a bridge, and reserves its names and its subnet. Which nft there is.
///
/// # Errors
/// What is missing.
pub(super) async fn possible(shared: &NetworkShared) -> Result<String, Error> {
    let access = shared.options.access();
    let found = capability::detect(&access).await;
    if found.means != ConnectionMeans::Bridge {
        return Err(Error::Missing { what: found.missing.join("; ") });
    }
    if shared.lock.get().is_none() {
        let mut held = vec![hold_tag(&shared.tag)?];
        if shared.chosen.is_none() {
            held.extend(hold_all(shared.subnet)?);
        }
        // Nobody else takes them in this process.
        let _ = shared.lock.set(held);
    }
    Enforcer::open(access)?.check_subnet(&shared.blank()).await?;
    Ok(found.nft.unwrap_or_default())
}

/// Inputs that the outcome depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct TestInputs {
    boot_id: String,
    kernel: String,
    nft: String,
    version: String,
    /// Fingerprint of the rules of a plan with every kind of rule.
    rules: String,
    /// Settings of the host that bear upon the rules.
    settings: Vec<(String, String)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    ground: TestInputs,
    report: SelfTestReport,
}

/// The outcome for this kernel, from the file or from a test that runs now.
///
/// # Errors
/// When the test cannot be set up.
async fn find(access: &HostAccess, nft: &str, state_dir: &Path) -> Result<SelfTestReport, Error> {
    let file = state_dir.join("network-selftest.json");
    let ground = test_inputs(nft)?;
    if let Some(report) = stored(&file, &ground).await {
        tracing::info!("the network's self-test was passed on this kernel before");
        return Ok(report);
    }
    let began = std::time::Instant::now();
    let report = selftest::run(access.clone()).await?;
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let broken: Vec<_> = report.broken().map(|finding| finding.property).collect();
    tracing::info!(took_ms, ?broken, "the network's self-test");
    keep(file, ground, &report).await;
    Ok(report)
}

/// The checks of some properties once more, put into what is known of the others.
///
/// # Errors
/// As [`find`].
async fn again(
    (access, nft, state_dir): (&HostAccess, &str, &Path),
    mut report: SelfTestReport,
    properties: Vec<NetworkProperty>,
) -> Result<SelfTestReport, Error> {
    let wanted = move |property| properties.contains(&property);
    report.renew(selftest::some(access.clone(), wanted).await?);
    keep(state_dir.join("network-selftest.json"), test_inputs(nft)?, &report).await;
    Ok(report)
}

fn test_inputs(nft: &str) -> Result<TestInputs, Error> {
    let path = "/proc/sys/kernel/random/boot_id";
    let boot_id = std::fs::read_to_string(path).map_err(Error::io(format!("read {path}")))?;
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    Ok(TestInputs {
        boot_id: boot_id.trim().to_owned(),
        kernel,
        nft: nft.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        rules: capability::fingerprint()?,
        settings: selftest::test_network::settings(),
    })
}

async fn stored(file: &Path, ground: &TestInputs) -> Option<SelfTestReport> {
    let bytes = tokio::fs::read(file).await.ok()?;
    let stored: Stored = serde_json::from_slice(&bytes).ok()?;
    (stored.ground == *ground).then_some(stored.report)
}

/// Whole or not at all. Without it the next start takes some seconds longer to promise things.
async fn keep(file: PathBuf, ground: TestInputs, report: &SelfTestReport) {
    if report.unknown().next().is_some() {
        return;
    }
    let stored = Stored { ground, report: report.clone() };
    let write = move || hivekeep_fs::replace(&file, 0o666, &serde_json::to_vec(&stored)?);
    let written = tokio::task::spawn_blocking(write).await;
    if !matches!(written, Ok(Ok(()))) {
        tracing::warn!(?written, "the self-test's outcome was not kept");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_outcome_counts_on_the_ground_it_was_found_on_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("outcome.json");
        let ground = test_inputs("nftables v1").unwrap();
        assert_eq!(stored(&file, &ground).await, None);
        let report = SelfTestReport { findings: Vec::new() };
        let property = NetworkProperty::Groups;
        let unknown =
            PropertyFinding { property, holds: false, unknown: true, evidence: Vec::new() };
        keep(file.clone(), ground.clone(), &SelfTestReport { findings: vec![unknown] }).await;
        assert_eq!(stored(&file, &ground).await, None);
        keep(file.clone(), ground.clone(), &report).await;
        assert_eq!(stored(&file, &ground).await, Some(report));
        for other in [
            TestInputs { boot_id: "another".into(), ..ground.clone() },
            TestInputs { nft: "nftables v2".into(), ..ground.clone() },
            TestInputs { rules: "others".into(), ..ground.clone() },
            TestInputs { settings: vec![("rp_filter".into(), "1".into())], ..ground.clone() },
        ] {
            assert_eq!(stored(&file, &other).await, None, "{other:?}");
        }
        std::fs::write(&file, "{").unwrap();
        assert_eq!(stored(&file, &ground).await, None);
    }
}
