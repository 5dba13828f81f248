//! The tools `ide_dashboard_overview` to `ide_dashboard_metrics`: what the caller's chats, builds and events come to.

use std::{cmp::Reverse, sync::Arc};

use chrono::{DateTime, TimeDelta, Utc};
use hivekeep_kernel::{CallCx, tools};
use hivekeep_ports::PersonPages;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    Answer, AssistantService,
    builds::{BuildRow, BuildStatus, BuildsRead, shown},
};

/// Builds that are recent are this young.
const RECENT: TimeDelta = TimeDelta::hours(24);
/// Messages of one chat that are counted.
const COUNTED_MESSAGES: usize = 10_000;
const MAX_ACTIVITY: usize = 200;
/// Pages of events that one call reads, and events of one.
const EVENT_PAGES: usize = 4;
const EVENTS: usize = 200;

/// Count what you have here: repositories, processes, chats, builds, and whether a page of yours is connected.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LookAtDashboard {}

/// Answer of ide_dashboard_overview.
#[derive(Debug, Serialize, JsonSchema)]
struct DashboardShown {
    /// Numbers.
    overview: DashboardOverview,
}

/// Numbers of what the caller has.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DashboardOverview {
    /// Repositories of your user on volumes; null where you may not list them.
    repos: Option<u64>,
    /// Processes of your places that run and are no builds: servers and the like.
    services: usize,
    /// Chats of your user that are not over.
    active_sessions: usize,
    /// Builds in your places that were started within 24 hours.
    recent_builds: usize,
    /// True while a client of the hub, as the dashboard's page is one, is connected with your user's credential.
    bridge_online: bool,
}

/// Read what happened lately, the newest first: calls and other events of this session, builds in its places,
/// chats of your user.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadActivity {
    /// Most events; default 50.
    #[serde(default = "default_activity")]
    #[schemars(range(min = 1, max = MAX_ACTIVITY))]
    limit: usize,
}

fn default_activity() -> usize {
    50
}

/// Recent activity.
#[derive(Debug, Serialize, JsonSchema)]
struct ActivityRead {
    /// The newest first.
    events: Vec<ActivityRow>,
}

/// Something that happened.
#[derive(Debug, Serialize, JsonSchema)]
struct ActivityRow {
    /// `build.started`, `build.ended`, `chat.opened`, or the kind of the event, such as `call.finished`.
    r#type: String,
    /// Sentence for people.
    message: String,
    /// Time.
    timestamp: DateTime<Utc>,
}

/// Count builds in your places and chats of your user over a period that ends now.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadMetrics {
    /// `1h`, `24h` or `7d`; default `24h`.
    #[serde(default)]
    period: MetricsPeriod,
}

/// Period that ends now.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
enum MetricsPeriod {
    /// An hour.
    #[serde(rename = "1h")]
    Hour,
    /// A day.
    #[default]
    #[serde(rename = "24h")]
    Day,
    /// A week.
    #[serde(rename = "7d")]
    Week,
}

/// Numbers of a period.
#[derive(Debug, Serialize, JsonSchema)]
struct MetricsRead {
    /// Period.
    period: MetricsPeriod,
    /// Numbers.
    metrics: DashboardMetrics,
}

/// Counts of a period.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DashboardMetrics {
    /// Builds that were started, whatever became of them.
    builds_total: usize,
    /// Those that exited with 0.
    builds_success: usize,
    /// Those that exited with another status, or crashed. One that was cancelled or interrupted is neither.
    builds_failed: usize,
    /// Mean time of those that succeeded or failed, as `183.4s`; null without any.
    avg_build_time: Option<String>,
    /// Chats that were opened.
    agent_sessions: usize,
    /// Messages of all chats, the agents' included.
    messages_total: usize,
    /// Share of success among those that succeeded or failed, 0 to 1; null without any.
    success_rate: Option<f64>,
    /// False where more was done than is kept: the last hundred processes of each workspace that ended. Builds of
    /// workspaces that are gone are never counted.
    complete: bool,
}

tools! { pub(crate) FAMILY: "ide" for service AssistantService, singleton assistant;
    ide_dashboard_overview: LookAtDashboard => DashboardShown = AssistantService::overview {
        title: "Count what you have", effect: Read,
    };
    ide_dashboard_activity: ReadActivity => ActivityRead = AssistantService::activity {
        title: "Read what happened lately", effect: Read,
    };
    ide_dashboard_metrics: ReadMetrics => MetricsRead = AssistantService::metrics {
        title: "Count builds and chats", effect: Read,
    };
}

/// Events as `event_list` tells them.
#[derive(Deserialize)]
struct EventPage {
    events: Vec<SessionEvent>,
    next: Option<u64>,
}

#[derive(Deserialize)]
struct SessionEvent {
    at: DateTime<Utc>,
    kind: String,
    subject: String,
    data: Value,
}

