//! A WebSocket client made of frames, so that what is not read stays unread.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::{Value, json};

/// Time for what a test awaits.
const PATIENCE: Duration = Duration::from_secs(90);

pub(super) struct Socket {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

/// Asks for a WebSocket; the status, and what follows its head.
pub(super) fn handshake(address: &str, headers: &[(&str, &str)]) -> (u16, BufReader<TcpStream>) {
    let stream = TcpStream::connect(address).expect("connects");
    shake(stream, address, headers)
}

fn shake(
    mut stream: TcpStream,
    address: &str,
    headers: &[(&str, &str)],
) -> (u16, BufReader<TcpStream>) {
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut all = BTreeMap::from([
        ("Host", address),
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ]);
    all.extend(headers.iter().copied());
    let lines: String = all.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    stream.write_all(format!("GET /ws HTTP/1.1\r\n{lines}\r\n").as_bytes()).expect("writes");
    let (mut reader, mut line) = (BufReader::new(stream), String::new());
    reader.read_line(&mut line).expect("a status line");
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    while line.trim_end() != "" {
        line.clear();
        reader.read_line(&mut line).expect("a header");
    }
    (status, reader)
}

impl Socket {
    pub(super) fn open(address: &str, token: &str) -> Self {
        Self::over(TcpStream::connect(address).expect("connects"), address, token)
    }

    /// One whose receive buffer holds next to nothing.
    pub(super) fn open_small(address: &str, token: &str) -> Self {
        let stream = TcpStream::connect(address).expect("connects");
        rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096).expect("set");
        Self::over(stream, address, token)
    }

    fn over(stream: TcpStream, address: &str, token: &str) -> Self {
        let auth = format!("Bearer {token}");
        let sending = stream.try_clone().expect("a second handle");
        let (status, reader) = shake(stream, address, &[("Authorization", &auth)]);
        assert_eq!(status, 101);
        Self { stream: sending, reader }
    }

    pub(super) fn widen(&mut self) {
        rustix::net::sockopt::set_socket_recv_buffer_size(&self.stream, 1 << 20).expect("set");
    }

    pub(super) fn send(&mut self, frame: &Value) {
        self.text(&frame.to_string());
    }

    pub(super) fn text(&mut self, text: &str) {
        self.frame(1, text.as_bytes());
    }

    fn frame(&mut self, opcode: u8, payload: &[u8]) {
        let mut frame = vec![0x80 | opcode];
        match u8::try_from(payload.len()) {
            Ok(short) if short < 126 => frame.push(0x80 | short),
            _ => {
                frame.push(0x80 | 126);
                frame.extend(u16::try_from(payload.len()).expect("short").to_be_bytes());
            }
        }
        let mask = [1, 2, 3, 4];
        frame.extend(mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.stream.write_all(&frame).expect("it reads");
    }

    /// The next message; `None` at the end. Pings are answered.
    fn message(&mut self) -> Option<Value> {
        loop {
            let mut head = [0; 2];
            self.reader.read_exact(&mut head).ok()?;
            let length = match head[1] {
                126 => {
                    let mut long = [0; 2];
                    self.reader.read_exact(&mut long).expect("a length");
                    usize::from(u16::from_be_bytes(long))
                }
                short => usize::from(short),
            };
            let mut payload = vec![0; length];
            self.reader.read_exact(&mut payload).expect("a payload");
            match head[0] & 0x0f {
                1 => return Some(serde_json::from_slice(&payload).expect("one JSON a frame")),
                8 => return None,
                9 => self.frame(10, &payload),
                _ => panic!("an opcode of {}", json!(head[0])),
            }
        }
    }

    pub(super) fn next(&mut self) -> Value {
        self.message().expect("it goes on")
    }

    /// Subscribes to a channel, which is acknowledged.
    pub(super) fn follow(&mut self, channel: &str, from: &Value) -> Value {
        self.send(&json!({ "type": "subscribe", "id": channel, "channel": channel, "from": from }));
        let told = self.next_but_events();
        let acknowledged = (&told["type"], &told["id"]) == (&json!("subscribed"), &json!(channel));
        assert!(acknowledged, "{told}");
        told["data"]["from"].clone()
    }

    /// The next message that is not an event.
    pub(super) fn next_but_events(&mut self) -> Value {
        loop {
            let told = self.next();
            if told["type"] != "event" {
                return told;
            }
        }
    }

    /// What is still said until the other side closes it.
    pub(super) fn until_closed(mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.message()).collect()
    }
}
