//! The door over TLS.

use std::{
    io::{BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    sync::Arc,
};

use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};

use super::opened;
use crate::home::{Home, PATIENCE};

fn files(home: &Home) -> (String, String) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("made");
    let (cert, key) = (home.path("cert.pem"), home.path("key.pem"));
    std::fs::write(&cert, made.cert.pem()).expect("writes");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("writes");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("closed");
    (cert.display().to_string(), key.display().to_string())
}

#[test]
fn over_tls_the_door_is_the_same_and_speaks_nothing_else() {
    let home = Home::new();
    let (cert, key) = files(&home);
    let home = opened(home)
        .with("HIVEKEEP_HTTP__API__TLS_CERT", &cert)
        .with("HIVEKEEP_HTTP__API__TLS_KEY", &key);
    let _daemon = home.daemon();
    let url = home.json(&["status", "--json"])["http_api"].as_str().expect("open").to_owned();
    let address = url.trim_start_matches("https://").trim_end_matches("/api").to_owned();
    assert!(url.starts_with("https://"), "{url}");
    let token = super::credential(&home, "ops", "operator");

    let mut roots = RootCertStore::empty();
    let pem = std::fs::read(&cert).expect("reads");
    roots.add(CertificateDer::from_pem_slice(&pem).expect("PEM")).expect("a root");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a client");
    let socket = TcpStream::connect(&address).expect("connects");
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut stream = StreamOwned::new(connection, socket);
    let request = format!(
        "GET /api/tools/workspace_list HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("writes");
    let mut text = String::new();
    let _closed = BufReader::new(stream).read_to_string(&mut text);
    assert!(
        text.starts_with("HTTP/1.1 200") && text.contains(r#""tool_id":"workspace_list""#),
        "{text}"
    );

    let mut plain = TcpStream::connect(&address).expect("connects");
    plain.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let _refused = plain.write_all(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut rest = Vec::new();
    let _reset = plain.read_to_end(&mut rest);
    assert!(!rest.starts_with(b"HTTP/1.1 200"), "{rest:?}");
}

#[test]
fn a_key_that_others_can_read_opens_no_door() {
    let home = Home::new();
    let (cert, key) = files(&home);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("opened");
    let home = opened(home)
        .with("HIVEKEEP_HTTP__API__TLS_CERT", &cert)
        .with("HIVEKEEP_HTTP__API__TLS_KEY", &key);
    let refused = home.run(&["daemon"]);
    assert!(!refused.status.success());
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(told.contains("chmod 600"), "{told}");
}