impl AssistantService {
    async fn overview(self: Arc<Self>, cx: CallCx, _: LookAtDashboard) -> Answer<DashboardShown> {
        let read = self.builds(&cx).await?;
        let chats = self.chats_opened(&cx).await?;
        let recent = Utc::now() - RECENT;
        let listed = self.read::<Value>(&cx, "aegis.git.list", json!({ "limit": 1 })).await;
        let (pages, user) = (self.ports.find(), self.sessions.user(cx.session));
        let connected = |(pages, user): (Arc<dyn PersonPages>, _)| pages.connected(user);
        let overview = DashboardOverview {
            repos: listed.ok().and_then(|listed| listed["total"].as_u64()),
            services: read.services,
            active_sessions: chats.iter().filter(|chat| !chat.status.is_over()).count(),
            recent_builds: read.builds.iter().filter(|it| it.started_at >= recent).count(),
            bridge_online: pages.zip(user).is_some_and(connected),
        };
        Ok(DashboardShown { overview })
    }

    async fn activity(self: Arc<Self>, cx: CallCx, input: ReadActivity) -> Answer<ActivityRead> {
        let mut events = self.session_events(&cx, input.limit).await?;
        events.extend(self.builds(&cx).await?.builds.into_iter().flat_map(build_events));
        events.extend(self.chats_opened(&cx).await?.into_iter().map(|chat| {
            row("chat.opened", format!("chat `{}` was opened", chat.name), chat.created_at)
        }));
        events.sort_by_key(|event| Reverse(event.timestamp));
        events.truncate(input.limit);
        Ok(ActivityRead { events })
    }

    /// Newest events of the session, without calls that were made for another call of it.
    async fn session_events(&self, cx: &CallCx, limit: usize) -> Answer<Vec<ActivityRow>> {
        let (mut found, mut before) = (Vec::new(), None);
        for _ in 0..EVENT_PAGES {
            let asked = json!({ "limit": EVENTS, "before": before });
            let page: EventPage = self.read(cx, "event_list", asked).await?;
            let own = page.events.iter().filter(|event| event.data["door"] != "internal");
            found.extend(own.map(|event| row(&event.kind, sentence(event), event.at)));
            before = page.next;
            if before.is_none() || found.len() >= limit {
                break;
            }
        }
        Ok(found)
    }

    async fn metrics(self: Arc<Self>, cx: CallCx, input: ReadMetrics) -> Answer<MetricsRead> {
        let since = Utc::now()
            - match input.period {
                MetricsPeriod::Hour => TimeDelta::hours(1),
                MetricsPeriod::Day => TimeDelta::days(1),
                MetricsPeriod::Week => TimeDelta::days(7),
            };
        let BuildsRead { mut builds, complete_since, .. } = self.builds(&cx).await?;
        builds.retain(|build| build.started_at >= since);
        let chats = self.chats_opened(&cx).await?;
        let (mut messages_total, mut complete) = (0, complete_since.is_none_or(|at| at <= since));
        for chat in &chats {
            let messages = self.newest_messages(&cx, &chat.id, COUNTED_MESSAGES).await?;
            let counted = messages.iter().filter(|message| message.timestamp >= since).count();
            messages_total += counted;
            complete &= counted < COUNTED_MESSAGES;
        }
        let judged =
            |it: &&BuildRow| [BuildStatus::Success, BuildStatus::Failed].contains(&it.status);
        let times: Vec<_> = builds.iter().filter(judged).filter_map(|build| build.took).collect();
        let with = |status| builds.iter().filter(|build| build.status == status).count();
        let (succeeded, judged) = (with(BuildStatus::Success), times.len());
        let mean = i32::try_from(judged).ok().and_then(|number| {
            let sum: TimeDelta = times.iter().sum();
            sum.checked_div(number)
        });
        let metrics = DashboardMetrics {
            builds_total: builds.len(),
            builds_success: succeeded,
            builds_failed: with(BuildStatus::Failed),
            avg_build_time: mean.map(shown),
            agent_sessions: chats.iter().filter(|chat| chat.created_at >= since).count(),
            messages_total,
            success_rate: (judged > 0).then(|| succeeded as f64 / judged as f64),
            complete,
        };
        Ok(MetricsRead { period: input.period, metrics })
    }
}

fn row(kind: &str, message: String, timestamp: DateTime<Utc>) -> ActivityRow {
    ActivityRow { r#type: kind.to_owned(), message, timestamp }
}

/// Start of a build, and its end where that is known.
fn build_events(build: BuildRow) -> impl Iterator<Item = ActivityRow> {
    let what = format!("`{}` in `{}`", build.command, build.repo);
    let outcome = match build.status {
        BuildStatus::Success => "succeeded",
        BuildStatus::Cancelled => "was cancelled",
        _ => "failed",
    };
    let ended = build.took.map(|took| {
        let message = format!("{what} {outcome} after {}", shown(took));
        row("build.ended", message, build.started_at + took)
    });
    let started = row("build.started", format!("{what} was started"), build.started_at);
    [Some(started), ended].into_iter().flatten()
}

/// Sentence that an event comes to.
fn sentence(event: &SessionEvent) -> String {
    let of = |key: &str| event.data[key].as_str();
    match (of("tool"), of("outcome")) {
        (Some(tool), Some("ok")) => format!("{tool} was called"),
        (Some(tool), Some(code)) => format!("{tool} was called: {code}"),
        _ => format!("{} of {}", event.kind, event.subject),
    }
}
