//! Test fixture: `git http-backend` behind a server that asks for credentials, and looks for leaks
//! while it serves.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri, header},
    response::Response,
};
use tokio::{io::AsyncWriteExt, process::Command};

/// Parameters of the server.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) seen: Arc<Seen>,
    serving: tokio::task::JoinHandle<()>,
}

pub(super) struct Seen {
    root: PathBuf,
    /// Accepted authorization header, `Basic ...`.
    expected: String,
    token: String,
    /// Number of requests that were admitted.
    pub(super) let_in: AtomicU32,
    /// Places where the token was found meanwhile.
    pub(super) found: Mutex<Vec<String>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Server {
    /// Serves the repositories below `root` to `user` with `token`. `basic` is both in the header's
    /// form.
    pub(super) async fn start(root: &Path, basic: &str, token: &str) -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Seen {
            root: root.to_owned(),
            expected: format!("Basic {basic}"),
            token: token.to_owned(),
            let_in: AtomicU32::new(0),
            found: Mutex::default(),
        });
        let app = Router::new().fallback(serve).with_state(seen.clone());
        let serving = tokio::spawn(async move {
            axum::serve(listener, app).await.expect("it serves until it is aborted");
        });
        Self { address, seen, serving }
    }

    pub(super) fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }
}

async fn serve(
    State(seen): State<Arc<Seen>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if text(header::AUTHORIZATION) != seen.expected {
        return Response::builder()
            .status(StatusCode::UNAUTHORIZED)
            .header(header::WWW_AUTHENTICATE, "Basic realm=\"here\"")
            .body(Body::empty())
            .expect("a response");
    }
    seen.let_in.fetch_add(1, SeqCst);
    // git is running now, and knows the token.
    let here = seen.clone();
    let looked = tokio::task::spawn_blocking(move || in_proc(&here.token)).await.expect("looked");
    seen.found.lock().expect("no panic").extend(looked);
    let mut cgi = Command::new("git");
    cgi.arg("http-backend")
        .env("GIT_PROJECT_ROOT", &seen.root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", method.as_str())
        .env("PATH_INFO", uri.path())
        .env("QUERY_STRING", uri.query().unwrap_or_default())
        .env("CONTENT_TYPE", text(header::CONTENT_TYPE))
        .env("HTTP_CONTENT_ENCODING", text(header::CONTENT_ENCODING))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("REMOTE_USER", "somebody")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = cgi.spawn().expect("git http-backend");
    let mut stdin = child.stdin.take().expect("piped");
    let written = tokio::spawn(async move {
        let _it_may_have_read_enough = stdin.write_all(&body).await;
    });
    let output = child.wait_with_output().await.expect("it ends");
    written.await.expect("written");
    answer(&output.stdout)
}

/// Turns CGI output into an HTTP answer.
fn answer(output: &[u8]) -> Response {
    let end = output.windows(4).position(|part| part == b"\r\n\r\n").expect("headers end");
    let mut response = Response::builder();
    for line in String::from_utf8_lossy(&output[..end]).lines() {
        let (name, value) = line.split_once(": ").expect("a header");
        response = match name {
            "Status" => response.status(value[..3].parse::<u16>().expect("a status")),
            _ => response.header(name, value),
        };
    }
    response.body(Body::from(output[end + 4..].to_vec())).expect("a response")
}

/// Processes whose environment or command line shows the token.
pub(super) fn in_proc(token: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        for file in ["cmdline", "environ"] {
            let path = entry.path().join(file);
            let bytes = std::fs::read(&path).unwrap_or_default();
            if bytes.windows(token.len()).any(|part| part == token.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

/// Files below a folder that contain the token.
pub(super) fn in_files(folder: &Path, token: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let kind = entry.file_type().expect("a kind");
        if kind.is_dir() {
            found.extend(in_files(&entry.path(), token));
        } else if kind.is_file() {
            let bytes = std::fs::read(entry.path()).unwrap_or_default();
            if bytes.windows(token.len()).any(|part| part == token.as_bytes()) {
                found.push(entry.path().display().to_string());
            }
        }
    }
    found
}
