//! For `hivekeep check`: what a network needs, and whether this kernel keeps what is promised.

use std::path::Path;
use std::time::Instant;

use crate::capability::{self, Means};
use crate::plan::Network;
use crate::selftest::{self, Report};
use crate::{Enforcer, Error, Mode, Options};

/// One thing looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What.
    pub what: &'static str,
    /// Whether it is as a bridge needs it, or none is wanted.
    pub ok: bool,
    /// For people.
    pub detail: String,
    /// What mends it.
    pub remedy: Option<String>,
}

impl Line {
    fn good(what: &'static str, detail: impl Into<String>) -> Self {
        Self { what, ok: true, detail: detail.into(), remedy: None }
    }

    fn bad(what: &'static str, detail: impl Into<String>, remedy: &str) -> Self {
        Self { what, ok: false, detail: detail.into(), remedy: Some(remedy.to_owned()) }
    }
}

/// Looks, and runs the self-test anew, which takes some seconds. Touches nothing of the host's.
/// The lines are about a daemon that keeps its state there.
pub async fn doctor(options: &Options, state_dir: &Path) -> Vec<Line> {
    match options.mode {
        Mode::Off => return vec![Line::good("network", "off, by network.mode")],
        Mode::User => {
            let detail = "user mode, by network.mode: each machine alone with its port forwards";
            return vec![Line::good("network", detail)];
        }
        Mode::Auto | Mode::Bridge => {}
    }
    let access = options.access();
    let found = capability::probe(&access).await;
    if found.means != Means::Bridge {
        let instead = match options.mode {
            Mode::Bridge => "the daemon does not start",
            _ => "user mode: each machine alone with its port forwards",
        };
        let remedy = "provide what is missing, or set network.mode";
        let missing = found.missing.into_iter();
        return missing
            .map(|what| Line::bad("network", format!("{what}; {instead}"), remedy))
            .collect();
    }
    let nft = found.nft.unwrap_or_default();
    let mut lines = vec![Line::good("network", format!("a bridge is possible, with {nft}"))];
    let blank = Network::new(options.tag(state_dir), options.subnet);
    lines.push(match subnet(options, &blank).await {
        Ok(()) => Line::good("network subnet", format!("{} is free", options.subnet)),
        Err(error) => Line::bad("network subnet", error.to_string(), "set network.subnet"),
    });
    let began = Instant::now();
    lines.push(match selftest::run(access).await {
        Ok(report) => proven(&report, began),
        Err(error) => Line::bad("network self-test", error.to_string(), "run it as root"),
    });
    lines
}

async fn subnet(options: &Options, blank: &Network) -> Result<(), Error> {
    Enforcer::open(options.access())?.check_subnet(blank).await
}

fn proven(report: &Report, began: Instant) -> Line {
    let broken: Vec<_> = report
        .broken()
        .map(|finding| {
            let seen = finding.evidence.iter().find(|line| line.starts_with("BROKEN"));
            format!("{:?}: {}", finding.property, seen.map_or("", String::as_str))
        })
        .collect();
    if broken.is_empty() {
        let (count, took) = (report.findings.len(), began.elapsed().as_secs_f64());
        let detail = format!("{count} properties hold with real packets ({took:.1} s)");
        return Line::good("network self-test", detail);
    }
    let remedy = "what fails is refused when it is asked for; a newer kernel or nft may keep it";
    Line::bad("network self-test", broken.join("; "), remedy)
}
