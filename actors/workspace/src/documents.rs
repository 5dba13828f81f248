//! Document port of workspaces: files and logs of one, by the tools that read them, and its name.

use hivekeep_kernel::ToolError;
use hivekeep_runtime::{
    documents::{DocumentBody, Documents, Refusal, Template, arguments, decode},
    names::{KnownNames, Names},
};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    codes,
    lifecycle::{
        api::{WorkspaceListed, WorkspaceRow},
        describe::LogTexts,
    },
};

/// Text before the name of a workspace.
const ROOT: &str = "hivekeep://workspaces/";
/// Most bytes of a file that is read as a resource, which is read whole.
const MOST_FILE_BYTES: u64 = 1024 * 1024;
/// Lines of each log, from its end.
const LOG_LINES: usize = 1_000;
const PLAIN: &str = "text/plain";
/// The variable of both templates.
const NAME: (&str, &str) = ("name", "workspace");

/// Name of the workspace in a URI, and what stands behind it.
fn parts(uri: &str) -> Option<(&str, &str)> {
    let rest = uri.strip_prefix(ROOT)?;
    let (name, behind) = rest.split_once('/')?;
    (!name.is_empty()).then_some((name, behind))
}

fn invalid(uri: &str, template: Template) -> ToolError {
    let shown: String = uri.chars().take(200).collect();
    ToolError::invalid(format!("`{shown}` is not one of {}", template.uri))
}

fn refusal(error: &ToolError) -> Refusal {
    let missing = [codes::WORKSPACE_NOT_FOUND, codes::NOT_FOUND];
    let invalid = [
        codes::INVALID_INPUT,
        codes::INVALID_PATH,
        codes::IS_A_DIRECTORY,
        codes::NOT_A_DIRECTORY,
        codes::NOT_UTF8,
        codes::NOT_OWNER,
        codes::TOO_LARGE,
    ];
    match error {
        error if error.is_any(&missing) => Refusal::Missing,
        error if error.is_any(&invalid) => Refusal::Invalid,
        _ => Refusal::Failed,
    }
}

/// Part of what `file_read` answers.
#[derive(Deserialize)]
struct TextOfFile {
    path: String,
    content: String,
    next_offset: u64,
    size_bytes: u64,
}

/// Files of a workspace that are text.
pub(crate) struct FileDocuments;

impl FileDocuments {
    /// Workspace and path in a URI.
    fn place(&self, uri: &str) -> Option<(String, String)> {
        let (name, path) = parts(uri)?;
        let path = path.strip_prefix("files").filter(|path| path.starts_with('/'))?;
        if path.contains(['?', '#']) {
            return None;
        }
        let path = percent_decode_str(path).decode_utf8().ok()?;
        Some((name.to_owned(), path.into_owned()))
    }
}

impl Documents for FileDocuments {
    fn tool(&self) -> &'static str {
        "file_read"
    }

    fn enabled(&self) -> bool {
        true
    }

    fn template(&self) -> Template {
        Template {
            uri: "hivekeep://workspaces/{name}/files{+path}",
            name: "workspace file",
            title: "Files of a workspace",
            description: "A text file of a running workspace, at most 1 MiB, by its absolute path",
            mime_type: PLAIN,
            variables: &[NAME],
        }
    }

    fn has(&self, uri: &str) -> bool {
        parts(uri).is_some_and(|(_, behind)| behind.starts_with("files/"))
    }

    fn read_args(&self, uri: &str) -> Result<Map<String, Value>, ToolError> {
        let (name, path) = self.place(uri).ok_or_else(|| invalid(uri, self.template()))?;
        Ok(arguments(json!({ "workspace_id": name, "path": path, "limit": MOST_FILE_BYTES })))
    }

    fn body(&self, _: &str, answer: Value) -> Result<DocumentBody, ToolError> {
        let TextOfFile { path, content, next_offset, size_bytes } = decode(answer)?;
        if next_offset < size_bytes {
            let message =
                format!("{path} has {size_bytes} bytes, {MOST_FILE_BYTES} are read at once");
            return Err(ToolError::new(hivekeep_kernel::Layer::Result, codes::TOO_LARGE, message)
                .next("read it in ranges with file_read"));
        }
        Ok(content.into())
    }

    fn refusal(&self, error: &ToolError) -> Refusal {
        refusal(error)
    }
}

