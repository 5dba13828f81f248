//! `cargo xtask bench`: what hivekeep costs, each figure beside a baseline that
//! is measured in the same run, in turns with it.
//!
//! The machines that this runs on are noisy: a time says little, a ratio of two
//! medians that were taken in turns says much. So no figure with a baseline is
//! ever given without it.

mod agent;
mod agent_forks;
mod agents;
mod bare;
mod browser;
mod calls;
mod client;
mod create;
mod dag_files;
mod dag_waits;
mod dags;
mod day;
mod e2b;
mod fanout;
mod figure;
mod forks;
mod gateway;
mod grep;
mod host;
pub(crate) mod house;
mod http;
mod http_client;
mod journal;
pub(crate) mod kit;
mod listing;
mod machine;
mod memory;
mod metrics;
mod model;
mod oci;
mod park;
mod passages;
mod policy;
mod pool;
mod port_url;
mod program;
mod quality;
mod rag;
mod raw;
mod report;
mod restore;
mod rig;
mod run_code;
mod sandbox;
mod stub_server;
mod swarm;
mod team;
mod tree;
mod vault;
mod volumes;

use anyhow::{Result, ensure};
use clap::Args;

use self::{figure::Figure, kit::BenchPrograms};
use crate::repo::Repo;

/// The figures in the order of the report.
const FIGURES: [&str; 73] = [
    "tool_call_p50",
    "tool_calls_per_sec",
    "audited_call_p50",
    "decision_500_rules",
    "http_invoke_p50",
    "http_invoke_per_sec",
    "sse_fanout_200",
    "exec_true_p50",
    "exec_true_sandbox",
    "exec_output_throughput",
    "exec_output_to_client",
    "file_upload_throughput",
    "file_download_throughput",
    "workspace_create",
    "sandbox_create",
    "daemon_rss_idle",
    "rss_per_idle_workspace",
    "rss_1000_execs",
    "journal_appends",
    "fork_with_memory",
    "fork_20",
    "fork_20_memory",
    "branch_pause",
    "restore_to_node",
    "park",
    "wake",
    "parked_200",
    "pool_claim",
    "policy_change",
    "oci_pull",
    "oci_first_exec",
    "vault_search",
    "message_delivery_p50",
    "task_roundtrip",
    "task_roundtrip_sandbox",
    "swarm_8",
    "volume_write",
    "model_overhead",
    "agent_overhead",
    "agent_log_growth",
    "agent_start",
    "gateway_first_byte",
    "program_codex",
    "waiting_1000",
    "waiting_1000_start",
    "executions_100",
    "agent_fork_8",
    "steps_per_sec",
    "dag_command_step",
    "dag_run_file",
    "dag_validate_855",
    "fan_out_1000",
    "resume_1000",
    "timer_lateness_p99",
    "waiting_10000",
    "rag_ingest",
    "rag_query",
    "rag_query_100k",
    "rag_quality",
    "rag_quality_tiny",
    "metrics_query",
    "fs_day",
    "fs_day_workspace",
    "grep_tree",
    "listing_bytes_auto",
    "listing_bytes_all",
    "webview_click",
    "webview_screenshot",
    "port_url_p50",
    "run_code",
    "e2b_create_first_command",
    "e2b_sandbox_first_command",
    "e2b_burst_100",
];

