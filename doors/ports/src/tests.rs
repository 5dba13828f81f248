//! The door with real sockets, over workspaces whose ports are listeners of the test.

mod routes;
mod streams;

use std::{collections::HashMap, net::SocketAddr, sync::Mutex};

use async_trait::async_trait;
use hivekeep_door_server::credentials::CredentialScope;
use hivekeep_kernel::{CallCx, Layer, ToolError, WorkspaceId};
use hivekeep_ports::{
    ByteStream, FoundWorkspace, GuestOperation, PortUrlRequest, WorkspaceReadiness,
};
use hivekeep_runtime::ListenerOptions;
use hivekeep_store::{Journal, NewEvent, Options};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::*;

/// Workspaces with their owners; a port of one is the listener that stands for it.
#[derive(Default)]
struct Fakes {
    workspaces: Mutex<Vec<FoundWorkspace>>,
    listeners: Mutex<HashMap<(WorkspaceId, u16), SocketAddr>>,
}

#[async_trait]
impl WorkspaceFiles for Fakes {
    fn find(&self, id_or_name: &str) -> Option<FoundWorkspace> {
        let all = self.workspaces.lock().expect("no panic");
        all.iter().find(|it| it.name == id_or_name || it.id.to_string() == id_or_name).cloned()
    }

    async fn run(
        &self,
        _: &CallCx,
        _: WorkspaceId,
        _: GuestOperation,
    ) -> Result<Vec<u8>, ToolError> {
        Err(ToolError::internal("nobody asks for files here"))
    }
}

#[async_trait]
impl WorkspacePorts for Fakes {
    async fn dial(
        &self,
        cx: &CallCx,
        workspace: WorkspaceId,
        port: u16,
    ) -> Result<Box<dyn ByteStream>, ToolError> {
        let found = self.find(&workspace.to_string()).expect("it is there");
        assert_eq!(found.owner, Some(cx.session), "its owner's session asks");
        let address = self.listeners.lock().expect("no panic").get(&(workspace, port)).copied();
        let closed = || {
            let why = format!("nothing takes connections on port {port}: <refused>");
            ToolError::foreign(Layer::Guest, "port_closed", why)
        };
        let stream = TcpStream::connect(address.ok_or_else(closed)?).await;
        Ok(Box::new(stream.map_err(|error| ToolError::internal(error.to_string()))?))
    }

    async fn dial_forward(
        &self,
        _: WorkspaceId,
        _: u16,
        _: std::time::Duration,
    ) -> Result<Box<dyn ByteStream>, ToolError> {
        Err(ToolError::internal("nobody connects to forwards here"))
    }

    async fn wake(&self, _: WorkspaceId, _: std::time::Duration) -> Result<(), ToolError> {
        Err(ToolError::internal("no packet comes here"))
    }
}

/// An open door.
struct Stage {
    folder: tempfile::TempDir,
    journal: Journal,
    fakes: Arc<Fakes>,
    credentials: Credentials,
    urls: Arc<Urls>,
    address: SocketAddr,
    end: CancellationToken,
    /// Sessions of users.
    users: Arc<Mutex<HashMap<SessionId, User>>>,
}

async fn journal(folder: &std::path::Path) -> Journal {
    let options = Options { dir: folder.join("journal"), ..Options::default() };
    tokio::task::spawn_blocking(|| Journal::open(options)).await.expect("runs").expect("opens").0
}

impl Stage {
    async fn open() -> Self {
        Self::with(PortUrlOptions::default()).await
    }

    async fn with(options: PortUrlOptions) -> Self {
        Self::begin(options, tempfile::tempdir().expect("a folder"), Arc::default(), Arc::default())
            .await
    }

