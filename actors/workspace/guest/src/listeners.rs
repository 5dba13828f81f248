//! Ports of 127.0.0.1 that the daemon listens on for its host. A port stays open for a while when the host goes, so that
//! a program that connects meanwhile waits in the kernel's queue and not in an error.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hivekeep_protocol::{GuestCode, GuestError, limits};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Pause after a failed accept, as when file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

type Table = Arc<Mutex<HashMap<u16, Listener>>>;

/// Open ports, by number.
#[derive(Debug, Default)]
pub(crate) struct PortListeners(Table);

#[derive(Debug)]
struct Listener {
    socket: Arc<TcpListener>,
    /// Calls that wait for a connection or carry one.
    users: usize,
    /// Number of times that it had no user.
    idles: u64,
}

/// A call's hold on a port.
pub(crate) struct PortUse {
    port: u16,
    socket: Arc<TcpListener>,
    table: Table,
}

impl PortListeners {
    /// Opens a port, or finds it open.
    ///
    /// # Errors
    /// `Invalid`, `PortTaken`, `Busy`, `Io`.
    pub(crate) fn listen(&self, port: u16) -> Result<PortUse, GuestError> {
        if port < limits::MIN_LISTEN_PORT {
            let why = format!("port {port} is below {}", limits::MIN_LISTEN_PORT);
            return Err(GuestError::new(GuestCode::Invalid, why));
        }
        let mut table = lock(&self.0);
        let open = table.len();
        let listener = match table.entry(port) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(_) if open >= limits::MAX_LISTENERS => {
                let why = format!("the guest listens on {open} ports already");
                return Err(GuestError::new(GuestCode::Busy, why));
            }
            Entry::Vacant(free) => {
                let socket = bind(port).map_err(|error| refused(port, &error))?;
                free.insert(Listener { socket: Arc::new(socket), users: 0, idles: 0 })
            }
        };
        listener.users += 1;
        Ok(PortUse { port, socket: listener.socket.clone(), table: self.0.clone() })
    }
}

impl PortUse {
    /// Takes the next connection.
    ///
    /// # Errors
    /// `Io` when the connection is of no use.
    pub(crate) async fn accept(&self) -> Result<TcpStream, GuestError> {
        loop {
            match self.socket.accept().await {
                Ok((socket, _)) => {
                    socket.set_nodelay(true).map_err(|error| refused(self.port, &error))?;
                    return Ok(socket);
                }
                Err(error) => {
                    crate::say!("port {}: {error}", self.port);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

impl Drop for PortUse {
    fn drop(&mut self) {
        let mut table = lock(&self.table);
        let Some(listener) = table.get_mut(&self.port) else { return };
        listener.users -= 1;
        if listener.users > 0 {
            return;
        }
        listener.idles += 1;
        let (idle, port, table) = (listener.idles, self.port, self.table.clone());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(limits::LISTEN_IDLE_SECS)).await;
            let mut table = lock(&table);
            if table.get(&port).is_some_and(|it| it.users == 0 && it.idles == idle) {
                table.remove(&port);
            }
        });
    }
}

fn bind(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    socket.listen(limits::LISTEN_BACKLOG)
}

fn refused(port: u16, error: &io::Error) -> GuestError {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let why = format!("something else in the guest listens on port {port}");
            GuestError::new(GuestCode::PortTaken, why)
        }
        _ => GuestError::new(GuestCode::Io, format!("port {port}: {error}")),
    }
}

/// Held for a look or a change only.
fn lock(table: &Table) -> MutexGuard<'_, HashMap<u16, Listener>> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A free port; another may take it before it is used, which no test here survives.
    fn free() -> u16 {
        let probe = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        probe.local_addr().expect("bound").port()
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_outlives_its_last_user_for_a_while() {
        let listeners = PortListeners::default();
        let port = free();
        drop(listeners.listen(port).expect("free"));
        let most = Duration::from_secs(limits::LISTEN_IDLE_SECS);
        tokio::time::sleep(most / 2).await;
        // Used again: the first end counts no more.
        drop(listeners.listen(port).expect("open"));
        tokio::time::sleep(most / 2 + Duration::from_secs(1)).await;
        std::net::TcpListener::bind(("127.0.0.1", port)).expect_err("it is open");
        tokio::time::sleep(most).await;
        std::net::TcpListener::bind(("127.0.0.1", port)).expect("it is closed");
    }

    #[tokio::test]
    async fn ports_are_bounded_and_refused_by_their_codes() {
        let listeners = PortListeners::default();
        let code = |refused: Result<PortUse, GuestError>| refused.err().map(|it| it.code);
        assert_eq!(code(listeners.listen(80)), Some(GuestCode::Invalid));
        let others = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let taken = others.local_addr().expect("bound").port();
        assert_eq!(code(listeners.listen(taken)), Some(GuestCode::PortTaken));
        let mut held = Vec::new();
        while held.len() < limits::MAX_LISTENERS {
            held.extend(listeners.listen(free()).ok());
        }
        assert_eq!(code(listeners.listen(free())), Some(GuestCode::Busy));
        assert!(listeners.listen(held[0].port).is_ok(), "an open port has room for more calls");
    }
}
