//! Shared state of one source and of its connection: what its actor, its loop, its calls and the
//! catalogue know of it, and what its client does with what the server sends unasked.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use hivekeep_kernel::{CallCx, Layer, Progress, ToolError, lock};
use hivekeep_ports::{ForeignSource, SourceState, ToolPublisher};
use hivekeep_runtime::{
    Folders, Redact,
    host_process::HostUsers,
    json_schema::{Validator, validator},
    log::{Decision, Log, LogError},
};
use hivekeep_store::NewEvent;
use rmcp::{
    ClientHandler, RoleClient,
    model::{ClientConfig, Implementation, ProgressNotificationParam, ProgressToken, Tool},
    service::{NotificationContext, Peer},
};
use serde_json::json;
use tokio::sync::{Notify, watch};

use crate::{
    ServerName, ServerOptions, codes,
    declare::{Declarations, RejectedTool},
    list::{LastList, ListRecord, ListedTools},
};

/// Time that a call waits for a connection that is being made.
const CONNECTION_WAIT: Duration = Duration::from_secs(20);

/// Longest message of a progress report.
const PROGRESS_CHARS: usize = 200;

/// State of the connection.
#[derive(Debug, Clone)]
pub(crate) enum SourceLink {
    Connecting,
    Up(Arc<SourceConnection>),
    Down(SourceState),
}

/// Tool that can be called.
pub(crate) struct Published {
    pub(crate) raw_name: String,
    /// Validator of a result's structured part.
    pub(crate) output: Option<Validator>,
}

/// Tools as they were published last.
#[derive(Default)]
pub(crate) struct PublishedTools {
    pub(crate) by_name: HashMap<&'static str, Arc<Published>>,
    pub(crate) left_out: Vec<RejectedTool>,
}

/// Everything about one source but its mailbox.
pub(crate) struct SourceShared {
    pub(crate) name: ServerName,
    pub(crate) options: ServerOptions,
    pub(crate) declarations: Declarations,
    pub(crate) link: watch::Sender<SourceLink>,
    /// Asks the loop to try again now.
    pub(crate) wake: Notify,
    pub(crate) folders: Folders,
    pub(crate) users: HostUsers,
    pub(crate) redact: Redact,
    pub(crate) log: Log<LastList>,
    published: Mutex<Arc<PublishedTools>>,
    publisher: Arc<dyn ToolPublisher>,
}

impl SourceShared {
    pub(crate) fn new(
        (name, options): (ServerName, ServerOptions),
        declarations: Declarations,
        (folders, users, redact): (Folders, HostUsers, Redact),
        log: Log<LastList>,
        publisher: Arc<dyn ToolPublisher>,
    ) -> Self {
        Self {
            name,
            options,
            declarations,
            link: watch::Sender::new(SourceLink::Connecting),
            wake: Notify::new(),
            folders,
            users,
            redact,
            log,
            published: Mutex::default(),
            publisher,
        }
    }

    pub(crate) fn published(&self) -> Arc<PublishedTools> {
        lock(&self.published).clone()
    }

    /// Publishes a list, and keeps it if it is another one than before.
    pub(crate) async fn publish(self: &Arc<Self>, listed: ListedTools) {
        let tools = &listed.tools;
        let before = self.log.state().unwrap_or_default();
        if before.0 != *tools {
            let names = |tools: &[Tool]| tools.iter().map(|tool| tool.name.to_string()).collect();
            let (old, new): (Vec<String>, Vec<String>) = (names(&before.0), names(tools));
            let changed = tools.iter().filter(|tool| {
                before.0.iter().any(|known| known.name == tool.name && known != *tool)
            });
            let data = json!({
                "added": new.iter().filter(|name| !old.contains(name)).collect::<Vec<_>>(),
                "removed": old.iter().filter(|name| !new.contains(name)).collect::<Vec<_>>(),
                "changed": changed.map(|tool| tool.name.as_ref()).collect::<Vec<_>>(),
            });
            let (kind, subject) = ("source.tools_changed".to_owned(), self.name.to_string());
            let record = Decision::record(ListRecord::Listed { tools: tools.clone() })
                .event(NewEvent { kind, subject, data });
            let written = match self.log.decide::<LogError>(|_| Ok(record)) {
                Ok(durable) => durable.await,
                Err(error) => Err(error),
            };
            if let Err(error) = written {
                tracing::warn!(source = %self.name, %error, "the list of a source is not kept");
            }
        }
        self.offer(listed);
    }

    /// Publishes a list without keeping it.
    pub(crate) fn offer(self: &Arc<Self>, ListedTools { tools, mut left_out }: ListedTools) {
        let (tools, refused) = self.declarations.judge(&self.options, tools);
        left_out.extend(refused);
        for RejectedTool { raw_name, why } in &left_out {
            tracing::warn!(source = %self.name, tool = raw_name, why, "a tool is left out");
        }
        let by_name = tools.iter().map(|tool| {
            let output = tool.output_schema.as_ref().and_then(|schema| validator(schema).ok());
            (tool.spec.name, Arc::new(Published { raw_name: tool.raw_name.clone(), output }))
        });
        let published = Arc::new(PublishedTools { by_name: by_name.collect(), left_out });
        *lock(&self.published) = published;
        self.publisher.publish(self.clone(), tools);
    }

