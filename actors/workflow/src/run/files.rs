//! Actions on files: `file.*` in the working directory of their step, `artifact.*` in the run's folder of artifacts.
//! Each is a short script in the run's place, and so is done once however the daemon dies.

use std::fmt::Write;

use hivekeep_kernel::ToolError;
use regex::Regex;
use serde_json::{Map, Value, json};

use super::{RunSaga, failure::failed, node_try::NodeTry, scope::artifacts_folder, script::quoted};

/// Longest path, and longest pattern of paths.
const MAX_PATH_BYTES: usize = 4_096;
/// Most entries of a list.
const MAX_ENTRIES: usize = 10_000;
/// End of an entry: no path that a list has can hold it.
const ENTRY_END: &str = "//\n";
/// Form of an entry: type and mode, size, time, path.
const ENTRY: &str = "'%f %s %Y %n//'";

/// Settings of an action on files, with their references resolved.
struct FileSettings<'w> {
    action: &'w str,
    with: &'w Map<String, Value>,
    /// Folder of artifacts, which paths have to stay in.
    base: Option<String>,
}

impl FileSettings<'_> {
    /// Whether a setting is true, also as a text.
    fn is(&self, name: &str, otherwise: bool) -> Result<bool, ToolError> {
        match self.with.get(name) {
            None | Some(Value::Null) => Ok(otherwise),
            Some(Value::Bool(truth)) => Ok(*truth),
            Some(Value::String(text)) if text.trim() == "true" => Ok(true),
            Some(Value::String(text)) if text.trim() == "false" => Ok(false),
            Some(other) => Err(failed(format!("`with.{name}` is true or false: {other:.80}"))),
        }
    }

    fn text(&self, name: &str) -> &str {
        self.with.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Path of a setting as a word of a shell.
    ///
    /// # Errors
    /// `step_failed` for one that is too long or, among artifacts, leads out of them.
    fn path(&self, name: &str) -> Result<String, ToolError> {
        let path = match (self.text(name), &self.base) {
            ("", Some(_)) => ".",
            (path, _) => path,
        };
        let word = path_word(path, name)?;
        let Some(base) = &self.base else { return Ok(word) };
        if path.starts_with('/') || path.split('/').any(|part| part == "..") {
            return Err(failed(format!("`{path:.80}` is not a path among the artifacts")));
        }
        Ok(quoted(&format!("{base}/{path}")))
    }

    /// Permission bits of a setting, as a shell has them.
    fn mode(&self) -> Result<Option<String>, ToolError> {
        let mode = self.text("mode").trim().trim_start_matches("0o");
        let is_mode =
            (3..=5).contains(&mode.len()) && mode.bytes().all(|it| (b'0'..=b'7').contains(&it));
        match mode {
            "" => Ok(None),
            _ if is_mode => Ok(Some(mode.to_owned())),
            _ => Err(failed(format!("`with.mode` has octal digits, as `0644`: {mode:.80}"))),
        }
    }

    /// Script of the action. What it would change is left out of a dry run.
    fn script(&self) -> Result<String, ToolError> {
        let mut text = "fail() { printf '%s\\n' \"$1\" >&2; exit 1; }\n\
            there() { [ -e \"$1\" ] || [ -L \"$1\" ]; }\n"
            .to_owned();
        let (_, operation) = self.action.rsplit_once('.').unwrap_or_default();
        let is_artifact = self.base.is_some();
        match operation {
            "copy" | "move" => self.transfer(operation, &mut text)?,
            "write" => self.write(&mut text, is_artifact)?,
            _ => {
                let _infallible = writeln!(text, "p={}", self.path("path")?);
                self.of_path(operation, &mut text)?;
            }
        }
        Ok(text)
    }

    fn of_path(&self, operation: &str, text: &mut String) -> Result<(), ToolError> {
        let does = if self.is("dry_run", false)? { ": " } else { "" };
        let missing = match self.is("missing_ok", false)? {
            true => "exit 0",
            false => "fail \"there is no file $p\"",
        };
        let out = match operation {
            "read" => {
                let most = self.with.get("max_bytes").and_then(Value::as_u64).unwrap_or_default();
                let bound = match most {
                    0 => String::new(),
                    _ => format!(
                        "[ \"$(wc -c <\"$p\")\" -le {most} ] || fail \"$p is larger than {most} bytes\"\n"
                    ),
                };
                format!("[ -f \"$p\" ] || fail \"there is no file $p\"\n{bound}cat \"$p\"\n")
            }
            "stat" => {
                let follow = if self.is("follow_symlinks", false)? { "-L " } else { "" };
                format!("there \"$p\" || {missing}\nstat {follow}-c {ENTRY} \"$p\"\n")
            }
            "mkdir" => {
                let mode = self.mode()?.unwrap_or_else(|| "0750".to_owned());
                format!(
                    "[ -d \"$p\" ] || {{ there \"$p\" && fail \"$p is not a folder\"; \
                     {does}mkdir -p \"$p\" && {does}chmod {mode} \"$p\"; }} || exit 1\n"
                )
            }
            "delete" => {
                let folder = match self.is("recursive", false)? {
                    true => format!("{does}rm -rf \"$p\""),
                    false => "fail \"$p is a folder: set recursive to true\"".to_owned(),
                };
                format!(
                    "there \"$p\" || {missing}\n\
                     if [ -d \"$p\" ] && [ ! -L \"$p\" ]; then\n\
                     [ \"$(cd \"$p\" && pwd -P)\" != / ] || fail \"the root is not deleted\"\n\
                     {folder}\nelse\n{does}rm -f \"$p\"\nfi || exit 1\n"
                )
            }
            "list" => {
                let depth = if self.is("recursive", false)? { "" } else { "-maxdepth 1 " };
                let made = if self.base.is_some() { "mkdir -p \"$p\" && " } else { "" };
                format!(
                    "{made}cd \"$p\" || fail \"there is no folder $p\"\n\
                     find . -mindepth 1 {depth}-exec stat -c {ENTRY} {{}} +\n"
                )
            }
            other => return Err(failed(format!("the action `{other:.80}` of files is unknown"))),
        };
        text.push_str(&out);
        Ok(())
    }

    fn write(&self, text: &mut String, is_artifact: bool) -> Result<(), ToolError> {
        let (mode, content) = (self.mode()?, quoted(self.text("content")));
        let parent = folder_of(self.is("create_dirs", is_artifact)?);
        let taken = match self.is("overwrite", false)? {
            true => String::new(),
            false => "there \"$p\" && fail \"$p exists: set overwrite to true\"\n".to_owned(),
        };
        let _infallible = write!(
            text,
            "p={}\n[ ! -d \"$p\" ] || fail \"$p is a folder\"\n{taken}",
            self.path("path")?
        );
        if self.is("dry_run", false)? {
            text.push_str(":\n");
            return Ok(());
        }
        let mode =
            mode.unwrap_or_else(|| "\"$(stat -c %a \"$p\" 2>/dev/null || echo 0600)\"".to_owned());
        let _infallible = match self.is("atomic", true)? {
            true => write!(
                text,
                "{parent}m={mode}\nt=\"$p.$$.part\"\nprintf %s {content} >\"$t\" && chmod \"$m\" \"$t\" && \
                 mv -f \"$t\" \"$p\" || {{ rm -f \"$t\"; fail \"$p is not written\"; }}\n"
            ),
            false => write!(
                text,
                "{parent}m={mode}\nprintf %s {content} >\"$p\" && chmod \"$m\" \"$p\" || exit 1\n"
            ),
        };
        Ok(())
    }

    fn transfer(&self, operation: &str, text: &mut String) -> Result<(), ToolError> {
        let (source, target) = (self.path("source")?, self.path("destination")?);
        let parent = folder_of(self.is("create_dirs", false)?);
        let folder = match self.is("recursive", false)? {
            true => {
                "case \"$(cd \"$(dirname \"$p\")\" 2>/dev/null && pwd -P)/\" in \"$(cd \"$s\" && pwd -P)\"/*) \
                 fail \"$p is within $s\";; esac"
            }
            false => "fail \"$s is a folder: set recursive to true\"",
        };
        let (taken, cleared) = match self.is("overwrite", false)? {
            true => ("", "rm -rf \"$p\" && "),
            false => ("there \"$p\" && fail \"$p exists: set overwrite to true\"\n", ""),
        };
        let follows = if self.is("follow_symlinks", false)? { "-H" } else { "-P" };
        let does = match operation {
            "copy" => format!("cp -R {follows} \"$s\" \"$p\""),
            _ => "mv \"$s\" \"$p\"".to_owned(),
        };
        let _infallible = write!(
            text,
            "s={source}\np={target}\nthere \"$s\" || fail \"there is no file $s\"\n\
             [ \"$(readlink -f \"$s\")\" != \"$(readlink -f \"$p\")\" ] || fail \"$s and $p are the same\"\n\
             if [ -d \"$s\" ] && [ ! -L \"$s\" ]; then {folder}\nfi\n{taken}"
        );
        match self.is("dry_run", false)? {
            true => text.push_str(":\n"),
            false => text.push_str(&format!("{parent}{cleared}{does} || exit 1\n")),
        }
        Ok(())
    }

    /// Text that the action leaves: the content of a file, or JSON.
    fn told(&self, said: String) -> Result<String, ToolError> {
        let (_, operation) = self.action.rsplit_once('.').unwrap_or_default();
        let mut told = json!({ "operation": operation });
        for name in ["path", "source", "destination"] {
            if let Some(path) = self.with.get(name) {
                told[name] = path.clone();
            }
        }
        match operation {
            "read" if self.text("format") != "json" => return Ok(said),
            "read" => {
                told["size"] = json!(said.len());
                told["content"] = said.into();
            }
            "stat" => {
                let entry = said.split(ENTRY_END).next().and_then(entry);
                told["exists"] = entry.is_some().into();
                if let (Some(Value::Object(mut entry)), Some(told)) = (entry, told.as_object_mut())
                {
                    entry.remove("path");
                    told.extend(entry);
                }
            }
            "list" => {
                let pattern = Some(self.text("pattern")).filter(|it| !it.is_empty());
                let pattern = pattern.map(glob).transpose()?;
                let dirs = self.is("include_dirs", false)?;
                let wanted = |entry: &Value| {
                    let path = entry["path"].as_str().unwrap_or_default();
                    (dirs || entry["type"] != "directory")
                        && pattern.as_ref().is_none_or(|pattern| pattern.is_match(path))
                };
                let mut entries: Vec<Value> =
                    said.split(ENTRY_END).filter_map(entry).filter(wanted).collect();
                if entries.len() > MAX_ENTRIES {
                    let count = entries.len();
                    return Err(failed(format!("{count} entries; {MAX_ENTRIES} are allowed")));
                }
                entries.sort_by(|one, other| one["path"].as_str().cmp(&other["path"].as_str()));
                told["count"] = entries.len().into();
                told["entries"] = entries.into();
            }
            _ => told["dry_run"] = self.is("dry_run", false)?.into(),
        }
        Ok(told.to_string())
    }
}

