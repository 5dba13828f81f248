//! SOCKS proxy with an egress filter: the only way of a Chrome's processes to any network.
//!
//! Chrome passes names, not addresses. A name is resolved here for each connection, and only addresses
//! that the rules allow are connected to: for pages and what they load, redirects, WebSockets and
//! whatever else Chrome asks for.

use std::{
    collections::VecDeque,
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::{Arc, Mutex},
    time::Duration,
};

use fast_socks5::{
    ReplyError, Socks5Command, server::Socks5ServerProtocol, util::target_addr::TargetAddr,
};
use hivekeep_kernel::lock;
use hivekeep_runtime::egress::{EgressRefusal, EgressRules};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};

/// Concurrent name look-ups of one Chrome. A look-up cannot be cancelled, so it keeps its permit.
const MOST_LOOKUPS: usize = 8;
/// Connections of one Chrome at a time.
const MOST_CONNECTIONS: usize = 256;
/// Time for a request, and for a connection to be made.
const PATIENCE: Duration = Duration::from_secs(20);
/// Refusals that are remembered.
const REFUSALS: usize = 64;

/// Look-up of names.
pub(crate) trait HostNames: Send + Sync {
    /// Addresses that a name has now. Blocks.
    fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// Resolver of the host.
pub(crate) struct SystemNames;

impl HostNames for SystemNames {
    fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok((host, port).to_socket_addrs()?.collect())
    }
}

/// Rules and resolver that decide where connections go.
#[derive(Clone)]
pub(crate) struct BrowserEgress {
    pub(crate) rules: Arc<EgressRules>,
    pub(crate) names: Arc<dyn HostNames>,
}

/// Latest refusals, by host. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Refusals(Arc<Mutex<RefusalLog>>);

#[derive(Debug, Default)]
struct RefusalLog {
    known: VecDeque<(String, EgressRefusal)>,
    /// Number of all refusals so far.
    count: u64,
}

impl Refusals {
    fn note(&self, host: &str, refusal: EgressRefusal) {
        let mut log = lock(&self.0);
        if log.known.len() == REFUSALS {
            log.known.pop_front();
        }
        log.known.push_back((host.to_ascii_lowercase(), refusal));
        log.count += 1;
    }

    /// Number of all refusals so far.
    pub(crate) fn count(&self) -> u64 {
        lock(&self.0).count
    }

    /// The latest refusal, if there were more than `count`.
    pub(crate) fn since(&self, count: u64) -> Option<EgressRefusal> {
        let log = lock(&self.0);
        log.known.back().filter(|_| log.count > count).map(|(_, refusal)| refusal.clone())
    }

    /// The latest refusal of a host.
    pub(crate) fn of(&self, host: &str) -> Option<EgressRefusal> {
        let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
        lock(&self.0)
            .known
            .iter()
            .rev()
            .find(|(name, _)| *name == host)
            .map(|(_, refusal)| refusal.clone())
    }
}

/// Serves connections until the future is dropped.
pub(crate) async fn serve(listener: TcpListener, egress: BrowserEgress, refusals: Refusals) {
    let permits = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let lookups = Arc::new(Semaphore::new(MOST_LOOKUPS));
    let mut connections = JoinSet::new();
    loop {
        // Connections that wait for a permit stay in the listener's queue.
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (egress, refusals, lookups) = (egress.clone(), refusals.clone(), lookups.clone());
        connections.spawn(async move {
            let _permit = permit;
            // Chrome sees the end of the connection; nobody else needs the outcome.
            let _over = carry(stream, &egress, &refusals, lookups).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn carry(
    stream: TcpStream,
    egress: &BrowserEgress,
    refusals: &Refusals,
    lookups: Arc<Semaphore>,
) -> Option<()> {
    let asked = async {
        let greeted = Socks5ServerProtocol::accept_no_auth(stream).await.ok()?;
        greeted.read_command().await.ok()
    };
    let (request, command, target) = timeout(PATIENCE, asked).await.ok()??;
    if !matches!(command, Socks5Command::TCPConnect) {
        return request.reply_error(&ReplyError::CommandNotSupported).await.ok();
    }
    let (host, port) = match target {
        TargetAddr::Ip(address) => (address.ip().to_string(), address.port()),
        TargetAddr::Domain(name, port) => (name, port),
    };
    let mut there = match timeout(PATIENCE, reach(egress, &host, port, lookups)).await {
        Ok(Ok(there)) => there,
        Ok(Err(Unreached::Refused(refusal))) => {
            refusals.note(&host, refusal);
            return request.reply_error(&ReplyError::ConnectionNotAllowed).await.ok();
        }
        Ok(Err(Unreached::Failed)) | Err(_) => {
            return request.reply_error(&ReplyError::HostUnreachable).await.ok();
        }
    };
    let unspecified = SocketAddr::from(([0, 0, 0, 0], 0));
    let mut here = request.reply_success(unspecified).await.ok()?;
    copy_bidirectional(&mut here, &mut there).await.ok().map(drop)
}

enum Unreached {
    Refused(EgressRefusal),
    Failed,
}

/// Connects to the first address that the rules allow and that answers. The name is looked up once, so
/// the address that was checked is the one connected to.
async fn reach(
    BrowserEgress { rules, names }: &BrowserEgress,
    host: &str,
    port: u16,
    lookups: Arc<Semaphore>,
) -> Result<TcpStream, Unreached> {
    rules.admit_target(host, port).map_err(Unreached::Refused)?;
    let permit = lookups.acquire_owned().await.map_err(|_| Unreached::Failed)?;
    let (asked, names) = (host.to_owned(), names.clone());
    let found = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        names.look_up(&asked, port)
    });
    let found = found.await.ok().and_then(Result::ok).ok_or(Unreached::Failed)?;
    let (allowed, refused): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|address| rules.allows(host, address.ip()));
    if allowed.is_empty() && !refused.is_empty() {
        return Err(Unreached::Refused(EgressRefusal::Address(host.to_owned())));
    }
    for address in allowed {
        if let Ok(stream) = TcpStream::connect(address).await {
            let _best_effort = stream.set_nodelay(true);
            return Ok(stream);
        }
    }
    Err(Unreached::Failed)
}
