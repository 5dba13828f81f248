//! Error codes of browsers.

hivekeep_kernel::codes! {
    /// Sessions may not have browsers.
    BROWSER_DISABLED = "browser_disabled" {
        cause: "The operator set `browser.enabled = false`.",
        next: "Work without it, or ask the operator.",
    }
    /// The session has no browser.
    BROWSER_NOT_CONNECTED = "browser_not_connected" {
        cause: "No `webview_connect` was made, or the browser was closed since: by the session, or because no call used it.",
        next: "Call `webview_connect` with `debug_url` \"local\".",
    }
    /// The browser is not one that may be attached to.
    BROWSER_ATTACH_DENIED = "browser_attach_denied" {
        cause: "`debug_url` is neither \"local\" nor in `[browser.attach]`.",
        next: "Use \"local\", or ask the operator for an entry of `[browser.attach]`.",
    }
    /// Chrome cannot be started or reached.
    BROWSER_UNAVAILABLE = "browser_unavailable" {
        cause: "It is not installed, did not start in its time, or does not answer at its address.",
        next: "Read the message; `hivekeep check` says what the host lacks.",
    }
    /// Chrome ended while the call ran.
    BROWSER_CRASHED = "browser_crashed" {
        cause: "It crashed, was killed, took more memory than it may, or gave no answer any more.",
        next: "What the call was to do may be done. A new Chrome is started by itself: begin again with `webview_navigate`.",
    }
    /// A new Chrome runs, and what the one before it had is lost.
    BROWSER_STATE_LOST = "browser_state_lost" {
        cause: "Chrome ended since the last call: pages, cookies, storage and downloads are gone. It is told once.",
        next: "Begin again with `webview_navigate`.",
    }
    /// The page's process ended.
    BROWSER_PAGE_CRASHED = "browser_page_crashed" {
        cause: "The page took too much memory or crashed; the browser goes on.",
        next: "Load it again with `webview_navigate`, or another page.",
    }
    /// The page was closed while the call ran.
    BROWSER_PAGE_CLOSED = "browser_page_closed" {
        cause: "A script of it closed it.",
        next: "Go on with another page, which calls are about now, or load one.",
    }
    /// The page gives no answer.
    BROWSER_PAGE_HUNG = "browser_page_hung" {
        cause: "A script of the page runs without an end. It was stopped.",
        next: "Go on if the page can be used now; otherwise load it again.",
    }
    /// The browser or the page did not reach the awaited state in time.
    BROWSER_TIMED_OUT = "browser_timed_out" {
        cause: "The page loads slowly, or never comes to be as was wanted.",
        next: "Look at the page with `webview_snapshot`, or give a larger limit.",
    }
    /// The page cannot be loaded.
    BROWSER_NAVIGATION_FAILED = "browser_navigation_failed" {
        cause: "The server does not answer, its name or certificate is not valid, or it sent nothing to show.",
        next: "Check the URL; `webview_console` has what failed.",
    }
    /// The URL is not one that is loaded.
    BROWSER_URL_REFUSED = "browser_url_refused" {
        cause: "It is not http or https, carries a user or password, or is too long.",
        next: "Give an http or https URL.",
    }
    /// The operator's rules leave the target out.
    BROWSER_TARGET_DENIED = "browser_target_denied" {
        cause: "`browser.allow_domains`, `browser.deny_domains` or `browser.ports`.",
        next: "Use another page, or ask the operator.",
    }
    /// The target has an address that may not be reached.
    BROWSER_ADDRESS_REFUSED = "browser_address_refused" {
        cause: "It is private, of this host, or of a cloud's metadata.",
        next: "Use a public address, or ask the operator for `browser.allow_networks`.",
    }
    /// No element is there to act on.
    BROWSER_ELEMENT_NOT_FOUND = "browser_element_not_found" {
        cause: "Nothing matches the selector in the page, its open shadow roots and its frames of the same origin, or the reference is of an element that is gone, or in a frame of another origin.",
        next: "Look at the page with `webview_snapshot`; wait for the element with `webview_wait`.",
    }
    /// The element cannot be acted on.
    BROWSER_ELEMENT_NOT_READY = "browser_element_not_ready" {
        cause: "It is not visible, disabled, moving, takes no text, or covered by another one, which the message names.",
        next: "Do what makes it ready, such as closing what covers it.",
    }
    /// The element holds something else than what was entered.
    BROWSER_TEXT_DIFFERS = "browser_text_differs" {
        cause: "The element does not take such a text, or the page changed it or led the keys elsewhere. The message says what is there.",
        next: "Look at the page with `webview_snapshot`, and enter what the element takes.",
    }
    /// The file input is not given what it was to be given.
    BROWSER_UPLOAD_REFUSED = "browser_upload_refused" {
        cause: "The element takes no files or only one, a path names no file, or the browser has been given 256 MiB already.",
        next: "Look at the element with `webview_query`; a new browser begins anew.",
    }
}
