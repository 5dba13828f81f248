//! The self-test's outcome, kept for as long as it says something of this kernel.
//!
//! A start of the daemon need not repeat what a start before has proven on the same kernel since
//! the same boot, with the same nft, the same rules and the same settings of the host. A file
//! that is missing, broken or of anything else means that the test runs. `hivekeep check` always
//! runs it. An outcome with checks that could not run is not kept: those are repeated, each time
//! after a longer pause, until it is known.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::selftest::{self, NetworkProperty, SelfTestReport};
use crate::{Error, HostAccess, capability};

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
pub(super) async fn find(
    access: &HostAccess,
    nft: &str,
    state_dir: &Path,
) -> Result<SelfTestReport, Error> {
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
pub(super) async fn again(
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
        settings: selftest::test_network::configure::settings(),
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
    use crate::selftest::PropertyFinding;

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
