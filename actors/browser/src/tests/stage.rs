//! The family as it is mounted, and a server of pages.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use hivekeep_file_engine::{FileEffect, FileOperation, FileRoot, decode, encode, run};
use hivekeep_kernel::{CallCx, Resources, SessionId, ToolError, User};
use hivekeep_ports::{Hold, LateTools, LocatedPlace, PlaceFiles, SessionQuotas, Standing};
use hivekeep_store::Seq;
use hivekeep_testkit::{PendingCall, Rig, RigServices};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{
    BrowserFamily, Options,
    proxy::{HostNames, SystemNames},
};

/// For a call on a busy machine.
const PATIENCE: Duration = Duration::from_secs(110);

/// Answer of the server: status, headers, body.
#[derive(Clone)]
pub(super) struct Sent(pub(super) u16, pub(super) &'static str, pub(super) Vec<u8>);

impl Sent {
    pub(super) fn html(body: &str) -> Self {
        let page = format!("<!doctype html><title>Test page</title>{body}");
        Self(200, "Content-Type: text/html; charset=utf-8\r\n", page.into_bytes())
    }
}

type Answering = Arc<dyn Fn(&str) -> Option<Sent> + Send + Sync>;

/// Server of pages on the loopback network.
pub(super) struct Pages {
    pub(super) port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Pages {
    /// Serves by path; `None` leaves a request without an answer.
    pub(super) async fn new(answer: impl Fn(&str) -> Option<Sent> + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1:0", answer).await
    }

    /// At an address.
    pub(super) async fn at(
        address: &str,
        answer: impl Fn(&str) -> Option<Sent> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let (answer, asked): (Answering, _) =
            (Arc::new(answer), Arc::<Mutex<Vec<String>>>::default());
        let seen = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(served(stream, answer.clone(), seen.clone()));
            }
        });
        Self { port, asked }
    }

    /// A server of one page.
    pub(super) async fn one(body: &str) -> Self {
        let sent = Sent::html(body);
        Self::new(move |path| (path != "/favicon.ico").then(|| sent.clone())).await
    }

    /// Some pages by their paths.
    pub(super) async fn some(pages: &[(&str, &str)]) -> Self {
        let pages: HashMap<String, Sent> =
            pages.iter().map(|(path, body)| ((*path).to_owned(), Sent::html(body))).collect();
        Self::new(move |path| {
            Some(pages.get(path).cloned().unwrap_or(Sent(404, "", b"not here".to_vec())))
        })
        .await
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no panic").clone()
    }
}

async fn served(
    mut stream: TcpStream,
    answer: Answering,
    asked: Arc<Mutex<Vec<String>>>,
) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1)?.to_owned();
    asked.lock().expect("no panic").push(path.clone());
    let Some(Sent(status, headers, body)) = answer(&path) else {
        return std::future::pending().await;
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} X\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.write_all(&body).await.ok()?;
    stream.shutdown().await.ok()
}

/// Sessions that are all attached, until they are over. All but one are one user's.
#[derive(Default)]
pub(super) struct Sessions {
    over: AtomicBool,
    of_another: OnceLock<SessionId>,
}

#[async_trait]
impl SessionQuotas for Sessions {
    async fn reserve(&self, _: SessionId, _: Resources) -> Result<(), ToolError> {
        Ok(())
    }
    fn release(&self, _: SessionId, _: Resources) {}
    fn restore(&self, _: SessionId, _: Resources) {}
    fn hold(&self, _: SessionId) -> Hold {
        Hold::default()
    }
    fn user(&self, session: SessionId) -> Option<User> {
        let of_another = self.of_another.get() == Some(&session);
        Some(if of_another { User::Uid(8) } else { User::Uid(7) })
    }
    async fn standing(&self, _: SessionId) -> Standing {
        let ended = self.over.load(SeqCst);
        Standing { attached: !ended, calls_in_flight: 0, idle_for: Duration::ZERO, ended }
    }
}

/// A place: a folder of the test's.
pub(super) struct FolderPlace {
    pub(super) folder: TempDir,
    /// Whether it refuses what it is given.
    pub(super) full: AtomicBool,
}

impl Default for FolderPlace {
    fn default() -> Self {
        let folder = TempDir::new().expect("a folder");
        Self { folder, full: AtomicBool::new(false) }
    }
}

impl FolderPlace {
    /// Files in its folder of downloads, by their names.
    pub(super) fn downloads(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = std::fs::read_dir(self.folder.path().join("downloads")).into_iter().flatten();
        let file = |entry: std::fs::DirEntry| {
            let name = entry.file_name().into_string().expect("UTF-8");
            (name, std::fs::read(entry.path()).expect("a file"))
        };
        entries.map(|entry| file(entry.expect("an entry"))).collect()
    }
}

#[async_trait]
impl PlaceFiles for FolderPlace {
    async fn locate(&self, _: &CallCx, place: Option<&str>) -> Result<LocatedPlace, ToolError> {
        let name = place.unwrap_or("work").to_owned();
        Ok(LocatedPlace { id: name.clone(), name, folder: None })
    }

