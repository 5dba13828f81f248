//! MCP client of the tests, the examples and `xtask`: rmcp's own, attached to a server's standard
//! input and output or to the daemon's socket.
//!
//! [`Client`] is asynchronous, [`blocking::Client`] is for code without a runtime. Whoever looks at
//! single lines of the protocol, or measures without a library's share, is not served here.

pub mod blocking;

use std::{borrow::Borrow, io, path::Path, process::Stdio, time::Duration};

use rmcp::{
    RoleClient, ServiceExt,
    model::{
        CallToolRequestParams, ClientCapabilities, ClientConfig, Implementation,
        ReadResourceRequestParams, ResourceContents, Tool,
    },
    service::{ClientInitializeError, RunningService, ServiceError},
};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    net::UnixStream,
    process::{Child, Command},
    time::timeout,
};

/// Above the longest limit of a tool that is called with it.
const PATIENCE: Duration = Duration::from_secs(330);

/// Why there is no client, or no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused, in its words for people.
    #[error("{asked}: {text}")]
    Refused {
        /// The tool, and its action where it has several.
        asked: String,
        /// The words; they hold the error's code.
        text: String,
    },
    /// The server, or the connection to it, is gone; what was asked is done or not.
    #[error("the server is gone: {0}")]
    Lost(#[from] ServiceError),
    /// No answer came in time.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Silent,
    /// The server could not be reached.
    #[error("the server cannot be reached: {0}")]
    Unreached(#[from] io::Error),
    /// It was reached, and there is no common protocol.
    #[error("the handshake failed: {0}")]
    Handshake(#[from] Box<ClientInitializeError>),
}

/// A client with a session of its own. Dropped, it ends the server that it started.
pub struct Client {
    service: RunningService<RoleClient, ClientConfig>,
    server: Option<Child>,
    session: Option<String>,
}

impl Client {
    /// Starts a server and attaches to its standard input and output.
    ///
    /// # Errors
    /// When it does not start, or the handshake fails.
    pub async fn spawn(name: &str, command: impl Into<Command>) -> Result<Self, Error> {
        let mut command = command.into();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut server = command.spawn()?;
        let (Some(output), Some(input)) = (server.stdout.take(), server.stdin.take()) else {
            return Err(io::Error::other("a piped child has both ends").into());
        };
        let service = handshake(name, output, input).await?;
        Ok(Self { service, server: Some(server), session: None })
    }

    /// Connects to the socket of a daemon that runs.
    ///
    /// # Errors
    /// When nobody listens, the daemon refuses, or the handshake fails.
    pub async fn connect(name: &str, socket: &Path) -> Result<Self, Error> {
        let (read, mut write) = UnixStream::connect(socket).await?.into_split();
        write.write_all(b"{\"door\":\"mcp\"}\n").await?;
        let (mut read, mut line) = (BufReader::new(read), String::new());
        timeout(PATIENCE, read.read_line(&mut line)).await.map_err(|_| Error::Silent)??;
        let welcome: Value = serde_json::from_str(&line).map_err(io::Error::from)?;
        let Some(session) = welcome["welcome"]["session"].as_str().map(str::to_owned) else {
            return Err(Error::Refused { asked: "hello".to_owned(), text: line });
        };
        let service = handshake(name, read, write).await?;
        Ok(Self { service, server: None, session: Some(session) })
    }

    /// The session at a socket; a server that was started names none.
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Calls a tool; its structured result, null where it has none.
    ///
    /// # Errors
    /// The tool's refusal, or that there is no answer.
    pub async fn call(&self, tool: &str, arguments: impl Borrow<Value>) -> Result<Value, Error> {
        let arguments = arguments.borrow();
        let refused = |text: &str| {
            let action = arguments["action"].as_str().map(|action| format!(" {action}"));
            Error::Refused {
                asked: format!("{tool}{}", action.unwrap_or_default()),
                text: text.to_owned(),
            }
        };
        let Value::Object(arguments) = arguments else {
            return Err(refused("arguments are an object"));
        };
        let request = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments.clone());
        let called = timeout(PATIENCE, self.service.call_tool(request)).await;
        let result = match called.map_err(|_| Error::Silent)? {
            Err(ServiceError::McpError(error)) => return Err(refused(&error.to_string())),
            result => result?,
        };
        if result.is_error == Some(true) {
            // The first block is for people; the same follows as JSON.
            let text = result.content.iter().find_map(|block| block.as_text());
            return Err(refused(text.map_or("an error without words", |block| &block.text)));
        }
        Ok(result.structured_content.unwrap_or_default())
    }

    /// Reads a resource that is a text.
    ///
    /// # Errors
    /// The server's refusal, or that there is no answer.
    pub async fn read(&self, uri: &str) -> Result<String, Error> {
        let refused = |text: String| Error::Refused { asked: uri.to_owned(), text };
        let read = self.service.read_resource(ReadResourceRequestParams::new(uri));
        let result = match timeout(PATIENCE, read).await.map_err(|_| Error::Silent)? {
            Err(ServiceError::McpError(error)) => return Err(refused(error.to_string())),
            result => result?,
        };
        match result.contents.into_iter().next() {
            Some(ResourceContents::TextResourceContents { text, .. }) => Ok(text),
            other => Err(refused(format!("{other:?} is not a text"))),
        }
    }

    /// The revision of the protocol that was agreed on.
    pub fn revision(&self) -> Option<String> {
        self.service.peer_info().map(|info| info.protocol_version.to_string())
    }

    /// Lists all tools.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn tools(&self) -> Result<Vec<Tool>, Error> {
        Ok(self.service.list_all_tools().await?)
    }

    /// Detaches in order and waits for the server that was started; an end that is no success is
    /// an error.
    ///
    /// # Errors
    /// See above, and when it does not end.
    pub async fn leave(self) -> Result<(), Error> {
        let Self { service, server, .. } = self;
        service.cancel().await.map_err(io::Error::other)?;
        let Some(mut server) = server else { return Ok(()) };
        let status = timeout(PATIENCE, server.wait()).await.map_err(|_| Error::Silent)??;
        match status.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("the server ended with {status}")).into()),
        }
    }
}

async fn handshake(
    name: &str,
    read: impl AsyncRead + Send + Unpin + 'static,
    write: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<RunningService<RoleClient, ClientConfig>, Error> {
    let about = Implementation::new(name, env!("CARGO_PKG_VERSION"));
    let config = ClientConfig::new(ClientCapabilities::default(), about);
    let shaken = timeout(PATIENCE, config.serve((read, write))).await;
    Ok(shaken.map_err(|_| Error::Silent)?.map_err(Box::new)?)
}
