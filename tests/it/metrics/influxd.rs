//! InfluxDB 1.6 as Debian has it, in a folder of its own.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
};

use crate::home::{PATIENCE, wait_until};

pub(super) struct Influxd {
    folder: tempfile::TempDir,
    port: u16,
    child: Child,
}

impl Influxd {
    /// Starts a server; `None` where there is none.
    pub(super) fn start() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let known = Command::new("influxd").arg("config").stderr(Stdio::null()).output().ok()?;
        let [port, backup] = [(); 2].map(|()| {
            let free = TcpListener::bind("127.0.0.1:0").expect("a port");
            free.local_addr().expect("bound").port()
        });
        let below = |name: &str| format!("{}/{name}\"", folder.path().display());
        let mut section = String::new();
        let mut config = String::new();
        for line in String::from_utf8(known.stdout).expect("UTF-8").lines() {
            if line.starts_with('[') {
                section = line.to_owned();
            }
            let key = line.split('=').next().unwrap_or_default().trim();
            let own = match (section.as_str(), key) {
                ("[meta]", "dir") => Some(format!("dir = \"{}", below("meta"))),
                ("[data]", "dir") => Some(format!("dir = \"{}", below("data"))),
                ("[data]", "wal-dir") => Some(format!("wal-dir = \"{}", below("wal"))),
                ("[http]", "bind-address") => Some(format!("bind-address = \"127.0.0.1:{port}\"")),
                ("", "bind-address") => Some(format!("bind-address = \"127.0.0.1:{backup}\"")),
                ("", "reporting-disabled") => Some("reporting-disabled = true".to_owned()),
                _ => None,
            };
            config.push_str(own.as_deref().unwrap_or(line));
            config.push('\n');
        }
        std::fs::write(folder.path().join("influxdb.conf"), config).expect("written");
        let child = spawn(&folder);
        let mut server = Self { folder, port, child };
        server.awake();
        Some(server)
    }

    fn awake(&mut self) {
        let port = self.port;
        wait_until("InfluxDB answers", || {
            let ended = self.child.try_wait().expect("a child");
            assert!(ended.is_none(), "influxd ended: {ended:?}");
            request(port, "GET", "/ping").is_some_and(|(status, _)| status == 204)
        });
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// SIGKILL.
    pub(super) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("a child");
    }

    pub(super) fn again(&mut self) {
        self.child = spawn(&self.folder);
        self.awake();
    }

    pub(super) fn query(&self, query: &str) -> String {
        self.ask("POST", &format!("/query?q={}", encoded(query)))
    }

    /// A query in the daemon's database; its JSON.
    pub(super) fn query_in(&self, query: &str) -> String {
        self.ask("GET", &format!("/query?db=hivekeep&q={}", encoded(query)))
    }

    fn ask(&self, method: &str, target: &str) -> String {
        let (status, text) = request(self.port, method, target).expect("it answers");
        assert!(status == 200 && !text.contains("\"error\""), "{status}: {text}");
        text
    }

    /// Points that it has.
    pub(super) fn count(&self) -> u64 {
        let text = self.query_in("SELECT count(value) FROM hivekeep");
        let at = text.find("\"values\":[[").map_or(0, |at| at + 11);
        let count = text[at..].split(',').nth(1).unwrap_or_default();
        let digits: String = count.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    }
}

impl Drop for Influxd {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn spawn(folder: &tempfile::TempDir) -> Child {
    let mut command = Command::new("influxd");
    command.args(["run", "-config"]).arg(folder.path().join("influxdb.conf"));
    command.env("HOME", folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).spawn().expect("it starts")
}

fn encoded(query: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric();
    query
        .bytes()
        .map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

/// Status and body of an answer; `None` where nobody answers.
fn request(port: u16, method: &str, target: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let head = "Host: localhost\r\nConnection: close\r\nContent-Length: 0";
    write!(stream, "{method} {target} HTTP/1.1\r\n{head}\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let status = text.split(' ').nth(1)?.parse().ok()?;
    Some((status, text.split_once("\r\n\r\n")?.1.to_owned()))
}
