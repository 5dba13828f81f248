//! All error codes, and those of the doors and the command line.

use hivekeep_kernel::ErrorCode;

pub use hivekeep_kernel::codes::*;
pub use hivekeep_policy::codes::*;
pub use hivekeep_registry::codes::*;

hivekeep_kernel::codes! {
    /// The daemon has as many clients as it may.
    TOO_MANY_CONNECTIONS = "too_many_connections" {
        cause: "Clients leave connections open, or the limit is small.",
        next: "Close some, or raise `daemon.max_connections`.",
    }
    /// The daemon belongs to another user of the host.
    NOT_YOUR_DAEMON = "not_your_daemon" {
        cause: "The client runs as another user than the daemon.",
        next: "Start a daemon of your own with `hivekeep daemon`.",
    }
    /// The client did not say who it is in time.
    HANDSHAKE_TIMEOUT = "handshake_timeout" {
        cause: "Something connected to the daemon's socket that is not its client, or hangs.",
        next: "Connect with `hivekeep mcp` or another command of `hivekeep`.",
    }
    /// There is no such credential.
    CREDENTIAL_NOT_FOUND = "credential_not_found" {
        cause: "The name is wrong, or the credential was revoked.",
        next: "`hivekeep credential list` shows the credentials.",
    }
    /// The daemon keeps as many credentials as it may.
    TOO_MANY_CREDENTIALS = "too_many_credentials" {
        cause: "Credentials are made and never revoked.",
        next: "Revoke those that nobody uses with `hivekeep credential revoke`.",
    }
    /// An idempotency key was used for another request.
    IDEMPOTENCY_KEY_REUSED = "idempotency_key_reused" {
        cause: "One key went with two requests that differ in tool, input or session.",
        next: "Choose another key for each call.",
    }
    /// The first request with an idempotency key is still running.
    IDEMPOTENCY_KEY_IN_USE = "idempotency_key_in_use" {
        cause: "The request is repeated before the first one has ended.",
        next: "Wait for `retry_after_ms`, then repeat it with the same key.",
    }
    /// The daemon ended before the outcome of a request with an idempotency key was written.
    REQUEST_OUTCOME_UNKNOWN = "request_outcome_unknown" {
        cause: "The daemon was killed while the call ran.",
        next: "Look whether it took effect; it is not made again by itself. Then use another key.",
    }
    /// The daemon keeps no audit log.
    AUDIT_DISABLED = "audit_disabled" {
        cause: "`audit.enabled` is false, which is the default.",
        next: "Set `audit.enabled = true` and restart the daemon.",
    }
    /// The first message of a connection is not valid.
    INVALID_HELLO = "invalid_hello" {
        cause: "Client and daemon are of different versions, or something else connected.",
        next: "Use the `hivekeep` of the daemon's own version.",
    }
    /// A request to the control socket is not valid.
    INVALID_REQUEST = "invalid_request" {
        cause: "Client and daemon are of different versions.",
        next: "Use the `hivekeep` of the daemon's own version.",
    }
    /// A request is longer than the daemon reads.
    REQUEST_TOO_LONG = "request_too_long" {
        cause: "The call's input is very large.",
        next: "Send less at once, or use `file_transfer`.",
    }
    /// Too many requests of this client are not answered yet.
    TOO_MANY_REQUESTS = "too_many_requests" {
        cause: "The client sends requests faster than they are answered.",
        next: "Wait for answers or cancel some requests, then ask again.",
    }
    /// A client read its stream of events too slowly.
    READER_TOO_SLOW = "reader_too_slow" {
        cause: "The client, or a proxy before it, did not take the events that were there for it.",
        next: "Connect again with `Last-Event-ID`: nothing was lost.",
    }
    /// A message has too many values.
    TOO_MANY_VALUES = "too_many_values" {
        cause: "It holds very long lists or deep objects.",
        next: "Split it, or send text instead.",
    }
    /// Another backup is being made.
    BACKUP_RUNNING = "backup_running" {
        cause: "`hivekeep backup` was called twice.",
        next: "Try again when the other one is done.",
    }
    /// A backup with disks needs a running daemon.
    DAEMON_NEEDED = "daemon_needed" {
        cause: "No daemon runs, and only the daemon can freeze disks.",
        next: "Start the daemon first, or leave `--disks` out.",
    }
    /// The daemon has no workspaces whose disks could be saved.
    NO_DISKS = "no_disks" {
        cause: "The daemon was built without the family of workspaces.",
        next: "Leave `--disks` out.",
    }
    /// The daemon has as many public ports as it may.
    TOO_MANY_PUBLIC_PORTS = "too_many_public_ports" {
        cause: "Ports were made public by `port_url` and never made private again.",
        next: "`port_forward` with `list` shows them; `port_url` with `public: false` makes one private.",
    }
    /// The daemon has no teams.
    NO_TEAMS = "no_teams" {
        cause: "The daemon was built without the family of teams.",
        next: "Use a daemon that has it.",
    }
}

/// The error codes of every crate, sorted by name.
pub fn all() -> Vec<&'static ErrorCode> {
    let mut all = [
        hivekeep_kernel::codes::ALL,
        hivekeep_policy::codes::ALL,
        hivekeep_registry::codes::ALL,
        ALL,
    ]
    .concat();
    all.extend(hivekeep_config::families::codes());
    all.sort_by_key(|code| code.name);
    all
}