/// Path of a setting as a word of a shell.
///
/// # Errors
/// `step_failed` for one that is too long.
pub(super) fn path_word(path: &str, name: &str) -> Result<String, ToolError> {
    if path.is_empty() || path.len() > MAX_PATH_BYTES || path.contains('\0') {
        return Err(failed(format!("`with.{name}` cannot be a path: {path:.80}")));
    }
    Ok(match path.strip_prefix("~/") {
        Some(rest) => format!("\"$HOME\"/{}", quoted(rest)),
        None if path == "~" => "\"$HOME\"".to_owned(),
        None if path.starts_with('/') => quoted(path),
        None => quoted(&format!("./{path}")),
    })
}

/// Line that makes the folder of `$p`, or needs it.
fn folder_of(makes: bool) -> &'static str {
    match makes {
        true => "mkdir -p \"$(dirname \"$p\")\" || exit 1\n",
        false => {
            "[ -d \"$(dirname \"$p\")\" ] || fail \"there is no folder for $p: set create_dirs to true\"\n"
        }
    }
}

/// Entry of a file as [`ENTRY`] tells it.
fn entry(told: &str) -> Option<Value> {
    let mut parts = told.splitn(4, ' ');
    let bits = u32::from_str_radix(parts.next()?, 16).ok()?;
    let (size, time): (u64, i64) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let path = parts.next()?;
    let kind = match bits >> 12 {
        0o10 => "file",
        0o4 => "directory",
        0o12 => "symlink",
        _ => "other",
    };
    let modified = chrono::DateTime::from_timestamp(time, 0)?;
    Some(json!({
        "path": path.strip_prefix("./").unwrap_or(path),
        "type": kind,
        "size": size,
        "mode": format!("{:04o}", bits & 0o7777),
        "modified_at": modified,
    }))
}

