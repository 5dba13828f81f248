//! Handshake of MCP at the Unix socket: one JSON line each way, then newline-delimited MCP. A client that begins
//! with the name of an HTTP method speaks HTTP instead.

use hivekeep_kernel::{SessionId, ToolError};
use serde::{Deserialize, Serialize};

/// The first line of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "door", rename_all = "snake_case", deny_unknown_fields)]
pub enum ClientHello {
    /// Newline-delimited MCP follows.
    Mcp {
        /// Families of tools to show; all without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        toolset: Option<Vec<String>>,
        /// The form in which tool names are listed.
        #[serde(default)]
        tool_names: ToolNames,
        /// List output schemas, also where the configuration leaves them out.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        output_schemas: bool,
        /// The session to resume, if it is still there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resume: Option<SessionId>,
    },
}

/// The form in which tool names are listed. Both forms can always be called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum ToolNames {
    /// Names as each tool declares its own.
    #[default]
    Declared,
    /// With dots where a tool has them.
    Dotted,
    /// With underscores instead of dots, for clients that refuse dots.
    Underscored,
}

/// The daemon's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HelloReply {
    /// The client is let in.
    Welcome(DaemonWelcome),
    /// The client is refused, and the connection closed.
    Refused(ToolError),
}

/// The daemon's answer to a hello.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonWelcome {
    /// The daemon's version.
    pub version: String,
    /// The daemon's process.
    pub pid: u32,
    /// Digest of the listed tools: another one means another list.
    pub tools: String,
    /// The session, for the MCP door.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// True when the session that was asked for is resumed.
    #[serde(default)]
    pub resumed: bool,
}

/// The longest hello or answer.
pub const MAX_HELLO_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_hello_is_enough_and_an_unknown_field_is_refused() {
        let hello: ClientHello = serde_json::from_str(r#"{"door":"mcp"}"#).expect("reads");
        let expected = ClientHello::Mcp {
            toolset: None,
            tool_names: ToolNames::Declared,
            output_schemas: false,
            resume: None,
        };
        assert_eq!(hello, expected);
        assert!(serde_json::from_str::<ClientHello>(r#"{"door":"mcp","tolset":["x"]}"#).is_err());
        assert!(serde_json::from_str::<ClientHello>(r#"{"door":"cellar"}"#).is_err());
    }
}