    async fn begin(
        options: PortUrlOptions,
        folder: tempfile::TempDir,
        fakes: Arc<Fakes>,
        users: Arc<Mutex<HashMap<SessionId, User>>>,
    ) -> Self {
        let journal = journal(folder.path()).await;
        let credentials = Credentials::open(&journal).await.expect("opens");
        let (inside, end) = (TaskTracker::new(), CancellationToken::new());
        let public = PublicPorts::open(&journal, fakes.clone()).await.expect("opens");
        public.forget_destroyed_until(&journal, end.clone());
        let secret = BearerToken::load_or_create(&folder.path().join("key")).expect("a key");
        let listener = ListenerOptions::at("127.0.0.1:0");
        let listener = DoorListener::bind("http.ports", &listener).expect("a port");
        let address = listener.address;
        let urls = urls(&listener, &options, LinkKey::new(&secret), public);
        let known = users.clone();
        let door = PortDoor {
            pools: PortPools::new(&options, inside, end.clone()),
            options,
            body_patience: Duration::from_secs(60),
            credentials: credentials.clone(),
            users: Box::new(move |id| known.lock().expect("no panic").get(&id).copied()),
            workspaces: fakes.clone(),
            ports: fakes.clone(),
            urls: urls.clone(),
        };
        tokio::spawn(door.at(listener, &HttpOptions::default(), end.clone()).serve());
        Self { folder, journal, fakes, credentials, urls, address, end, users }
    }

    /// A daemon that comes after this one.
    async fn restart(self) -> Self {
        self.end.cancel();
        self.journal.close().await;
        Self::begin(PortUrlOptions::default(), self.folder, self.fakes, self.users).await
    }

    /// A workspace of a new session of a user.
    fn workspace(&self, name: &str, user: User) -> WorkspaceId {
        let (id, session) = (WorkspaceId::new(), SessionId::new());
        self.users.lock().expect("no panic").insert(session, user);
        self.fakes.workspaces.lock().expect("no panic").push(FoundWorkspace {
            id,
            name: name.to_owned(),
            owner: Some(session),
            readiness: WorkspaceReadiness::Ready,
        });
        id
    }

    /// Has a listener stand for a port.
    async fn listen(&self, workspace: WorkspaceId, port: u16) -> TcpListener {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        self.fakes.listeners.lock().expect("no panic").insert((workspace, port), address);
        listener
    }

    /// Has a port answer each request with its own head, without keep-alive.
    async fn repeats(&self, workspace: WorkspaceId, port: u16) {
        let listener = self.listen(workspace, port).await;
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let head = head(&mut stream).await;
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nKeep-Alive: timeout=1\r\n\
                     Set-Cookie: a=1; Domain=localhost\r\nX-Of-Guest: yes\r\n\r\n{head}",
                    head.len()
                );
                stream.write_all(answer.as_bytes()).await.expect("written");
            }
        });
    }

    async fn credential(&self, name: &str, scope: CredentialScope) -> (User, String) {
        let made = self.credentials.create(name, scope, User::Uid(0)).await.expect("made");
        (made.0.user(), made.1.expose().to_owned())
    }

    async fn url(
        &self,
        workspace: WorkspaceId,
        name: &str,
        wanted: PortUrlRequest,
    ) -> (String, String) {
        let url = self.urls.url(workspace, name, 80, wanted).await.expect("a URL");
        let link = url.link.map(|(link, _)| link).unwrap_or_default();
        (url.url, link.split_once('?').map(|(_, query)| query.to_owned()).unwrap_or_default())
    }

    /// Sends a request on a connection of its own; the answer's status, head and body.
    async fn get(&self, host: &str, target: &str, more: &[&str]) -> (u16, String, String) {
        let mut head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        for line in more {
            head += line;
            head += "\r\n";
        }
        self.send(&format!("{head}\r\n")).await
    }

    async fn send(&self, request: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.address).await.expect("connects");
        stream.write_all(request.as_bytes()).await.expect("written");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("an answer");
        let answer = String::from_utf8(answer).expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("a status");
        (status, head.to_ascii_lowercase(), body.to_owned())
    }
}

/// The head of a request or an answer.
async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a head"));
    }
    String::from_utf8(head).expect("text")
}

/// A request for a link.
fn for_secs(expires_secs: u64) -> PortUrlRequest {
    PortUrlRequest { public: None, expires_secs }
}

fn public(public: bool) -> PortUrlRequest {
    PortUrlRequest { public: Some(public), expires_secs: 60 }
}

/// What the daemon says when a workspace is destroyed.
fn destroyed(journal: &Journal, workspace: WorkspaceId) {
    let event = NewEvent {
        kind: "workspace.destroyed".to_owned(),
        subject: workspace.to_string(),
        data: serde_json::Value::Null,
    };
    journal.events().publish_later(event);
}
