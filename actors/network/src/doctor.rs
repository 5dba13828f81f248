//! Host check of the network: the needs of a bridge, and the promises that this kernel keeps.

use std::path::Path;
use std::time::Instant;

use hivekeep_runtime::Finding;

use crate::apply::Nft;
use crate::capability::{self, ConnectionMeans};
use crate::plan::{NetworkPlan, Subnet, Tag};
use crate::selftest::{self, SelfTestReport};
use crate::{Enforcer, Error, NetworkModeChoice, Options};

/// Looks, and runs the self-test anew, which takes some seconds. Touches nothing of the host's.
/// The findings are about a daemon that keeps its state there.
pub async fn doctor(options: &Options, state_dir: &Path) -> Vec<Finding> {
    match options.mode {
        NetworkModeChoice::Off => return vec![Finding::good("network", "off, by network.mode")],
        NetworkModeChoice::User => {
            let detail = "user mode, by network.mode: each machine alone with its port forwards";
            return vec![Finding::good("network", detail)];
        }
        NetworkModeChoice::Auto | NetworkModeChoice::Bridge => {}
    }
    let access = options.access();
    let found = capability::detect(&access).await;
    if found.means != ConnectionMeans::Bridge {
        let instead = match options.mode {
            NetworkModeChoice::Bridge => "the daemon does not start",
            _ => "user mode: each machine alone with its port forwards",
        };
        let remedy = "provide what is missing, or set network.mode";
        let nft = Nft::find(&access.nft_path).err().map(|error| error.to_string());
        let line = |what: String| {
            let package = (nft.as_ref() == Some(&what)).then_some("nftables");
            Finding::bad("network", format!("{what}; {instead}"), remedy).package(package)
        };
        return found.missing.into_iter().map(line).collect();
    }
    let nft = found.nft.unwrap_or_default();
    let mut lines = vec![Finding::good("network", format!("a bridge is possible, with {nft}"))];
    lines.push(match subnet(options, options.tag(state_dir)).await {
        Ok(subnet) => Finding::good("network subnet", format!("{subnet} is free")),
        Err(error) => Finding::bad("network subnet", error.to_string(), "set network.subnet"),
    });
    let began = Instant::now();
    lines.push(match selftest::run(access).await {
        Ok(report) => proven(&report, began),
        Err(error) => Finding::bad("network self-test", error.to_string(), "run it as root"),
    });
    lines
}

/// The configured one, or the first that is free.
async fn subnet(options: &Options, tag: Tag) -> Result<Subnet, Error> {
    let enforcer = Enforcer::open(options.access())?;
    if options.subnet.is_none() {
        for subnet in Subnet::choices() {
            if enforcer.is_free(&NetworkPlan::new(tag.clone(), subnet)).await? {
                return Ok(subnet);
            }
        }
    }
    let subnet = options.subnet.unwrap_or_default();
    enforcer.check_subnet(&NetworkPlan::new(tag, subnet)).await.map(|()| subnet)
}

fn proven(report: &SelfTestReport, began: Instant) -> Finding {
    let says = |finding: &selftest::PropertyFinding| {
        format!("{:?}: {}", finding.property, finding.reason())
    };
    let broken: Vec<_> = report.broken().map(says).collect();
    let unknown: Vec<_> = report.unknown().map(says).collect();
    if broken.is_empty() && !unknown.is_empty() {
        let remedy = "it says nothing of this kernel: run `hivekeep check` again";
        let detail = format!("could not be checked: {}", unknown.join("; "));
        return Finding::bad("network self-test", detail, remedy);
    }
    if broken.is_empty() {
        let (count, took) = (report.findings.len(), began.elapsed().as_secs_f64());
        let detail = format!("{count} properties hold with real packets ({took:.1} s)");
        return Finding::good("network self-test", detail);
    }
    let remedy = "what fails is refused when it is asked for; a newer kernel or nft may keep it";
    Finding::bad("network self-test", broken.join("; "), remedy)
}
