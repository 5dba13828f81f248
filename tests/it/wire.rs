//! MCP client made of nothing but lines, so that every byte is seen, broken lines can be said, and
//! what is not read stays unread.

use std::{
    io::{BufRead, BufReader, Write},
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Child, ExitStatus},
};

use serde_json::{Value, json};

use crate::home::{Home, PATIENCE};

/// A connection to the daemon's socket, or to a `hivekeep mcp` or `acp` as its input and output.
pub(crate) struct Wire {
    pub(crate) stream: UnixStream,
    lines: BufReader<UnixStream>,
    child: Option<Child>,
}

impl Wire {
    /// Starts `hivekeep mcp` with more arguments.
    pub(crate) fn start(home: &Home, args: &[&str]) -> Self {
        Self::spawn(home, &[&["mcp"], args].concat())
    }

    /// Starts `hivekeep acp` with more arguments.
    pub(crate) fn acp(home: &Home, args: &[&str]) -> Self {
        Self::spawn(home, &[&["acp"], args].concat())
    }

    fn spawn(home: &Home, args: &[&str]) -> Self {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let theirs = OwnedFd::from(theirs);
        let child = home
            .command(args)
            .stdin(theirs.try_clone().expect("a second handle"))
            .stdout(theirs)
            .spawn()
            .expect("the program runs");
        let mut wire = Self::over(ours);
        wire.child = Some(child);
        wire
    }

    /// Connects to the daemon's socket and says nothing.
    pub(crate) fn connect(home: &Home) -> Self {
        Self::over(UnixStream::connect(home.socket()).expect("connects"))
    }

    fn over(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let lines = BufReader::new(stream.try_clone().expect("a second handle"));
        Self { stream, lines, child: None }
    }

    /// Connects and says hello; the daemon's answer.
    pub(crate) fn greet(home: &Home) -> (Self, Value) {
        let mut wire = Self::connect(home);
        wire.send(&json!({ "door": "mcp" }));
        let answer = wire.value();
        (wire, answer)
    }

    /// Connects and makes a request of HTTP; the status of the answer, whose body is left. For HTTP/1.0 that is
    /// not cut into chunks.
    pub(crate) fn request(home: &Home, head: &str, body: &str) -> (Self, u16) {
        let mut wire = Self::connect(home);
        let length = body.len();
        // A daemon that has heard enough may close before it is all written.
        let _written = write!(wire.stream, "{head}\r\nContent-Length: {length}\r\n\r\n{body}");
        let status = wire.line().expect("a status line");
        while wire.line().is_some_and(|line| line != "\r\n") {}
        let code = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        (wire, code.unwrap_or_else(|| panic!("no status: {status}")))
    }

    /// Connects as an MCP client, with its handshake.
    pub(crate) fn mcp(home: &Home) -> Self {
        let (mut wire, welcome) = Self::greet(home);
        assert!(welcome["welcome"].is_object(), "{welcome}");
        wire.initialize();
        wire
    }

    pub(crate) fn send(&mut self, message: &Value) {
        writeln!(self.stream, "{message}").expect("it reads");
    }

    /// The next line; `None` at the end.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let length = self.lines.read_line(&mut line).expect("a line in time");
        (length > 0).then_some(line)
    }

    /// The next line, which must be JSON.
    pub(crate) fn value(&mut self) -> Value {
        let line = self.line().expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"))
    }

    /// The next line, which must be JSON-RPC: nothing else may be on this wire.
    pub(crate) fn receive(&mut self) -> Value {
        let message = self.value();
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        message
    }

    /// The next answer, whatever is notified before it.
    pub(crate) fn next_answer(&mut self) -> Value {
        loop {
            let message = self.receive();
            if message.get("method").is_none() {
                return message;
            }
        }
    }

    /// The answer to an earlier request, which is the next one.
    pub(crate) fn answer(&mut self, id: i64) -> Value {
        let answer = self.next_answer();
        assert_eq!(answer["id"], id, "an answer to something else: {answer}");
        answer
    }

    /// Asks, and passes over notifications until the answer.
    pub(crate) fn ask(&mut self, id: i64, method: &str, params: Value) -> Value {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        self.answer(id)
    }

    /// The handshake of 2025-11-25.
    pub(crate) fn initialize(&mut self) -> Value {
        self.initialize_with(json!({}))
    }

    /// The handshake of 2025-11-25, with what the client can do.
    pub(crate) fn initialize_with(&mut self, capabilities: Value) -> Value {
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "clientInfo": {"name": "wire", "version": "1"},
        });
        let answer = self.ask(0, "initialize", params);
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        answer["result"].clone()
    }

    /// Asks as a client of 2026-07-28, which can do this.
    pub(crate) fn ask_stateless(
        &mut self,
        id: i64,
        method: &str,
        params: Value,
        capabilities: Value,
    ) -> Value {
        self.ask(id, method, stateless(params, capabilities))
    }

    /// Calls a tool.
    pub(crate) fn call(&mut self, id: i64, tool: &str, arguments: Value) -> Value {
        self.ask(id, "tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Whether the other side has closed it.
    pub(crate) fn closed(&mut self) -> bool {
        self.lines.fill_buf().is_ok_and(<[u8]>::is_empty)
    }

    /// Ends the input of `hivekeep mcp` and waits for its end; what was still said.
    pub(crate) fn finish(mut self) -> (ExitStatus, Vec<String>) {
        self.stream.shutdown(Shutdown::Write).expect("a socket");
        let rest = std::iter::from_fn(|| self.line()).collect();
        let mut child = self.child.take().expect("it was started");
        (child.wait().expect("a child"), rest)
    }
}

/// Parameters of a request of 2026-07-28.
pub(crate) fn stateless(mut params: Value, capabilities: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    params
}

impl Drop for Wire {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        let _ended_already = child.kill();
        let _reaped = child.wait();
    }
}