    /// The connection, once it is up. A source that is down is tried again for the next call.
    ///
    /// # Errors
    /// `source_unreachable`, `source_auth_failed`.
    pub(crate) async fn connection(&self, cx: &CallCx) -> Result<Arc<SourceConnection>, ToolError> {
        let mut link = self.link.subscribe();
        let settled = link.wait_for(|link| !matches!(link, SourceLink::Connecting));
        let wait = CONNECTION_WAIT.min(cx.remaining());
        let settled = tokio::time::timeout(wait, settled).await;
        let link = match settled {
            Ok(Ok(link)) => link.clone(),
            Ok(Err(_)) => SourceLink::Down(SourceState::Unreachable("the daemon stops".to_owned())),
            Err(_) => SourceLink::Connecting,
        };
        let state = match link {
            SourceLink::Up(connection) => return Ok(connection),
            SourceLink::Connecting => SourceState::Connecting,
            SourceLink::Down(state) => state,
        };
        self.wake.notify_one();
        Err(self.down(&state))
    }

    /// The error of a call that finds no connection.
    pub(crate) fn down(&self, state: &SourceState) -> ToolError {
        let code = match state {
            SourceState::AuthRequired | SourceState::AuthExpired | SourceState::AuthInvalid => {
                codes::SOURCE_AUTH_FAILED
            }
            _ => codes::SOURCE_UNREACHABLE,
        };
        let message = format!("the source `{}` cannot be called: {state}", self.name);
        let error = ToolError::new(Layer::Actor, code, message)
            .next("try again in a while; the operator sees more in `source_list`")
            .detail("outcome", "nothing_done")
            .detail("reason_code", reason_code(state));
        if code == codes::SOURCE_UNREACHABLE { error.retryable() } else { error }
    }
}

/// The published reason of a call that finds no connection.
fn reason_code(state: &SourceState) -> &'static str {
    match state {
        SourceState::AuthRequired => "mcp_auth_required",
        SourceState::AuthExpired => "mcp_auth_expired",
        SourceState::AuthInvalid => "mcp_auth_invalid",
        SourceState::Ready | SourceState::Connecting | SourceState::Unreachable(_) => {
            "mcp_unreachable"
        }
    }
}

impl ForeignSource for SourceShared {
    fn server(&self) -> &str {
        self.name.as_str()
    }

    fn state(&self) -> SourceState {
        match &*self.link.borrow() {
            SourceLink::Connecting => SourceState::Connecting,
            SourceLink::Up(_) => SourceState::Ready,
            SourceLink::Down(state) => state.clone(),
        }
    }
}

impl fmt::Debug for SourceShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({})", self.name)
    }
}

/// State of a connection that its calls and the reconnecting loop share.
#[derive(Debug, Default)]
pub(crate) struct SourceTraffic {
    /// Outlets of the calls that run, by their tokens.
    progress: Mutex<HashMap<ProgressToken, Progress>>,
    running: AtomicUsize,
    /// The server says that its tools have changed.
    pub(crate) list_changed: Notify,
    /// A call got no answer in time.
    pub(crate) doubted: Notify,
}

impl SourceTraffic {
    /// True while a call runs.
    pub(crate) fn busy(&self) -> bool {
        self.running.load(Relaxed) > 0
    }

    /// Counts a call and forwards its progress for as long as the guard lives.
    pub(crate) fn begin(self: &Arc<Self>, token: ProgressToken, outlet: Progress) -> CallGuard {
        self.running.fetch_add(1, Relaxed);
        lock(&self.progress).insert(token.clone(), outlet);
        CallGuard { traffic: self.clone(), token }
    }
}

/// See [`SourceTraffic::begin`].
pub(crate) struct CallGuard {
    traffic: Arc<SourceTraffic>,
    token: ProgressToken,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.traffic.running.fetch_sub(1, Relaxed);
        lock(&self.traffic.progress).remove(&self.token);
    }
}

/// Connection that calls are made over.
#[derive(Debug)]
pub(crate) struct SourceConnection {
    pub(crate) peer: Peer<RoleClient>,
    pub(crate) traffic: Arc<SourceTraffic>,
}

/// Handler of what a server sends. It offers nothing: no sampling, no roots, no elicitation, so that a
/// server has no way to a session but the answers to its calls.
#[derive(Debug, Clone)]
pub(crate) struct Handler(pub(crate) Arc<SourceTraffic>);

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut config = ClientConfig::default();
        config.client_info = Implementation::new("hivekeep", env!("CARGO_PKG_VERSION"));
        config
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let outlet = lock(&self.0.progress).get(&params.progress_token).cloned();
        if let Some(outlet) = outlet {
            let message = params.message.unwrap_or_default();
            let message: String = message.chars().take(PROGRESS_CHARS).collect();
            outlet.report(params.progress, params.total, message);
        }
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.0.list_changed.notify_one();
    }
}
