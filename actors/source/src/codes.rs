//! Error codes of sources.

hivekeep_kernel::codes! {
    /// The server is not there.
    SOURCE_UNREACHABLE = "source_unreachable" {
        cause: "Its process ended or did not start, its address does not answer, or it broke the protocol.",
        next: "See `source_list` for the reason; the daemon tries again by itself.",
    }
    /// The server does not let the daemon in.
    SOURCE_AUTH_FAILED = "source_auth_failed" {
        cause: "It wants a credential, or does not take the one that is configured.",
        next: "The operator sets `token_file` of the server in `[source]`; it is read at each connection.",
    }
    /// The tool failed.
    SOURCE_TOOL_FAILED = "source_tool_failed" {
        cause: "The server ran the tool and says that it failed.",
        next: "Read the message, which is the server's own.",
    }
    /// The server's answer is not what it declared.
    SOURCE_ANSWER_REFUSED = "source_answer_refused" {
        cause: "The structured part of the result does not match the tool's own schema, or is missing.",
        next: "Tell the server's maintainers; what the call was to do may be done.",
    }
    /// The server refuses the request.
    SOURCE_REQUEST_REFUSED = "source_request_refused" {
        cause: "It answered with a protocol error: an input it does not take, or a tool it has no more.",
        next: "Look at the tool again with `tool_describe`.",
    }
}
