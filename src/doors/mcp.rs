//! MCP over rmcp, both lifecycles: `initialize` up to 2025-11-25, and the
//! stateless one of 2026-07-28. One handler serves both; which tools there are
//! and what they do is the registry's.

mod answer;
mod listing;
mod notes;
mod progress;
mod receipts;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::{Arc, OnceLock};

use hivekeep_kernel::{Door, Progress, SessionId};
use hivekeep_registry::{Attachment, CallRequest, OpenSession, View};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, Implementation, InitializeRequestParams,
        InitializeResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
        PaginatedRequestParams, ReadResourceRequestMethod, ReadResourceRequestParams,
        ReadResourceResponse, ServerCapabilities, ServerConfig, SubscribeRequestMethod,
        SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestMethod,
        UnsubscribeRequestParams,
    },
    service::{NotificationContext, RequestContext, SubscriptionContext},
};
use tokio::sync::OnceCell;

pub use listing::Listing;
pub use receipts::Written;

use super::Core;
use receipts::Receipts;

/// What a model is told before it sees the tools.
const INSTRUCTIONS: &str = "\
hivekeep gives you workspaces: isolated Linux machines of your own.
- workspace_create makes one; use its workspace_id, or its name, in all other calls. \
workspace_list shows what there is.
- exec runs a shell command and returns exit_code, stdout and stderr; a non-zero exit_code is a \
result, not an error. For anything longer than its timeout use exec_background and poll the job.
- file_write, file_read, file_edit and file_list work inside a workspace; file_transfer copies \
files between the host and a workspace.
- vault keeps Markdown notes on the host that outlive every workspace and session. Notes are \
also resources, as vault:///path/to/note.md.
- A failed call returns an error object with a code, what to do next, and whether the same call \
may succeed later (retryable, retry_after_ms).
- Workspaces live until workspace_destroy. If one belongs to a session that is gone, \
workspace_adopt takes it over.";

/// Where a handler's session comes from.
enum Origin {
    /// Opened with the connection.
    Connection(Attachment),
    /// Opened by `initialize` when there is one; requests without it share the
    /// session of their bearer credential.
    Http { own: OnceCell<Attachment>, shared: Arc<OnceCell<Attachment>> },
}

/// The handler of one attachment. Cheap to clone.
#[derive(Clone)]
pub struct Handler(Arc<Inside>);

struct Inside {
    core: Arc<Core>,
    view: Arc<View>,
    listing: Arc<Listing>,
    door: Door,
    origin: Origin,
    /// Of answers that are on their way to the connection.
    receipts: Receipts,
    /// Notes that a client with a handshake hears of.
    hearing: OnceLock<watch::Hearing>,
}

/// Name of the lasting session of the HTTP door's bearer credential.
const BEARER_SESSION: &str = "mcp-http";

impl Handler {
    /// For a connection with a session of its own.
    pub fn for_connection(core: Arc<Core>, view: Arc<View>, attachment: Attachment) -> Self {
        let origin = Origin::Connection(attachment);
        Self::new(core, view, Door::McpStdio, origin)
    }

    /// For an HTTP session or a single HTTP request.
    pub fn for_http(core: Arc<Core>, view: Arc<View>, shared: Arc<OnceCell<Attachment>>) -> Self {
        let origin = Origin::Http { own: OnceCell::new(), shared };
        Self::new(core, view, Door::McpHttp, origin)
    }

    fn new(core: Arc<Core>, view: Arc<View>, door: Door, origin: Origin) -> Self {
        let listing = core.listing(&view);
        let (receipts, hearing) = (Receipts::default(), OnceLock::new());
        Self(Arc::new(Inside { core, view, listing, door, origin, receipts, hearing }))
    }

    /// The connection's transport, which signs for the answers that it writes.
    pub fn transport<T>(&self, transport: T) -> Written<T> {
        Written::new(transport, self.0.receipts.clone())
    }

    /// Digest of the tools it lists.
    pub fn digest(&self) -> &str {
        self.0.listing.digest()
    }

