//! A name server in the world: it knows every name, all at one address.

use std::{
    net::{Ipv4Addr, SocketAddrV4, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::Duration,
};

use hivekeep_network::Namespace;

/// Type A, class IN.
const ADDRESS: [u8; 4] = [0, 1, 0, 1];
const HEADER_BYTES: usize = 12;

/// A name server that ends with this value.
pub struct Names {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Names {
    /// Answers questions for addresses with `known`, and all others with nothing.
    pub fn serve(world: &Namespace, at: SocketAddrV4, known: Ipv4Addr) -> Self {
        let socket = world.run(move || UdpSocket::bind(at)).expect("the port is free");
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
        let end = Arc::new(AtomicBool::new(false));
        let told = end.clone();
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 1500];
            while !told.load(Relaxed) {
                let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
                if let Some(answer) = answer(&buffer[..len], known) {
                    let _the_asker_asks_again = socket.send_to(&answer, from);
                }
            }
        });
        Self { end, thread: Some(thread) }
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.end.store(true, Relaxed);
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

/// The answer to a message with one question; what follows that is left out.
fn answer(asked: &[u8], known: Ipv4Addr) -> Option<Vec<u8>> {
    let mut at = HEADER_BYTES;
    while *asked.get(at)? != 0 {
        at += 1 + usize::from(asked[at]);
    }
    let kind = asked.get(at + 1..at + 5)?;
    let answers = u8::from(kind == ADDRESS);
    let mut told = asked[..2].to_vec();
    // An answer with recursion; one question, so many answers, nothing else.
    told.extend([0x81, 0x80, 0, 1, 0, answers, 0, 0, 0, 0]);
    told.extend(&asked[HEADER_BYTES..at + 5]);
    if answers == 1 {
        // The name is where the question has it; a minute; four bytes.
        told.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        told.extend(known.octets());
    }
    Some(told)
}
