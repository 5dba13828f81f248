//! Error codes of the web.

pub(crate) use hivekeep_kernel::codes::WORKSPACE_NOT_FOUND;

hivekeep_kernel::codes! {
    /// Sessions may not use the web.
    WEB_DISABLED = "web_disabled" {
        cause: "`web.enabled` is false.",
        next: "Work without the web, or ask the operator.",
    }
    /// The URL is not one that is fetched.
    WEB_URL_REFUSED = "web_url_refused" {
        cause: "It is not a valid http or https URL, carries a user or a password, or is too long.",
        next: "Give an http or https URL without user and password.",
    }
    /// The operator's rules exclude the domain or the port.
    WEB_TARGET_DENIED = "web_target_denied" {
        cause: "`web.allow_domains`, `web.deny_domains` or `web.ports` exclude it.",
        next: "Use another source, or ask the operator.",
    }
    /// The address is not one of the public internet.
    WEB_ADDRESS_REFUSED = "web_address_refused" {
        cause: "The host is, or its name stands for, a private, local or reserved address.",
        next: "Fetch a public address; an operator opens others by `web.allow_networks`.",
    }
    /// The server's robots.txt excludes the page.
    WEB_ROBOTS_DENIED = "web_robots_denied" {
        cause: "A rule of the server's robots.txt excludes programs, or the file could not be had.",
        next: "Use another source.",
    }
    /// A redirect leads nowhere.
    WEB_REDIRECT_FAILED = "web_redirect_failed" {
        cause: "There are more than ten redirects in a row, or one names no valid URL.",
        next: "Fetch the URL that the redirects should lead to.",
    }
    /// No connection by TLS could be made.
    WEB_TLS_FAILED = "web_tls_failed" {
        cause: "The certificate is for another name, expired, or of an authority that the host does not trust.",
        next: "Check the name in the URL; for an authority of one's own, set `web.ca_file`.",
    }
    /// The server could not be reached, or broke the protocol.
    WEB_UNREACHABLE = "web_unreachable" {
        cause: "The name does not exist, nobody answers, or the answer ended early or makes no sense.",
        next: "Check the URL, and repeat the call later.",
    }
    /// The time limit was over.
    WEB_TIMED_OUT = "web_timed_out" {
        cause: "The server is slow, or sends without an end.",
        next: "Repeat the call with a larger `timeout_secs`.",
    }
    /// The body is larger than its limit.
    WEB_TOO_LARGE = "web_too_large" {
        cause: "The body, decompressed, exceeds `web.max_body_mb`.",
        next: "Use a smaller source, or raise the limit.",
    }
    /// The content is of a type that is not text.
    WEB_TYPE_REFUSED = "web_type_refused" {
        cause: "The server sent an image, an archive or another type that has no text.",
        next: "Download it in a workspace whose network policy allows that.",
    }
    /// The page is too complex to be converted.
    WEB_PAGE_REFUSED = "web_page_refused" {
        cause: "Its HTML has too many or too deeply nested elements.",
        next: "Fetch it with `to_markdown` false.",
    }
    /// A request that somebody else wrote down did not succeed.
    WEB_STATUS_FAILED = "web_status_failed" {
        cause: "The server answered with another status than one of success.",
        next: "Look at the server; a status of 500 or more is tried again where the request has attempts left.",
    }
    /// The certificates of `web.ca_file` cannot be used.
    WEB_CA_FILE_REFUSED = "web_ca_file_refused" {
        cause: "The file is missing, unreadable, or has no valid certificate in PEM.",
        next: "Mend the file, or unset `web.ca_file`.",
    }
    /// No provider of searches is there.
    SEARCH_NOT_CONFIGURED = "search_not_configured" {
        cause: "`web.providers` is empty, or the key of a provider is missing.",
        next: "Add a `[[web.providers]]` table; `kind` is `searxng`, `brave` or `duckduckgo`.",
    }
    /// The provider takes the daemon for a robot, or has had enough of it.
    SEARCH_BLOCKED = "search_blocked" {
        cause: "It answered with a challenge page or a rate limit in place of results.",
        next: "Wait some minutes, or configure another provider.",
    }
    /// The provider did not answer, or not as it should.
    SEARCH_FAILED = "search_failed" {
        cause: "It is down, refuses the key, or its answer could not be read.",
        next: "Repeat the call later; `hivekeep logs` says more.",
    }
}
