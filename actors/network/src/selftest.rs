//! Proves with packets that the rules hold on this kernel.
//!
//! ```text
//!   world ── veth ── host ── bridge ═ tap ═ stand-in a
//!   198.51.100.1     the rules,      └════ tap ═ stand-in b
//!   and others       as in earnest
//! ```
//! Everything happens in network namespaces without names: they and all that is in them are gone
//! when the test ends, also when its process is killed, and the host's own network is never
//! touched. The host's part is set up by the same [`crate::Enforcer`] as the real one; a stand-in
//! is what a machine is to the host, a process that holds a tap.
//!
//! A property holds when what it forbids did not arrive and, with the same packets and the policy
//! that allows them, what it allows did. What does not hold must be refused by the caller.

mod checks;
pub mod frames;
pub mod talk;
pub mod test_guest;
pub mod test_network;

use serde::{Deserialize, Serialize};

pub use crate::plan::member::NetworkProperty;
use crate::{Error, HostAccess};
use checks::Scene;

/// Result of checking a property on this kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PropertyFinding {
    /// The property.
    pub property: NetworkProperty,
    /// True when every packet went, or did not go, as promised.
    pub holds: bool,
    /// The check could not run to its end, and until then all was as promised. It says nothing of
    /// this kernel.
    #[serde(default)]
    pub unknown: bool,
    /// The attempts and their results.
    pub evidence: Vec<String>,
}

impl PropertyFinding {
    /// The main evidence, for people: a broken promise, or the reason why nothing was seen.
    pub fn reason(&self) -> &str {
        let says = |word: &str| self.evidence.iter().find(|line| line.starts_with(word));
        says("BROKEN").or_else(|| says("UNKNOWN")).map_or("", String::as_str)
    }

    fn unseen(property: NetworkProperty, error: &Error) -> Self {
        let evidence = vec![format!("UNKNOWN: the test network was not set up: {error}")];
        Self { property, holds: false, unknown: true, evidence }
    }
}

/// All properties.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfTestReport {
    /// In the order of [`NetworkProperty`].
    pub findings: Vec<PropertyFinding>,
}

impl SelfTestReport {
    /// True when a property was proven.
    pub fn holds(&self, property: NetworkProperty) -> bool {
        self.findings.iter().any(|finding| finding.property == property && finding.holds)
    }

    /// Findings of properties that do not hold, with the evidence.
    pub fn broken(&self) -> impl Iterator<Item = &PropertyFinding> {
        self.findings.iter().filter(|finding| !finding.holds && !finding.unknown)
    }

    /// Findings of properties that could not be checked.
    pub fn unknown(&self) -> impl Iterator<Item = &PropertyFinding> {
        self.findings.iter().filter(|finding| finding.unknown)
    }

    /// Takes in what a later run found.
    pub(crate) fn renew(&mut self, later: Self) {
        for finding in later.findings {
            match self.findings.iter_mut().find(|old| old.property == finding.property) {
                Some(old) => *old = finding,
                None => self.findings.push(finding),
            }
        }
    }
}

/// Runs all checks at once; takes some seconds. What could not be checked is tried once more.
/// Dropping the future does not end it early.
///
/// # Errors
/// When the stage cannot be set up: [`Error::NotPermitted`], [`Error::NftMissing`], or a kernel
/// that does not take the rules. A check that fails is a finding, not an error.
pub async fn run(options: HostAccess) -> Result<SelfTestReport, Error> {
    let mut report = some(options.clone(), |_| true).await?;
    let unknown: Vec<_> = report.unknown().map(|finding| finding.property).collect();
    if !unknown.is_empty() {
        report.renew(some(options, move |property| unknown.contains(&property)).await?);
    }
    Ok(report)
}

/// Runs some of the checks, as [`run`] does.
pub(crate) async fn some(
    options: HostAccess,
    which: impl Fn(NetworkProperty) -> bool + Send + 'static,
) -> Result<SelfTestReport, Error> {
    let work = tokio::task::spawn_blocking(move || {
        // A scene and a thread for each: they mostly wait for what must not arrive.
        let one = |(property, check): (NetworkProperty, checks::Check)| {
            let mut scene = match Scene::new(options.clone()) {
                Ok(scene) => scene,
                Err(error) if error.is_passing() => {
                    return Ok(PropertyFinding::unseen(property, &error));
                }
                Err(error) => return Err(error),
            };
            let outcome = check(&mut scene);
            Ok(scene.finding(property, outcome))
        };
        std::thread::scope(|scope| {
            let wanted = checks::ALL.into_iter().filter(|(property, _)| which(*property));
            let running: Vec<_> = wanted.map(|each| scope.spawn(move || one(each))).collect();
            let joined = running.into_iter().map(|thread| match thread.join() {
                Ok(finding) => finding,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            let findings: Result<Vec<PropertyFinding>, Error> = joined.collect();
            findings.map(|findings| SelfTestReport { findings })
        })
    });
    work.await.map_err(|error| Error::io("run the self-test")(std::io::Error::other(error)))?
}