    async fn session(&self, client: impl FnOnce() -> String) -> Result<SessionId, ErrorData> {
        let (own, shared) = match &self.0.origin {
            Origin::Connection(attachment) => return Ok(attachment.session),
            Origin::Http { own, shared } => (own, shared),
        };
        if let Some(attachment) = own.get() {
            return Ok(attachment.session);
        }
        let open = || async {
            let request = OpenSession { door: self.0.door, client: client(), resume: None };
            self.0.core.sessions.open_named(BEARER_SESSION, request).await
        };
        let attachment = shared.get_or_try_init(open).await.map_err(answer::protocol)?;
        Ok(attachment.session)
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::builder().enable_tools().build();
        if let (Door::McpStdio, Some(tools)) = (self.0.door, &mut capabilities.tools) {
            // The list changes when a daemon is replaced by a newer one under a
            // living attachment, which only the pump of `hivekeep mcp` survives.
            tools.list_changed = Some(true);
        }
        capabilities.resources = self.offers_notes().then(notes::capability);
        let about = Implementation::new("hivekeep", env!("CARGO_PKG_VERSION"))
            .with_title("hivekeep")
            .with_description(env!("CARGO_PKG_DESCRIPTION"));
        ServerConfig::new(capabilities).with_server_info(about).with_instructions(INSTRUCTIONS)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        if let Origin::Http { own, .. } = &self.0.origin {
            let client = answer::client_name(Some(request.client_info.clone()));
            let open = || async {
                let request = OpenSession { door: self.0.door, client, resume: None };
                self.0.core.sessions.open(request).await
            };
            own.get_or_try_init(open).await.map_err(answer::protocol)?;
        }
        context.peer.set_peer_info(request.clone());
        self.negotiate_initialize(&request)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        let (tools, next) = self.0.listing.page(cursor.as_deref())?;
        let mut result = ListToolsResult::with_all_items(tools);
        result.next_cursor = next;
        Ok(result)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let entry = self.0.core.catalogue.find(name)?;
        self.0.listing.get(&self.0.view.name(entry.info)).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let session = self.session(|| answer::client_name(context.client_info())).await?;
        let relay = progress::Relay::of(&context);
        let call = self.0.core.dispatcher.call(CallRequest {
            session,
            door: self.0.door,
            tool: request.name.into_owned(),
            args: request.arguments.unwrap_or_default(),
            progress: relay.as_ref().map_or_else(Progress::default, progress::Relay::outlet),
            cancel: context.ct.clone(),
            timeout: None,
            view: self.0.view.clone(),
        });
        let mut outcome = match relay {
            Some(relay) => relay.while_running(call).await,
            None => call.await,
        };
        if let Some(receipt) = outcome.receipt.take() {
            match self.0.door {
                Door::McpStdio => self.0.receipts.keep(&context.id, receipt),
                // HTTP's streams are rmcp's own, which keeps what was not read for a client that
                // comes back.
                _ if context.ct.is_cancelled() => drop(receipt),
                _ => receipt.sign(),
            }
        }
        answer::of(outcome).map(CallToolResponse::Complete)
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        match self.offers_notes() {
            true => self.list_notes(request.and_then(|request| request.cursor), &context).await,
            false => Ok(ListResourcesResult::default()),
        }
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let templates = self.offers_notes().then(notes::template);
        Ok(ListResourceTemplatesResult::with_all_items(templates.into_iter().collect()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if !self.offers_notes() {
            return Err(ErrorData::method_not_found::<ReadResourceRequestMethod>());
        }
        self.read_note(request.uri, &context).await.map(ReadResourceResponse::Complete)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        if self.offers_notes() {
            self.hearing(&context.peer);
        }
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if !self.offers_notes() {
            return Err(ErrorData::method_not_found::<SubscribeRequestMethod>());
        }
        self.hearing(&context.peer).add(&self.0.core.notes, request.uri).await
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if !self.offers_notes() {
            return Err(ErrorData::method_not_found::<UnsubscribeRequestMethod>());
        }
        self.hearing(&context.peer).remove(&request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::new();
        // The tools do not change while this daemon lives; when another takes over, the
        // subscription ends and its client asks for them again.
        accepted.tools_list_changed = (self.0.door == Door::McpStdio).then_some(true);
        if self.offers_notes() {
            accepted.resources_list_changed = Some(true);
            accepted.resource_subscriptions = watch::acceptable(&self.0.core.notes, requested);
        }
        (accepted != SubscriptionFilter::new()).then_some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        watch::listen(self.0.core.notes.clone(), &context).await;
        Ok(())
    }
}

/// The form of names as the registry knows it.
pub fn name_style(names: super::hello::ToolNames) -> hivekeep_registry::NameStyle {
    use super::hello::ToolNames;
    use hivekeep_registry::NameStyle;
    match names {
        ToolNames::Declared => NameStyle::AsDeclared,
        ToolNames::Dotted => NameStyle::Dotted,
        ToolNames::Underscored => NameStyle::Underscored,
    }
}
