//! A request to a server in a sandbox through its URL, beside the same request over a connection to the loopback
//! interface that the server listens on.

use std::fs::File;
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::json;

use super::figure::{Figure, Target, median};
use super::{house::BenchDaemon, http_client::HttpConnection, kit::BenchPrograms};

const ROUNDS: usize = 25;
const CALLS_A_ROUND: usize = 40;
/// For the server to listen.
const PATIENCE: Duration = Duration::from_secs(30);
/// Answers each request of a connection, which it keeps, in one write: the shell's own would be one for each line.
const SERVER: &str = "#!/bin/bash\nwhile IFS= read -r line; do\n  \
                      [ \"$line\" = $'\\r' ] && cat /srv/answer\ndone\n";
const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let house = BenchDaemon::open(
        kit,
        "isolation = \"sandbox\"\n[http.ports]\nenabled = true\nbind = \"127.0.0.1:0\"\n",
    )?;
    let mut client = house.attach()?;
    client.call("workspace_create", &json!({ "name": "web" }))?;
    for (path, content) in [("/srv/serve", SERVER), ("/srv/answer", ANSWER)] {
        let file =
            json!({ "workspace_id": "web", "path": path, "content": content, "mode": "0755" });
        client.call("file_write", &file)?;
    }
    let serve = "exec nc -ll -p 3000 -e /srv/serve";
    let job = json!({ "workspace_id": "web", "action": "start", "command": serve });
    client.call("exec_background", &job)?;
    let asked = json!({ "workspace_id": "web", "port": 3000, "public": true });
    let url = client.call("port_url", &asked)?;
    let url = url["url"].as_str().context("a URL")?;
    let host = url.trim_start_matches("http://").trim_end_matches('/');
    let port = host.rsplit(':').next().context("a port")?;
    let info = client.call("workspace_info", &json!({ "workspace_id": "web" }))?;
    let pid = info["machine"]["pid"].as_u64().context("a sandbox has a process")?;
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let address = format!("127.0.0.1:{port}");
    let began = Instant::now();
    while let Err(error) = HttpConnection::open(&address)?.answer_to(request.as_bytes()) {
        ensure!(began.elapsed() < PATIENCE, "nothing listens: {error}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut sides = [HttpConnection::open(&address)?, HttpConnection::new(within(pid, 3000)?)?];
    let mut taken = [Vec::new(), Vec::new()];
    for round in 0..=kit.rounds(ROUNDS) {
        for side in [1, 0] {
            for _ in 0..CALLS_A_ROUND {
                let began = Instant::now();
                let said = sides[side].answer_to(request.as_bytes())?;
                let took = began.elapsed().as_secs_f64() * 1e6;
                ensure!(said == b"ok", "another answer");
                // The first round warms up.
                if round > 0 {
                    taken[side].push(took);
                }
            }
        }
    }
    let [through, direct] = taken;
    Ok(vec![Figure {
        name: "port_url_p50",
        unit: "us",
        value: median(through),
        baseline: Some(median(direct)),
        target: Target::Stated,
        remark: "a connection that is kept, to a server in a sandbox that is a script of the shell; the baseline is a \
                 connection within the sandbox's network"
            .to_owned(),
    }])
}

/// A connection to a port within a sandbox's network, made by a thread that moves there.
pub(super) fn within(pid: u64, port: u16) -> Result<TcpStream> {
    let network = File::open(format!("/proc/{pid}/ns/net")).context("the sandbox's network")?;
    let connect = move || {
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
            .context("enter the sandbox's network; it takes root")?;
        TcpStream::connect(("127.0.0.1", port)).context("connect within the sandbox")
    };
    std::thread::spawn(connect).join().map_err(|_| anyhow!("the thread panicked"))?
}