/// Expression for a pattern of paths: `*` and `?` within a name, `**` over folders, `[a-z]`, `{a,b}`.
///
/// # Errors
/// `step_failed` for one that is too long, or cannot be read.
fn glob(pattern: &str) -> Result<Regex, ToolError> {
    let unreadable = |why: String| failed(format!("the pattern `{pattern:.80}`: {why}"));
    if pattern.len() > MAX_PATH_BYTES {
        return Err(unreadable(format!("it is longer than {MAX_PATH_BYTES} bytes")));
    }
    let (mut text, mut rest, mut depth) = ("^".to_owned(), pattern, 0_u32);
    while let Some(c) = rest.chars().next() {
        let mut used = c.len_utf8();
        match c {
            '*' if rest.starts_with("**/") => {
                text.push_str("(?:.*/)?");
                used = 3;
            }
            '*' if rest.starts_with("**") => {
                text.push_str(".*");
                used = 2;
            }
            '*' => text.push_str("[^/]*"),
            '?' => text.push_str("[^/]"),
            '[' => {
                let (set, _) =
                    rest.split_once(']').ok_or_else(|| unreadable("`[` has no end".into()))?;
                used = set.len() + 1;
                let set = set.get(1..).unwrap_or_default();
                let (negation, set) =
                    set.strip_prefix(['!', '^']).map_or(("", set), |set| ("^", set));
                let set = set.replace('\\', r"\\").replace('[', r"\[").replace('&', r"\&");
                text.push_str(&format!("[{negation}{}]", set.replace('~', r"\~")));
            }
            '{' => {
                text.push_str("(?:");
                depth += 1;
            }
            '}' if depth > 0 => {
                text.push(')');
                depth -= 1;
            }
            ',' if depth > 0 => text.push('|'),
            c => text.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        }
        rest = rest.get(used..).unwrap_or_default();
    }
    text.push('$');
    Regex::new(&text).map_err(|error| unreadable(error.to_string()))
}

