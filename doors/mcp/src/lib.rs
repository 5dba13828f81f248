//! MCP over rmcp, both lifecycles: `initialize` up to 2025-11-25, and the
//! stateless one of 2026-07-28. One handler serves both; which tools there are
//! and what they do is the registry's.
#![warn(missing_docs)]

mod answer;
mod boxed;
mod calls;
mod documents;
mod elicit;
pub mod http;
mod misfits;
mod prompts;
mod receipts;
mod small;
mod tasks;
#[cfg(test)]
mod tests;
mod watch;
mod wire;

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock, OnceLock},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use axum::http::request::Parts;
use hivekeep_config::families;
use hivekeep_door_server::{
    DaemonServices,
    hello::ToolNames,
    http::caller::{HttpCaller, LastingSessions},
    incoming::RateBuckets,
    lines::LineReader,
    listing::ToolListing,
    prompts::PromptTemplate,
};
use hivekeep_kernel::{Door, SessionId, ToolError};
use hivekeep_ports::SessionQuotas as _;
use hivekeep_registry::{Attachment, OpenSession, ToolView, User};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams,
        CompleteResult, CustomRequest, CustomResult, ErrorCode, GetPromptRequestMethod,
        GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskResult, Implementation,
        InitializeRequestParams, InitializeResult, JsonObject, ListPromptsResult,
        ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
        PromptsCapability, ReadResourceRequestMethod, ReadResourceRequestParams,
        ReadResourceResponse, ServerCapabilities, ServerConfig, SubscribeRequestMethod,
        SubscribeRequestParams, SubscriptionFilter, TASKS_EXTENSION_ID, Tool,
        UnsubscribeRequestMethod, UnsubscribeRequestParams, UpdateTaskParams,
    },
    service::{NotificationContext, RequestContext, SubscriptionContext},
};
use tokio::{
    io::{AsyncBufRead, AsyncWrite},
    sync::{OnceCell, Semaphore, watch::Receiver},
};
use tokio_util::sync::DropGuard;

pub use boxed::BoxedService;
pub use receipts::ReceiptTransport;
pub use small::{AUTO, small_listing};
pub use wire::McpTransport;

use http::KeptClients;
use receipts::Receipts;

/// Description of the program, as its package has it.
const DESCRIPTION: &str = "A supervised-actor daemon that keeps workspaces in real virtual machines and offers them \
    as tools";
/// Instructions that a model reads before it sees the tools.
static INSTRUCTIONS: LazyLock<String> = LazyLock::new(|| {
    let mut told =
        String::from("hivekeep gives you workspaces: isolated Linux machines of your own.");
    for family in families::INSTRUCTIONS.iter().filter(|family| !family.is_empty()) {
        told.push('\n');
        told.push_str(family);
    }
    told.push_str(
        "\n- A failed call returns an error object with a code, what to do next, and whether the \
         same call may succeed later (retryable, retry_after_ms).",
    );
    told
});

/// Calls of one session over HTTP that run at a time.
const HTTP_CALLS: usize = 64;

/// Origin of a handler's session.
enum Origin {
    /// Opened with the connection.
    Connection(Attachment),
    /// The session of a client with `initialize`, opened by its first call; requests without a
    /// handshake share the session of their bearer credential.
    Http {
        /// The client's name for itself in the handshake.
        client: OnceLock<String>,
        /// The user, by the credential of the first request: a handler serves no other one.
        user: OnceLock<User>,
        own: OnceCell<Attachment>,
        shared: Arc<LastingSessions>,
        calls: Semaphore,
        kept: KeptClients,
    },
}

impl Origin {
    /// The session, if it is open, with user and door.
    fn caller(&self, door: Door) -> (Option<SessionId>, User, Door) {
        match self {
            Self::Connection(attachment) => (Some(attachment.session), User::Bearer, door),
            Self::Http { user, own, shared, .. } => {
                let user = user.get().copied().unwrap_or(User::Bearer);
                let session = own.get().map(|it| it.session).or_else(|| shared.known(user));
                (session, user, door)
            }
        }
    }
}

/// The handler of one attachment. Cheap to clone.
#[derive(Clone)]
pub struct McpHandler(Arc<Inside>);

struct Inside {
    core: Arc<DaemonServices>,
    view: Arc<ToolView>,
    /// The list as it was asked for last; see [`McpHandler::listing`].
    listing: ArcSwap<ToolListing>,
    /// Families that the session has loaded, where the listing grows by them.
    loaded: Option<Receiver<BTreeSet<String>>>,
    door: Door,
    origin: Origin,
    /// Receipts of answers that are on their way to the connection.
    receipts: Receipts,
    /// Documents that a client with a handshake hears of.
    hearing: OnceLock<watch::DocumentSubscriber>,
    /// Ends the notifications of changes of the list.
    telling: OnceLock<DropGuard>,
    /// Names that were looked up last to complete what is typed.
    looked: ArcSwapOption<prompts::LastLook>,
}

