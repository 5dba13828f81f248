//! Door of a daemon, which runs as long as its SDKs drive it.

use std::net::TcpListener;
use std::path::Path;

use anyhow::{Context, Result};
use xshell::cmd;

use crate::repo::Repo;
use crate::test::outside::ServedDaemon;

/// Domain of sandboxes. Clients accept no wildcard directly below `localhost`.
const DOMAIN: &str = "e2b.localhost";
/// Variables of the daemon.
const BIND: &str = "HIVEKEEP_HTTP__E2B__BIND";
const CERT: &str = "HIVEKEEP_HTTP__E2B__TLS_CERT";
const KEY: &str = "HIVEKEEP_HTTP__E2B__TLS_KEY";
/// A machine of the default size that is ready: of what an SDK asks for, all but the first is claimed, not booted.
const POOL: (&str, &str) =
    ("HIVEKEEP_WORKSPACE__POOL__CLASSES", r#"[{ "ready": 1, "isolation": "vm" }]"#);

pub(super) struct SdkDoor {
    /// Variables that tell an SDK the door's place.
    pub(super) environment: Vec<(&'static str, String)>,
    _daemon: ServedDaemon,
}

impl SdkDoor {
    /// A door that is found by its address alone.
    pub(super) fn by_address(repo: &Repo, home: &Path, isolation: &str) -> Result<Self> {
        Self::open(repo, home, isolation, &[(BIND, "127.0.0.1:0")])
    }

    /// A door whose sandboxes are also found by their names, which takes TLS.
    pub(super) fn by_name(repo: &Repo, home: &Path, isolation: &str) -> Result<Self> {
        let file = |name: &str| home.join(name).display().to_string();
        let (cert, key) = (file("cert.pem"), file("key.pem"));
        let names = format!("subjectAltName=DNS:*.{DOMAIN},IP:127.0.0.1");
        cmd!(repo.shell, "openssl req -x509 -newkey ec -nodes -days 2 -subj /CN=hivekeep")
            .args(["-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", &key, "-out", &cert])
            .args(["-addext", &names, "-addext", "basicConstraints=critical,CA:FALSE"])
            .quiet()
            .ignore_stderr()
            .run()?;
        // The domain has the port, which is therefore chosen before the daemon starts.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let domain = ("HIVEKEEP_HTTP__E2B__DOMAIN", &*format!("{DOMAIN}:{}", address.port()));
        let more = [(BIND, &*address.to_string()), domain, (CERT, &cert), (KEY, &key)];
        let mut door = Self::open(repo, home, isolation, &more)?;
        door.environment
            .extend(["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"].map(|it| (it, cert.clone())));
        Ok(door)
    }

    fn open(
        repo: &Repo,
        home: &Path,
        isolation: &str,
        more: &[(&'static str, &str)],
    ) -> Result<Self> {
        let mut open = more.to_vec();
        open.extend([
            ("HIVEKEEP_HTTP__E2B__ENABLED", "true"),
            ("HIVEKEEP_HTTP__E2B__ISOLATION", isolation),
        ]);
        open.extend((isolation == "vm").then_some(POOL));
        let daemon = ServedDaemon::start_with(repo, home, &open)?;
        let status: serde_json::Value =
            serde_json::from_str(&daemon.output(&["status", "--json"])?)?;
        let url = status["e2b"].as_str().context("the door is open")?.to_owned();
        let name = url.split(':').next().unwrap_or_default();
        let credential = daemon.output(&["credential", "create", name, "--scope", "session"])?;
        let key = credential.trim().replacen("hivekeep_", "e2b_", 1);
        let environment =
            vec![("E2B_API_URL", url.clone()), ("E2B_SANDBOX_URL", url), ("E2B_API_KEY", key)];
        Ok(Self { environment, _daemon: daemon })
    }
}