    async fn run(&self, _: &CallCx, _: &str, operation: Vec<u8>) -> Result<Vec<u8>, ToolError> {
        let operation: FileOperation = decode(&operation).expect("an operation");
        if self.full.load(SeqCst) && operation.effect() == FileEffect::Writes {
            return Err(ToolError::invalid("the place is full"));
        }
        let root = FileRoot::folder(self.folder.path()).expect("opened");
        let outcome = run(&root, &operation, &|| false);
        let outcome = outcome.map_err(|error| ToolError::invalid(error.to_string()))?;
        Ok(encode(&outcome).expect("it fits"))
    }
}

/// The family, with a session of a test.
pub(super) struct Stage {
    pub(super) rig: Rig<BrowserFamily>,
    sessions: Arc<Sessions>,
    pub(super) place: Arc<FolderPlace>,
}

/// Options by which pages reach the tests' servers.
pub(super) fn options() -> Options {
    Options {
        allow_networks: vec!["127.0.0.1".to_owned()],
        ports: Vec::new(),
        ..Options::default()
    }
}

impl Stage {
    pub(super) async fn mounted(options: Options) -> Self {
        Self::with_names(options, Arc::new(SystemNames)).await
    }

    /// Where names have the addresses of the test.
    pub(super) async fn with_names(options: Options, names: Arc<dyn HostNames>) -> Self {
        assert!(
            options.found_program().is_some() || !options.attach.is_empty(),
            "these tests need Chromium: apt-get install chromium"
        );
        let (sessions, place) = (Arc::<Sessions>::default(), Arc::<FolderPlace>::default());
        let offered = place.clone();
        let services = RigServices {
            sessions: sessions.clone(),
            tools: Arc::new(LateTools::default()),
            offer: Arc::new(move |ports| {
                ports.offer::<dyn PlaceFiles>(offered.clone());
                ports.offer::<dyn HostNames>(names.clone());
            }),
        };
        Self { rig: Rig::new(options, services).await, sessions, place }
    }

    /// With a browser.
    pub(super) async fn connected(options: Options) -> Self {
        let stage = Self::mounted(options).await;
        stage.connect().await;
        stage
    }

    pub(super) async fn connect(&self) -> Value {
        self.good("webview_connect", json!({ "debug_url": "local", "timeout": 60 })).await
    }

    /// Events of a kind that were published, as their data.
    pub(super) async fn events(&self, kind: &str) -> Vec<Value> {
        let events = self.rig.daemon.journal.events();
        let read = tokio::task::spawn_blocking(move || events.read(Seq::FIRST, 10_000));
        let page = read.await.expect("no panic").expect("they are read");
        page.events.into_iter().filter(|it| it.kind == kind).map(|it| it.data).collect()
    }

    /// With a browser at a page.
    pub(super) async fn at(url: &str) -> Self {
        let stage = Self::connected(options()).await;
        stage.go(url).await;
        stage
    }

    pub(super) async fn go(&self, url: &str) -> Value {
        self.good("webview_navigate", json!({ "url": url })).await
    }

    pub(super) fn begin(&self, tool: &str, args: Value) -> PendingCall {
        self.rig.begin_as(self.rig.session, tool, args, PATIENCE)
    }

    pub(super) async fn call(&self, tool: &str, args: Value) -> Result<Value, ToolError> {
        self.begin(tool, args).answer().await
    }

    pub(super) async fn good(&self, tool: &str, args: Value) -> Value {
        let answer = self.call(tool, args.clone()).await;
        answer.unwrap_or_else(|error| panic!("{tool} {args}: {error:?}"))
    }

    pub(super) async fn refused(&self, tool: &str, args: Value) -> ToolError {
        let answer = self.call(tool, args.clone()).await;
        answer.map_or_else(|error| error, |good| panic!("{tool} {args}: {good}"))
    }

    /// Value of a script.
    pub(super) async fn eval(&self, script: &str) -> Value {
        self.good("webview_eval", json!({ "script": script })).await["result"].clone()
    }

    /// The session is over.
    pub(super) fn end_session(&self) {
        self.sessions.over.store(true, SeqCst);
    }

    /// A session of another user.
    pub(super) fn of_another(&self) -> SessionId {
        *self.sessions.of_another.get_or_init(SessionId::new)
    }

    /// Folders of browsers that there are.
    pub(super) fn folders(&self) -> usize {
        let folder = self.rig.daemon.folders.state.join("browsers");
        std::fs::read_dir(folder).map_or(0, Iterator::count)
    }

    /// Pids of the first processes of browsers: bubblewrap's, by the folder that they have.
    pub(super) fn pids(&self) -> Vec<i32> {
        let folder = self.rig.daemon.folders.state.join("browsers");
        let mark = format!("HIVEKEEP_HOST_PROCESS={}", folder.display());
        let all = std::fs::read_dir("/proc").expect("there").flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let ours = |pid: &i32| {
            let of = |what| std::fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
            let variables = of("environ");
            of("cmdline").starts_with(b"bwrap\0")
                && String::from_utf8_lossy(&variables).contains(&mark)
        };
        pids.filter(ours).collect()
    }
}
