//! Servers behind TLS, and an authority of the test's own.

use std::{io::Write, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring, pki_types::PrivatePkcs8KeyDer},
};

use super::{
    server::{Server, no_rules, ok},
    stage::{Stage, options},
};
use crate::{Options, client};

/// An authority in a file, and a server that it vouches for under a name.
async fn vouched(name: &str) -> (tempfile::NamedTempFile, Server) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().expect("random bytes");
    let authority = CertifiedIssuer::self_signed(params, key).expect("a certificate");
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(authority.pem().as_bytes()).expect("written");
    let params = CertificateParams::new([name.to_owned()]).expect("a name");
    let key = KeyPair::generate().expect("random bytes");
    let certificate = params.signed_by(&key, &authority).expect("a certificate");
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .expect("a key that fits");
    let tls = TlsAcceptor::from(Arc::new(config));
    let page = no_rules(|_| ok("text/plain", "sealed"));
    (file, Server::at(("127.0.0.1", 0), Some(tls), page).await)
}

fn url(server: &Server, name: &str) -> String {
    format!("https://{name}:{}/", server.at.port())
}

#[tokio::test]
async fn a_server_must_prove_its_name() {
    let (authority, server) = vouched("site.test").await;
    let here: &[&str] = &["127.0.0.1"];
    let names = [("site.test", here), ("other.test", here)];
    let ca_file = Some(authority.path().to_owned());
    let trusting = Stage::with_names(&Options { ca_file, ..options() }, &names);
    assert_eq!(trusting.good(&url(&server, "site.test")).await.content, "sealed");
    assert_eq!(trusting.refused(&url(&server, "other.test")).await, "web_tls_failed");
    let stranger = Stage::with_names(&options(), &names);
    assert_eq!(stranger.refused(&url(&server, "site.test")).await, "web_tls_failed");
}

#[test]
fn a_file_without_certificates_is_refused() {
    let empty = tempfile::NamedTempFile::new().expect("a file");
    for path in [empty.path(), "/does/not/exist".as_ref()] {
        let broken = Options { ca_file: Some(path.to_owned()), ..options() };
        assert_eq!(client::authorities(&broken).expect_err("refused").code, "web_ca_file_refused");
    }
}
