//! The tools `ide_build_status` to `ide_build_logs`: builds, which are processes of the session's places.
//!
//! They are read from `process_list`, which knows the last hundred of each workspace that ended. Commands that
//! `bash`, `cmd.run` and `exec` wait for are no processes, and leave no output behind.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use hivekeep_kernel::{CallCx, Layer, ToolError, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{Answer, AssistantService, codes, matching::file_name};

/// Processes that are read, the last started: as many as `process_list` tells.
const MOST_PROCESSES: usize = 500;
/// Processes of a workspace that ended and are kept in any case.
const KEPT_ENDED: usize = 99;
const MAX_LINES: usize = 10_000;
/// Bytes of each stream of one read, and reads of all that is kept.
const READ_BYTES: usize = 256 * 1024;
const MOST_READS: usize = 20;
/// SIGINT, SIGKILL and SIGTERM, by which people and `process_stop` end a process.
const ENDING_SIGNALS: [i32; 3] = [2, 9, 15];

/// List builds, the newest first: processes of your places whose command the operator names in
/// `assistant.builds`, as process_start starts them. Commands of bash and cmd.run are not among them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListBuilds {
    /// Only those in a folder of this name.
    repo: Option<String>,
    /// Most builds; default 20.
    #[serde(default = "default_builds")]
    #[schemars(range(min = 1, max = MOST_PROCESSES))]
    limit: usize,
}

fn default_builds() -> usize {
    20
}

/// Builds.
#[derive(Debug, Serialize, JsonSchema)]
struct BuildsListed {
    /// The newest first.
    builds: Vec<BuildRow>,
}

/// See how a build is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct LookAtBuild {
    /// Id of the build, which is its process.
    build_id: String,
}

/// How a build is.
#[derive(Debug, Serialize, JsonSchema)]
struct BuildShown {
    /// The build.
    build: BuildRow,
}

/// A build.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BuildRow {
    /// Id of its process.
    id: String,
    /// Name of the folder that it was started in.
    pub(crate) repo: String,
    /// Null: which branch was checked out is not recorded.
    branch: Option<String>,
    /// State or outcome.
    pub(crate) status: BuildStatus,
    /// Time that it took, as `183.4s`; null until it has ended, and where its end was not seen.
    duration: Option<String>,
    /// Time of its start.
    pub(crate) started_at: DateTime<Utc>,
    /// Program and arguments.
    pub(crate) command: String,
    #[serde(skip)]
    pub(crate) took: Option<TimeDelta>,
}

/// State or outcome of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BuildStatus {
    /// The process runs.
    Running,
    /// Exit with the status 0.
    Success,
    /// Exit with another status, or a crash.
    Failed,
    /// End by SIGINT, SIGTERM or SIGKILL.
    Cancelled,
    /// End of the machine under it.
    Interrupted,
    /// The machine cannot be asked now.
    Unknown,
}

/// Read the output of a build: what is kept of it, at least the last 2 MiB of each stream.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ReadBuildLog {
    /// Id of the build.
    build_id: String,
    /// Only so many of the last lines, of both streams together. Default: all that is kept.
    #[schemars(range(min = 1, max = MAX_LINES))]
    tail: Option<usize>,
}

/// Output of a build.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct BuildLog {
    /// Id of the build.
    build_id: String,
    /// Lines of stdout, then those of stderr.
    lines: Vec<String>,
    /// Bytes at the beginning that are not kept any more.
    lost_bytes: u64,
}

tools! { pub(crate) FAMILY: "ide" for service AssistantService, singleton assistant;
    ide_build_status: LookAtBuild => BuildShown = AssistantService::build_status {
        title: "See how a build is", effect: Read,
    };
    ide_build_list: ListBuilds => BuildsListed = AssistantService::build_list {
        title: "List builds", effect: Read,
    };
    ide_build_logs: ReadBuildLog => BuildLog = AssistantService::build_logs {
        title: "Read the output of a build", effect: Read,
        result_budget_bytes: 8 * 1024 * 1024,
    };
}