impl McpHandler {
    /// For a connection with a session of its own.
    pub fn for_connection(
        core: Arc<DaemonServices>,
        view: Arc<ToolView>,
        attachment: Attachment,
    ) -> Self {
        let origin = Origin::Connection(attachment);
        Self::new(core, view, Door::McpStdio, origin)
    }

    /// For an HTTP session or a single HTTP request.
    fn for_http(
        core: Arc<DaemonServices>,
        view: Arc<ToolView>,
        shared: Arc<LastingSessions>,
        kept: KeptClients,
    ) -> Self {
        let (client, user, own) = (OnceLock::new(), OnceLock::new(), OnceCell::new());
        let calls = Semaphore::new(HTTP_CALLS);
        let origin = Origin::Http { client, user, own, shared, calls, kept };
        Self::new(core, view, Door::McpHttp, origin)
    }

    fn new(core: Arc<DaemonServices>, view: Arc<ToolView>, door: Door, origin: Origin) -> Self {
        let loaded = match (&origin, &view.listing) {
            (Origin::Connection(attachment), Some(_)) => Some(attachment.toolsets()),
            _ => None,
        };
        let now = loaded.as_ref().map(|loaded| loaded.borrow().clone()).unwrap_or_default();
        let scope = core.scope(&view, origin.caller(door), now);
        let listing = ArcSwap::new(core.listing(&view, &scope));
        let (receipts, hearing, telling) = (Receipts::default(), OnceLock::new(), OnceLock::new());
        let looked = ArcSwapOption::empty();
        let inside = Inside {
            core,
            view,
            listing,
            loaded,
            door,
            origin,
            receipts,
            hearing,
            telling,
            looked,
        };
        Self(Arc::new(inside))
    }

    /// The transport of a user's connection, which reads no more than its client reads of the answers, and
    /// signs for those that it writes.
    pub fn transport<R, W>(
        &self,
        user: User,
        reader: R,
        writer: W,
    ) -> ReceiptTransport<McpTransport<R, W>>
    where
        R: AsyncBufRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let options = &self.0.core.config.daemon;
        let lines = LineReader::new(reader, options.max_message_bytes());
        let lines = lines.within(self.0.core.incoming.clone(), user);
        let wire = McpTransport::new(lines, writer, RateBuckets::new(options));
        ReceiptTransport::new(wire, self.0.receipts.clone())
    }

    /// Digest of the tools it lists.
    pub fn digest(&self) -> String {
        self.listing().digest().to_owned()
    }

    /// The user of a request over HTTP.
    fn user(&self, context: &RequestContext<RoleServer>) -> Result<User, ErrorData> {
        let caller = caller(context)?;
        if let Origin::Http { user, .. } = &self.0.origin {
            let _first_wins = user.set(caller);
        }
        Ok(caller)
    }

    async fn session(&self, context: &RequestContext<RoleServer>) -> Result<SessionId, ErrorData> {
        let (named, own, shared, kept) = match &self.0.origin {
            Origin::Connection(attachment) => return Ok(attachment.session),
            Origin::Http { client, own, shared, kept, .. } => (client.get(), own, shared, kept),
        };
        let user = self.user(context)?;
        let session = match named {
            Some(name) => {
                let open = || self.open_own(name, user, kept, context);
                own.get_or_try_init(open).await.map(|it| it.session)
            }
            None => shared.of(user, || answer::client_name(context.client_info())).await,
        };
        session.map_err(answer::protocol)
    }

    /// The session of an HTTP client with a handshake: the one that it had before a restart, if it lives.
    async fn open_own(
        &self,
        name: &str,
        user: User,
        kept: &KeptClients,
        context: &RequestContext<RoleServer>,
    ) -> Result<Attachment, ToolError> {
        let sessions = &self.0.core.sessions;
        let http = http_session(context);
        let before = match &http {
            Some(http) => kept.session(http).await,
            None => None,
        };
        let resume = before.filter(|session| sessions.user(*session) == Some(user));
        let (door, client) = (self.0.door, name.to_owned());
        let profile = Default::default();
        let attachment = sessions.open(OpenSession { door, client, user, resume, profile }).await?;
        if let Some(http) = &http {
            kept.bind(http, attachment.session).await;
        }
        Ok(attachment)
    }
}

/// The user whose credential came with a request over HTTP.
fn caller(context: &RequestContext<RoleServer>) -> Result<User, ErrorData> {
    let parts = context.extensions.get::<Parts>();
    let caller = parts.and_then(|parts| parts.extensions.get::<HttpCaller>());
    let nobody = || ErrorData::internal_error("the request came without its caller", None);
    caller.map(|caller| caller.user).ok_or_else(nobody)
}

/// Name of the client's session on the wire of HTTP.
fn http_session(context: &RequestContext<RoleServer>) -> Option<String> {
    let parts = context.extensions.get::<axum::http::request::Parts>()?;
    parts.headers.get("mcp-session-id")?.to_str().ok().map(str::to_owned)
}

