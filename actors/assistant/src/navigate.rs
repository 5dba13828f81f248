//! The tool `navigate`: sends the dashboard's page of the caller's user somewhere.

use std::sync::Arc;

use hivekeep_kernel::{CallCx, Layer, ToolError, tools};
use hivekeep_ports::PersonPages;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Answer, AssistantService, codes};

const MAX_PATH_CHARS: usize = 1_024;

/// Show the person another page of the dashboard: open pages of the same user are told to go there. They follow
/// the hub's channel `pages`; where none does, it is `no_page_open`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Navigate {
    /// Path below the dashboard, as `/runs/exec_1?tab=log`: without a scheme and a host.
    #[schemars(length(min = 1, max = MAX_PATH_CHARS))]
    path: String,
}

/// Pages that were told.
#[derive(Debug, Serialize, JsonSchema)]
struct NavigatedPages {
    /// Path.
    path: String,
    /// Number of open pages that were told to go there, at least one.
    pages: usize,
}

tools! { pub(crate) FAMILY: "agent" for service AssistantService, singleton assistant;
    navigate: Navigate => NavigatedPages = AssistantService::navigate {
        title: "Show the person a page", effect: Idempotent,
    };
}

impl AssistantService {
    async fn navigate(self: Arc<Self>, cx: CallCx, input: Navigate) -> Answer<NavigatedPages> {
        let path = input.path;
        if !is_local(&path) {
            let shown: String = path.chars().take(80).collect();
            return Err(ToolError::invalid(format!("`{shown}` is not a path of the dashboard"))
                .next("begin it with one `/`, without a scheme, a host, `..` and spaces"));
        }
        let (pages, user) = (self.ports.find::<dyn PersonPages>(), self.sessions.user(cx.session));
        let told = pages.zip(user).map_or(0, |(pages, user)| pages.navigate(user, &path));
        if told == 0 {
            let why = "no page of the session's user is open";
            return Err(ToolError::new(Layer::Actor, codes::NO_PAGE_OPEN, why)
                .next("ask the person to open the dashboard, then repeat the call"));
        }
        Ok(NavigatedPages { path, pages: told })
    }
}

/// Whether a browser that resolves the path stays on the page's own host.
fn is_local(path: &str) -> bool {
    let printable = |byte: u8| byte.is_ascii_graphic() && !b"\\\"<>`".contains(&byte);
    let (names, _) = path.split_at(path.find(['?', '#']).unwrap_or(path.len()));
    let plain = |name: &str| !name.is_empty() && name != "." && name != "..";
    let below = names.strip_prefix('/').map(|names| names.strip_suffix('/').unwrap_or(names));
    path.bytes().all(printable)
        && below.is_some_and(|names| names.is_empty() || names.split('/').all(plain))
}

#[cfg(test)]
mod tests {
    use super::is_local;

    #[test]
    fn a_path_never_leaves_the_page() {
        for path in ["/", "/runs", "/runs/", "/runs/a.b?from=http://x//y#z", "/?a", "/a%20b:c"] {
            assert!(is_local(path), "{path}");
        }
        for path in [
            "",
            "runs",
            "//evil.example",
            "///x",
            "/\\evil.example",
            "/..//evil.example",
            "/a/../b",
            "/.",
            "/a//",
            "https://evil.example",
            "javascript:alert(1)",
            "/\t/evil.example",
            "/a b",
            "/\u{202e}x",
            "?a",
        ] {
            assert!(!is_local(path), "{path}");
        }
    }
}
