//! Choice of the network backend, from the configuration, the rights of this process, and the
//! self-test of this kernel.

use std::time::Duration;

use super::backend::{Backend, ESSENTIAL};
use super::shared::NetworkShared;
use super::{place, selftest_cache};
use crate::capability::{self, ConnectionMeans};
use crate::selftest::{PropertyFinding, SelfTestReport};
use crate::{Enforcer, Error, NetworkModeChoice};

/// Before each further try of what there is no bridge without.
const PAUSES_SECS: [u64; 4] = [1, 2, 4, 8];

/// Decides. Takes some seconds where the self-test has to run.
///
/// # Errors
/// What stands against a bridge, if there has to be one.
pub(super) async fn backend(shared: &NetworkShared) -> Result<Backend, Error> {
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
    let mut report = selftest_cache::find(&access, &nft, &shared.state_dir).await?;
    let essential = |finding: &&PropertyFinding| ESSENTIAL.contains(&finding.property);
    for pause_secs in PAUSES_SECS {
        let unknown: Vec<_> = report.unknown().filter(essential).map(|f| f.property).collect();
        if unknown.is_empty() {
            break;
        }
        tracing::warn!(?unknown, "the network's self-test could not look; again soon");
        tokio::time::sleep(Duration::from_secs(pause_secs)).await;
        report = selftest_cache::again((&access, &nft, &shared.state_dir), report, unknown).await?;
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
pub(super) async fn test_again(
    shared: &NetworkShared,
    report: SelfTestReport,
    pause: Duration,
) -> Result<SelfTestReport, Error> {
    tokio::time::sleep(pause).await;
    let access = shared.options.access();
    let nft = capability::detect(&access).await.nft.unwrap_or_default();
    let unknown = report.unknown().map(|finding| finding.property).collect();
    selftest_cache::again((&access, &nft, &shared.state_dir), report, unknown).await
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
        let mut held = vec![place::hold_tag(&shared.tag)?];
        if shared.chosen.is_none() {
            held.extend(place::hold_all(shared.subnet)?);
        }
        // Nobody else takes them in this process.
        let _ = shared.lock.set(held);
    }
    Enforcer::open(access)?.check_subnet(&shared.blank()).await?;
    Ok(found.nft.unwrap_or_default())
}