impl RunSaga {
    /// Does an action on files, for the text that it leaves.
    ///
    /// # Errors
    /// `step_failed` with what stands against it.
    pub(super) async fn file_action(
        &self,
        of: &NodeTry<'_>,
        action: &str,
        with: &Map<String, Value>,
    ) -> Result<String, ToolError> {
        let base = action.starts_with("artifact.").then(|| artifacts_folder(of.state));
        let settings = FileSettings { action, with, base };
        let said = self.helper(of, "file", settings.script()?).await?;
        settings.told(said)
    }

    /// Writes a text of a step into a file, in place of what is there.
    ///
    /// # Errors
    /// `step_failed` with what stands against it.
    pub(super) async fn put_file(
        &self,
        of: &NodeTry<'_>,
        part: &str,
        path: &str,
        content: &str,
    ) -> Result<(), ToolError> {
        let with =
            json!({ "path": path, "content": content, "overwrite": true, "create_dirs": true });
        let Value::Object(with) = with else { return Ok(()) };
        let settings = FileSettings { action: "file.write", with: &with, base: None };
        self.helper(of, part, settings.script()?).await.map(drop)
    }

    /// Text of a file in the working directory of a step.
    ///
    /// # Errors
    /// `step_failed` with what stands against it.
    pub(super) async fn file_text(
        &self,
        of: &NodeTry<'_>,
        path: &str,
    ) -> Result<String, ToolError> {
        let with = Map::from_iter([("path".to_owned(), path.into())]);
        let settings = FileSettings { action: "file.read", with: &with, base: None };
        self.helper(of, "input", settings.script()?).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_paths_as_shells_read_it() {
        for (pattern, fits, not) in [
            ("*.csv", "a.csv", "b/a.csv"),
            ("**/*.csv", "b/c/a.csv", "a.csvx"),
            ("**/*.csv", "a.csv", "a.tsv"),
            ("a?[0-9].{md,txt}", "ab1.txt", "ab1.rst"),
            ("a.b", "a.b", "axb"),
            ("reports/**", "reports/x/y", "report"),
        ] {
            let read = glob(pattern).expect("it is one");
            assert!(read.is_match(fits) && !read.is_match(not), "{pattern}");
        }
        assert!(glob("[").is_err() && glob("{a").is_err() && glob(&"x".repeat(5_000)).is_err());
    }
}