/// Measures some figures; those asked for only, though they may be more by one
/// that comes along.
type Measure = fn(&BenchPrograms<'_>) -> Result<Vec<Figure>>;

/// Figures that are measured together, because they need the same things running.
const GROUPS: [(&[&str], Measure); 48] = [
    (&["tool_call_p50", "tool_calls_per_sec"], calls::measure),
    (&["audited_call_p50"], calls::audited),
    (&["decision_500_rules"], calls::ruled),
    (&["http_invoke_p50", "http_invoke_per_sec"], http::measure),
    (&["sse_fanout_200"], fanout::measure),
    (
        &[
            "exec_true_p50",
            "exec_output_throughput",
            "exec_output_to_client",
            "file_upload_throughput",
            "file_download_throughput",
        ],
        machine::measure,
    ),
    (&["exec_true_sandbox"], sandbox::measure),
    (&["workspace_create"], create::workspace),
    (&["sandbox_create"], create::sandbox),
    (&["daemon_rss_idle", "rss_per_idle_workspace", "rss_1000_execs"], memory::measure),
    (&["journal_appends"], journal::measure),
    (
        &["fork_with_memory", "fork_20", "fork_20_memory", "branch_pause", "restore_to_node"],
        forks::measure,
    ),
    (&["park", "wake"], park::measure),
    (&["parked_200"], park::many),
    (&["pool_claim"], pool::measure),
    (&["policy_change"], policy::measure),
    (&["oci_pull", "oci_first_exec"], oci::measure),
    (&["vault_search"], vault::measure),
    (&["message_delivery_p50"], team::messages),
    (&["task_roundtrip", "task_roundtrip_sandbox"], team::tasks),
    (&["swarm_8"], swarm::measure),
    (&["volume_write"], volumes::measure),
    (&["model_overhead"], model::measure),
    (&["agent_overhead"], agent::measure),
    (&["agent_log_growth"], agent::growth),
    (&["agent_start"], agents::start),
    (&["gateway_first_byte"], gateway::measure),
    (&["program_codex"], program::measure),
    (&["waiting_1000", "waiting_1000_start"], agents::waiting),
    (&["executions_100"], agents::at_once),
    (&["agent_fork_8"], agent_forks::measure),
    (&["steps_per_sec"], dags::steps),
    (&["dag_command_step", "dag_run_file"], dags::commands),
    (&["dag_validate_855"], dag_files::measure),
    (&["fan_out_1000"], dags::fan_out),
    (&["resume_1000"], dag_waits::resumed),
    (&["timer_lateness_p99", "waiting_10000"], dag_waits::waiting),
    (&["rag_ingest", "rag_query"], rag::measure),
    (&["rag_query_100k"], rag::large),
    (&["rag_quality", "rag_quality_tiny"], quality::measure),
    (&["metrics_query"], metrics::measure),
    (&["fs_day", "fs_day_workspace"], day::measure),
    (&["grep_tree"], grep::measure),
    (&["listing_bytes_auto", "listing_bytes_all"], listing::measure),
    (&["webview_click", "webview_screenshot"], browser::measure),
    (&["port_url_p50"], port_url::measure),
    (&["run_code"], run_code::measure),
    (&["e2b_create_first_command", "e2b_sandbox_first_command", "e2b_burst_100"], e2b::measure),
];

#[derive(Args)]
pub(crate) struct Bench {
    /// Measure this figure only (may be given again); the pages in docs/ stay as they are, unless there
    /// is `--write`
    #[arg(long, value_name = "FIGURE", value_parser = FIGURES)]
    only: Vec<String>,
    /// Put the measured figures into the pages in docs/, beside those that were measured before
    #[arg(long, conflicts_with_all = ["quick", "dev", "no_build"])]
    write: bool,
    /// A fifth of the rounds; the pages in docs/ stay as they are
    #[arg(long)]
    quick: bool,
    /// Measure development builds, to try the bench itself; the pages in docs/ stay as they are
    #[arg(long)]
    dev: bool,
    /// Measure what was built last
    #[arg(long)]
    no_build: bool,
}

impl Bench {
    pub(crate) fn run(&self, repo: &Repo) -> Result<()> {
        let kit = BenchPrograms::new(repo, self.quick, self.dev, self.only.clone());
        if !self.no_build {
            kit.build()?;
        }
        let (mut figures, mut failed) = (Vec::new(), Vec::new());
        for (names, measure) in GROUPS {
            if !names.iter().any(|name| kit.wants(name)) {
                continue;
            }
            println!("\n== {}", names.join(", "));
            // What cannot be measured here does not keep the rest from it.
            match measure(&kit) {
                Ok(measured) => figures.extend(measured),
                Err(error) => {
                    println!("FAILED: {error:#}");
                    failed.extend_from_slice(names);
                }
            }
        }
        figures.sort_by_key(|figure| FIGURES.iter().position(|name| *name == figure.name));
        let host = host::Host::look(&kit)?;
        println!("\n{}\n\n{}", host.line(), report::table(&figures));
        let missed: Vec<_> =
            figures.iter().filter(|figure| !figure.holds()).map(|figure| figure.name).collect();
        let part = !self.only.is_empty() && !self.write;
        if self.quick || self.dev || self.no_build || part {
            println!("\nA part of the figures: docs/performance.* stay as they are.");
        } else {
            report::write(repo, &host, &figures, &FIGURES)?;
            println!("\nwritten: docs/performance.md, docs/performance.json");
        }
        ensure!(failed.is_empty(), "not measured: {}", failed.join(", "));
        ensure!(missed.is_empty(), "targets missed: {}", missed.join(", "));
        Ok(())
    }
}
