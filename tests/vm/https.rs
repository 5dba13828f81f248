//! git's own server behind TLS, in the world, and an authority of the test's own.

use std::{
    io::Write,
    net::{SocketAddr, SocketAddrV4},
    path::{Path, PathBuf},
    process::{Output, Stdio},
    sync::Arc,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri, header},
    response::Response,
};
use hivekeep_network::Namespace;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    process::Command,
    runtime::Runtime,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring, pki_types::PrivatePkcs8KeyDer},
    server::TlsStream,
};

/// The server's name.
pub const HOST: &str = "git.example";
/// Who may come to repositories whose name begins with `closed`.
pub const USER: &str = "somebody";
pub const TOKEN: &str = "tok-7e1dd0c95543";
/// Both, as a header has them.
const BASIC: &str = "Basic c29tZWJvZHk6dG9rLTdlMWRkMGM5NTU0Mw==";

/// Somebody who vouches for servers.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    file: tempfile::NamedTempFile,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("random bytes");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(issuer.pem().as_bytes()).expect("written");
        Self { issuer, file }
    }

    /// Its certificate, as people pass it on.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A file with it.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// A server's, with a certificate for [`HOST`].
    fn vouches(&self) -> ServerConfig {
        let mut params = CertificateParams::new([HOST.to_owned()]).expect("a name");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().expect("random bytes");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("its own versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key.into())
            .expect("they belong together")
    }
}

/// Serves until it is dropped.
pub struct GitServer(Option<Runtime>);

impl GitServer {
    /// Serves the repositories below `root`.
    pub fn start(world: &Namespace, at: SocketAddrV4, by: &Authority, root: &Path) -> Self {
        let socket = world.run(move || std::net::TcpListener::bind(at)).expect("the port is free");
        socket.set_nonblocking(true).expect("a socket can");
        let acceptor = TlsAcceptor::from(Arc::new(by.vouches()));
        let app = Router::new().fallback(serve).with_state(root.to_owned());
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().expect("a thread");
        runtime.spawn(async move {
            let tcp = TcpListener::from_std(socket).expect("a runtime's");
            axum::serve(Tls { tcp, acceptor }, app).await.expect("it serves until it is dropped");
        });
        Self(Some(runtime))
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        let runtime = self.0.take();
        runtime.into_iter().for_each(Runtime::shutdown_background);
    }
}

struct Tls {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
}

impl axum::serve::Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let (stream, from) = self.tcp.accept().await.expect("a descriptor");
            // One that does not trust us hangs up.
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, from);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

async fn serve(
    State(root): State<PathBuf>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let known = text(header::AUTHORIZATION) == BASIC;
    if uri.path().starts_with("/closed") && !known {
        return Response::builder()
            .status(StatusCode::UNAUTHORIZED)
            .header(header::WWW_AUTHENTICATE, "Basic realm=\"here\"")
            .body(Body::empty())
            .expect("a response");
    }
    let mut cgi = Command::new("git");
    cgi.arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", method.as_str())
        .env("PATH_INFO", uri.path())
        .env("QUERY_STRING", uri.query().unwrap_or_default())
        .env("CONTENT_TYPE", text(header::CONTENT_TYPE))
        .env("HTTP_CONTENT_ENCODING", text(header::CONTENT_ENCODING))
        .env("CONTENT_LENGTH", body.len().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if known {
        cgi.env("REMOTE_USER", USER);
    }
    let mut child = cgi.spawn().expect("git http-backend");
    let mut stdin = child.stdin.take().expect("piped");
    let written = tokio::spawn(async move {
        let _it_may_have_read_enough = stdin.write_all(&body).await;
    });
    let output = child.wait_with_output().await.expect("it ends");
    written.await.expect("written");
    answer(&output)
}

/// CGI's answer as that of a server.
fn answer(output: &Output) -> Response {
    let told = &output.stdout;
    let end = told.windows(4).position(|part| part == b"\r\n\r\n").expect("headers end");
    let mut response = Response::builder();
    for line in String::from_utf8_lossy(&told[..end]).lines() {
        let (name, value) = line.split_once(": ").expect("a header");
        response = match name {
            "Status" => response.status(value[..3].parse::<u16>().expect("a status")),
            _ => response.header(name, value),
        };
    }
    response.body(Body::from(told[end + 4..].to_vec())).expect("a response")
}
