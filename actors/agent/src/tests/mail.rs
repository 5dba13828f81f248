//! Mails by servers behind TLS, and the share of each user.

use std::{io::Write, num::NonZeroU32, sync::Arc};

use hivekeep_kernel::User;
use hivekeep_ports::{Mail, Mails as _};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    net::TcpListener,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring, pki_types::PrivatePkcs8KeyDer},
};

use crate::{
    mail::Mailer,
    options::{SmtpOptions, SmtpSecurity},
};

/// An authority in a file, and TLS of a server that it vouches for under the name `localhost`.
fn vouched() -> (tempfile::NamedTempFile, TlsAcceptor) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().expect("random bytes");
    let authority = CertifiedIssuer::self_signed(params, key).expect("a certificate");
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(authority.pem().as_bytes()).expect("written");
    let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    let key = KeyPair::generate().expect("random bytes");
    let certificate = params.signed_by(&key, &authority).expect("a certificate");
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .expect("a key that fits");
    (file, TlsAcceptor::from(Arc::new(config)))
}

/// Serves a client until it quits, or wants TLS: whether it does. `said` are the lines of the client.
async fn serve(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    greets: bool,
    said: &mut Vec<String>,
) -> bool {
    let (read, mut write) = tokio::io::split(stream);
    let (mut lines, mut in_data) = (BufReader::new(read).lines(), false);
    if greets {
        write.write_all(b"220 test\r\n").await.expect("said");
    }
    while let Ok(Some(line)) = lines.next_line().await {
        let answer = match line.split(' ').next().unwrap_or_default() {
            "." => {
                in_data = false;
                "250 taken\r\n"
            }
            _ if in_data => "",
            "EHLO" => "250-test\r\n250 STARTTLS\r\n",
            "STARTTLS" => {
                write.write_all(b"220 go on\r\n").await.expect("said");
                return true;
            }
            "DATA" => {
                in_data = true;
                "354 go on\r\n"
            }
            "QUIT" => break,
            _ => "250 ok\r\n",
        };
        said.push(line);
        write.write_all(answer.as_bytes()).await.expect("said");
    }
    false
}

/// Takes one mail; the lines of its client, none where it left.
async fn server(listener: TcpListener, tls: TlsAcceptor, security: SmtpSecurity) -> Vec<String> {
    let (mut stream, _) = listener.accept().await.expect("a client");
    let mut clear = Vec::new();
    let starts = security == SmtpSecurity::Starttls;
    if starts && !serve(&mut stream, true, &mut clear).await {
        return Vec::new();
    }
    assert!(clear.iter().all(|line| line.starts_with("EHLO")), "{clear:?}");
    let mut said = Vec::new();
    if let Ok(mut stream) = tls.accept(stream).await {
        serve(&mut stream, !starts, &mut said).await;
    }
    said
}

fn letter(to: &[&str]) -> Mail {
    Mail {
        reply_to: None,
        to: to.iter().map(|&to| to.to_owned()).collect(),
        subject: "Done".to_owned(),
        body: "A text.".to_owned(),
        key: "one".to_owned(),
    }
}

#[tokio::test]
async fn mails_go_to_servers_that_prove_their_name_and_so_many_of_each_user() {
    for security in [SmtpSecurity::Tls, SmtpSecurity::Starttls] {
        let (authority, tls) = vouched();
        for known in [true, false] {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
            let options = SmtpOptions {
                host: "localhost".to_owned(),
                port: Some(listener.local_addr().expect("bound").port()),
                security,
                from: "hivekeep@example.com".to_owned(),
                user: None,
                password_file: None,
                ca_file: known.then(|| authority.path().to_owned()),
                receivers: None,
                receivers_per_hour: NonZeroU32::new(2).expect("two"),
            };
            let server = tokio::spawn(server(listener, tls.clone(), security));
            let mailer = Mailer::new(options);
            let sent = mailer.send(User::Uid(1), letter(&["a@example.org"])).await;
            let said = server.await.expect("it ends");
            if !known {
                assert_eq!(sent.expect_err("a stranger").code, "mail_failed");
                assert!(!said.iter().any(|line| line.starts_with("MAIL")), "{said:?}");
                continue;
            }
            sent.expect("it is sent");
            assert!(said.iter().any(|line| line == "A text."), "{said:?}");
            let both = letter(&["a@example.org", "b@example.org"]);
            let slowed = mailer.send(User::Uid(1), both).await.expect_err("one is left");
            assert!(slowed.code == "rate_limited" && slowed.retryable, "{slowed:?}");
            let other = mailer.send(User::Uid(2), letter(&["a@example.org"])).await;
            assert_eq!(other.expect_err("nobody listens").code, "mail_failed", "it has its own");
            let many = letter(&["a@b.c", "d@e.f", "g@h.i"]);
            let never = mailer.send(User::Uid(2), many).await.expect_err("more than there are");
            assert!(never.code == "rate_limited" && !never.retryable, "{never:?}");
        }
    }
}