/// The console of a workspace and the messages of its hypervisor.
pub(crate) struct LogDocuments;

impl Documents for LogDocuments {
    fn tool(&self) -> &'static str {
        "workspace_logs"
    }

    fn enabled(&self) -> bool {
        true
    }

    fn template(&self) -> Template {
        Template {
            uri: "hivekeep://workspaces/{name}/logs",
            name: "workspace logs",
            title: "Logs of a workspace",
            description: "The end of its console and of its hypervisor's messages, 1,000 lines each",
            mime_type: PLAIN,
            variables: &[NAME],
        }
    }

    fn has(&self, uri: &str) -> bool {
        parts(uri).is_some_and(|(_, behind)| behind == "logs")
    }

    fn read_args(&self, uri: &str) -> Result<Map<String, Value>, ToolError> {
        let (name, _) = parts(uri).ok_or_else(|| invalid(uri, self.template()))?;
        Ok(arguments(json!({ "workspace_id": name, "max_lines": LOG_LINES })))
    }

    fn body(&self, _: &str, answer: Value) -> Result<DocumentBody, ToolError> {
        let LogTexts { console, stderr } = decode(answer)?;
        let part = |title: &str, text: Option<String>| {
            let text = text.unwrap_or_default();
            format!("== {title}\n{}\n", text.trim_end())
        };
        Ok((part("console", console) + &part("hypervisor", stderr)).into())
    }

    fn refusal(&self, error: &ToolError) -> Refusal {
        refusal(error)
    }
}

/// Names of the session's workspaces.
pub(crate) struct WorkspaceNames;

impl Names for WorkspaceNames {
    fn kind(&self) -> &'static str {
        NAME.1
    }

    fn tool(&self) -> &'static str {
        "workspace_list"
    }

    fn args(&self) -> Map<String, Value> {
        Map::new()
    }

    fn known(&self, answer: Value) -> Result<KnownNames, ToolError> {
        let WorkspaceListed { workspaces, .. } = decode(answer)?;
        let own = workspaces.into_iter().filter(|row: &WorkspaceRow| row.owned);
        Ok(KnownNames { names: own.map(|row| row.name).collect(), complete: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_is_of_the_files_or_of_the_logs_of_one_workspace() {
        let args = |documents: &dyn Documents, uri: &str| {
            let uri = format!("{ROOT}{uri}");
            documents.has(&uri).then(|| documents.read_args(&uri).ok().map(Value::Object))
        };
        let path = |uri| args(&FileDocuments, uri).flatten().map(|args| args["path"].clone());
        assert_eq!(path("dev/files/etc/os-release"), Some(json!("/etc/os-release")));
        assert_eq!(path("dev/files/a%20b/gr%C3%B6%C3%9Fe%23.md"), Some(json!("/a b/größe#.md")));
        for bad in [
            "dev/files",
            "dev/filesystem/x",
            "/files/x",
            "dev/logs",
            "dev/files/x?y",
            "dev/files/%ff",
        ] {
            assert_eq!(path(bad), None, "{bad}");
        }
        let named =
            |uri| args(&LogDocuments, uri).flatten().map(|args| args["workspace_id"].clone());
        assert_eq!(named("dev/logs"), Some(json!("dev")));
        for bad in ["dev/logs/x", "dev/files/logs", "logs", "/logs"] {
            assert_eq!(named(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let content = |next: u64| json!({ "path": "/a", "content": "x", "offset": 0, "next_offset": next, "size_bytes": 9 });
        assert_eq!(FileDocuments.body("", content(9)), Ok("x".to_owned().into()));
        let refused = FileDocuments.body("", content(1)).expect_err("there is more");
        assert_eq!(FileDocuments.refusal(&refused), Refusal::Invalid);
    }
}
