//! A click and a picture of a page, beside chromiumoxide alone with a Chrome of its own and no sandbox.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::client::StdioClient;
use super::figure::{Figure, Target, median};
use super::{house::BenchDaemon, kit::BenchPrograms};

const ROUNDS: usize = 25;
const CALLS_A_ROUND: usize = 10;
const PROGRAM: &str = "/usr/lib/chromium/chromium";
const CONFIG: &str = "[browser]\nallow_networks = [\"127.0.0.1\"]\nports = []\n";

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let url = page()?;
    let house = BenchDaemon::open(kit, CONFIG)?;
    let mut ours = house.attach()?;
    ours.call("webview_connect", &json!({ "debug_url": "local" }))?;
    ours.call("webview_navigate", &json!({ "url": url }))?;
    let mut bare = BareBrowser::start(kit, &url)?;
    let mut figures = Vec::new();
    // The artifact is not what the other side does.
    let kinds = [
        ("webview_click", "click", json!({ "selector": "button" }), "on top, and standing still"),
        ("webview_screenshot", "screenshot", json!({ "keep": false }), "1280 by 800, png"),
    ];
    for (name, word, args, remark) in kinds {
        if kit.wants(name) {
            figures.push(beside(kit, (&mut ours, &mut bare), name, (word, &args), remark)?);
        }
    }
    Ok(figures)
}

fn beside(
    kit: &BenchPrograms<'_>,
    (ours, bare): (&mut StdioClient, &mut BareBrowser),
    name: &'static str,
    (word, args): (&str, &Value),
    remark: &str,
) -> Result<Figure> {
    let (mut our_us, mut bare_us) = (Vec::new(), Vec::new());
    for round in 0..=kit.rounds(ROUNDS) {
        for _ in 0..CALLS_A_ROUND {
            let bare = bare.does(word)?;
            let (took, _) = ours.timed(name, args)?;
            // The first round warms up.
            if round > 0 {
                bare_us.push(bare);
                our_us.push(took.as_secs_f64() * 1e6);
            }
        }
    }
    Ok(Figure {
        name,
        unit: "us",
        value: median(our_us),
        baseline: Some(median(bare_us)),
        target: Target::AtMostTimes(1.2),
        remark: remark.to_owned(),
    })
}

/// URL of a page with a button and some text.
fn page() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/", listener.local_addr()?);
    let rows: String = (0..50).map(|at| format!("<p>Line {at} of the page.")).collect();
    let body = format!("<!doctype html><title>Bench</title><button>Press</button>{rows}");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // A request of a bench fits; whoever has left needs no answer.
            let _asked = stream.read(&mut [0; 8192]);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close";
            let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            let _sent = stream.write_all(answer.as_bytes());
        }
    });
    Ok(url)
}

/// chromiumoxide alone. It closes its Chrome when its input ends, and would leave it if it were killed.
struct BareBrowser {
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    child: Child,
    _folder: xshell::TempDir,
}

impl Drop for BareBrowser {
    fn drop(&mut self) {
        self.input = None;
        let _ended = self.child.wait();
    }
}

impl BareBrowser {
    fn start(kit: &BenchPrograms<'_>, url: &str) -> Result<Self> {
        let folder = kit.repo.shell.create_temp_dir()?;
        let mut command = kit.baseline("bare-browser");
        command.arg(PROGRAM).arg(folder.path()).arg(url);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start the bare browser")?;
        let input = child.stdin.take().context("a piped child has an input")?;
        let output = BufReader::new(child.stdout.take().context("a piped child has an output")?);
        let mut bare = Self { input: Some(input), output, child, _folder: folder };
        let said = bare.line()?;
        ensure!(said == "ready", "the bare browser says `{said}`");
        Ok(bare)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    /// Does it, and returns how many microseconds it took.
    fn does(&mut self, word: &str) -> Result<f64> {
        writeln!(self.input.as_mut().context("it runs")?, "{word}")?;
        self.line()?.parse().context("the bare browser ended")
    }
}