/// rmcp moves the future of a request several times, as large as the largest handler's: those that
/// wait are boxed.
impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::builder().enable_tools().build();
        if let (Door::McpStdio, Some(tools)) = (self.0.door, &mut capabilities.tools) {
            // The list changes when the session loads a toolset, and when a daemon is replaced by a
            // newer one under a living attachment, which only the pump of `hivekeep mcp` survives.
            tools.list_changed = Some(true);
        }
        let (offered, watchable) = (!self.offered().is_empty(), !self.watchable().is_empty());
        capabilities.resources = offered.then(|| documents::capability(watchable));
        capabilities.prompts = (!self.prompts().is_empty()).then(PromptsCapability::default);
        let has_names = capabilities.prompts.is_some() || offered;
        capabilities.completions = has_names.then(JsonObject::new);
        if self.0.core.config.registry.deferred.max_per_session > 0 {
            let extensions = capabilities.extensions.get_or_insert_default();
            extensions.insert(TASKS_EXTENSION_ID.to_owned(), JsonObject::new());
        }
        let about = Implementation::new("hivekeep", env!("CARGO_PKG_VERSION"))
            .with_title("hivekeep")
            .with_description(DESCRIPTION);
        ServerConfig::new(capabilities)
            .with_server_info(about)
            .with_instructions(INSTRUCTIONS.as_str())
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        if let Origin::Http { client, .. } = &self.0.origin {
            // A second handshake changes no name.
            let _named = client.set(answer::client_name(Some(request.client_info.clone())));
        }
        context.peer.set_peer_info(request.clone());
        self.negotiate_initialize(&request)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        if self.0.door == Door::McpHttp {
            self.user(&context)?;
        }
        let cursor = request.and_then(|request| request.cursor);
        let (tools, next) = self.listing().page(cursor.as_deref())?;
        let mut result = ListToolsResult::with_all_items(tools);
        result.next_cursor = next;
        Ok(result)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let entry = self.0.core.catalogue().find(name)?.clone();
        // The last listing serves, since each call asks.
        self.0.listing.load().get(&self.0.view.name(entry.spec)).cloned()
    }

    fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<CallToolResponse, ErrorData>> + Send + '_ {
        Box::pin(self.call(request, context))
    }

    fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<GetTaskResult, ErrorData>> + Send + '_ {
        Box::pin(async move { self.task(request, &context).await })
    }

    fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<(), ErrorData>> + Send + '_ {
        Box::pin(async move { self.update(request, &context).await })
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.cancel(request, &context).await
    }

    fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<ListResourcesResult, ErrorData>> + Send + '_ {
        let cursor = request.and_then(|request| request.cursor);
        Box::pin(async move { self.list_documents(cursor, &context).await })
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let templates = self.offered().iter().map(documents::template).collect();
        Ok(ListResourceTemplatesResult::with_all_items(templates))
    }

    fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<ReadResourceResponse, ErrorData>> + Send + '_ {
        Box::pin(async move {
            if self.offered().is_empty() {
                return Err(ErrorData::method_not_found::<ReadResourceRequestMethod>());
            }
            self.read_document(request.uri, &context).await.map(ReadResourceResponse::Complete)
        })
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompts = self.prompts().into_iter().map(PromptTemplate::listed).collect();
        Ok(ListPromptsResult::with_all_items(prompts))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if self.prompts().is_empty() {
            return Err(ErrorData::method_not_found::<GetPromptRequestMethod>());
        }
        Box::pin(self.filled_prompt(request, &context)).await
    }

    fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<CompleteResult, ErrorData>> + Send + '_ {
        Box::pin(async move { self.completion(request, &context).await })
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let revision = context.protocol_version();
        let misfit = misfits::error(&request.method, request.params.as_ref(), revision);
        let unknown = || ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None);
        Err(misfit.unwrap_or_else(unknown))
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.subscriber(&context.peer);
        self.tell_lists(&context.peer);
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        match self.subscriber(&context.peer) {
            Some(hearing) => Box::pin(hearing.add(request.uri)).await,
            None => Err(ErrorData::method_not_found::<SubscribeRequestMethod>()),
        }
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        match self.subscriber(&context.peer) {
            Some(hearing) => hearing.remove(&request.uri),
            None => return Err(ErrorData::method_not_found::<UnsubscribeRequestMethod>()),
        }
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::new();
        // When another daemon takes over, the subscription ends and its client asks for the tools again.
        accepted.tools_list_changed = (self.0.door == Door::McpStdio).then_some(true);
        let offered = self.watchable();
        if !offered.is_empty() {
            accepted.resources_list_changed = Some(true);
            accepted.resource_subscriptions = watch::acceptable(&offered, requested);
        }
        (accepted != SubscriptionFilter::new()).then_some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let documents = Box::pin(watch::listen(self.watchable(), &context));
        tokio::join!(documents, self.listen_to_lists(&context));
        Ok(())
    }
}

/// The form of names as the registry knows it.
pub fn name_style(names: ToolNames) -> hivekeep_registry::NameStyle {
    use hivekeep_registry::NameStyle;
    match names {
        ToolNames::Declared => NameStyle::AsDeclared,
        ToolNames::Dotted => NameStyle::Dotted,
        ToolNames::Underscored => NameStyle::Underscored,
    }
}