/// Processes as `process_list` tells them.
#[derive(Deserialize)]
struct ListedProcesses {
    processes: Vec<StartedProcess>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StartedProcess {
    id: String,
    command: String,
    args: Vec<String>,
    dir: String,
    started_at: DateTime<Utc>,
    status: String,
    exit_code: Option<i32>,
    signal: Option<i32>,
    /// Time in nanoseconds, so far or in all.
    duration: i64,
}

/// Builds, and what else there is of the session's processes.
pub(crate) struct BuildsRead {
    /// In the order of their start.
    pub(crate) builds: Vec<BuildRow>,
    /// Number of processes that run and are no builds.
    pub(crate) services: usize,
    /// Time since when no process of a workspace that is there is missing, if any may be.
    pub(crate) complete_since: Option<DateTime<Utc>>,
}

impl From<StartedProcess> for BuildRow {
    fn from(process: StartedProcess) -> Self {
        let status = match (&*process.status, process.exit_code, process.signal) {
            ("running", ..) => BuildStatus::Running,
            ("exited", Some(0), _) => BuildStatus::Success,
            ("killed", _, Some(by)) if ENDING_SIGNALS.contains(&by) => BuildStatus::Cancelled,
            ("exited" | "killed", ..) => BuildStatus::Failed,
            ("interrupted", ..) => BuildStatus::Interrupted,
            _ => BuildStatus::Unknown,
        };
        let has_ended = matches!(&*process.status, "exited" | "killed");
        let took = has_ended.then(|| TimeDelta::nanoseconds(process.duration));
        let words = std::iter::once(process.command).chain(process.args);
        Self {
            id: process.id,
            repo: file_name(&process.dir).to_owned(),
            branch: None,
            status,
            duration: took.map(shown),
            started_at: process.started_at,
            command: words.collect::<Vec<_>>().join(" "),
            took,
        }
    }
}

/// A length of time as people and programs read it.
pub(crate) fn shown(took: TimeDelta) -> String {
    format!("{}.{}s", took.num_seconds(), took.num_milliseconds() / 100 % 10)
}

/// Part of an output as `process_output` tells it.
#[derive(Deserialize)]
struct OutputRead {
    /// Text of stdout, then that of stderr, which is also by itself.
    output: String,
    #[serde(default)]
    stderr: String,
    stdout_next: u64,
    stderr_next: u64,
    stdout_lost: u64,
    stderr_lost: u64,
    more: bool,
}

impl AssistantService {
    /// Builds among the processes of the session's places.
    pub(crate) async fn builds(&self, cx: &CallCx) -> Answer<BuildsRead> {
        let all = json!({ "limit": MOST_PROCESSES });
        let ListedProcesses { processes } = self.read(cx, "process_list", all).await?;
        // A process that is forgotten began before all those that ended and are kept.
        let complete_since = processes.iter().nth_back(KEPT_ENDED - 1).map(|it| it.started_at);
        let is_build = |it: &StartedProcess| self.commands.matches(&it.command, &it.args);
        let (builds, others): (Vec<_>, Vec<_>) = processes.into_iter().partition(is_build);
        let services = others.iter().filter(|process| process.status == "running").count();
        let builds = builds.into_iter().map(BuildRow::from).collect();
        Ok(BuildsRead { builds, services, complete_since })
    }

    async fn build(&self, cx: &CallCx, id: &str) -> Answer<BuildRow> {
        let builds = self.builds(cx).await?.builds;
        builds.into_iter().find(|build| build.id == id).ok_or_else(|| {
            ToolError::not_found(Layer::Actor, codes::BUILD_NOT_FOUND, "build of yours", id)
                .next("ide_build_list shows the builds, process_list all processes")
        })
    }

    async fn build_status(self: Arc<Self>, cx: CallCx, input: LookAtBuild) -> Answer<BuildShown> {
        Ok(BuildShown { build: self.build(&cx, &input.build_id).await? })
    }

    async fn build_list(self: Arc<Self>, cx: CallCx, input: ListBuilds) -> Answer<BuildsListed> {
        let builds = self.builds(&cx).await?.builds.into_iter().rev();
        let wanted = |build: &BuildRow| input.repo.as_ref().is_none_or(|it| build.repo == *it);
        Ok(BuildsListed { builds: builds.filter(wanted).take(input.limit).collect() })
    }

    async fn build_logs(self: Arc<Self>, cx: CallCx, input: ReadBuildLog) -> Answer<BuildLog> {
        let ReadBuildLog { build_id, tail } = input;
        self.build(&cx, &build_id).await?;
        let (mut stdout, mut stderr, mut lost_bytes) = (String::new(), String::new(), 0);
        let mut from = [0, 0];
        for _ in 0..MOST_READS {
            let [stdout_from, stderr_from] = from;
            let asked = json!({
                "id": build_id, "stdout_from": stdout_from, "stderr_from": stderr_from,
                "max_bytes": READ_BYTES,
            });
            let part: OutputRead = self.read(&cx, "process_output", asked).await?;
            stdout.push_str(part.output.strip_suffix(&*part.stderr).unwrap_or(&part.output));
            stderr.push_str(&part.stderr);
            lost_bytes += part.stdout_lost + part.stderr_lost;
            from = [part.stdout_next, part.stderr_next];
            if !part.more {
                break;
            }
        }
        Ok(BuildLog { build_id, lines: last_lines(&stdout, &stderr, tail), lost_bytes })
    }
}

/// The last lines of both streams: half of them of each, and more of one where the other has fewer.
fn last_lines(stdout: &str, stderr: &str, tail: Option<usize>) -> Vec<String> {
    let [stdout, stderr] = [stdout, stderr].map(|text| text.lines().collect::<Vec<_>>());
    let most = tail.unwrap_or(usize::MAX);
    let of_stderr = stderr.len().min(most.div_ceil(2).max(most.saturating_sub(stdout.len())));
    let of_stdout = stdout.len().min(most - of_stderr);
    let shown = stdout[stdout.len() - of_stdout..].iter();
    shown.chain(&stderr[stderr.len() - of_stderr..]).map(|line| (*line).to_owned()).collect()
}
