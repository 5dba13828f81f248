//! The actions of the tool: what each needs, and what it answers.

use std::time::Duration;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{CallCx, Handle, Reply, ToolError};

use super::{Caller, Keeper, Stop};
use crate::answer::{EntryRow, NoteRow, RecentRow, SearchRow, SkippedRow, VaultResult};
use crate::ops::{MOST_ROWS, Mode, Replacement, Tags, Vault, Wanted};
use crate::path::NotePath;
use crate::search::{Cut, PROGRESS, Request, Watch, search};
use crate::tools::vault::{Action, Format, FrontmatterAction, TagsAction, VaultCall, WriteMode};
use crate::{Error, front, part, tags};

const DEFAULT_RESULTS: usize = 20;
const DEFAULT_CONTEXT: u8 = 2;
const MOST_CONTEXT: u8 = 20;
const DEFAULT_RECENT: u32 = 10;
const MOST_RECENT: u32 = 1_000;
const MOST_PATHS: usize = 10;
/// Texts that one `batch_read` answers together: with JSON's escapes, below what a result may be.
const BATCH_BYTES: usize = 20 * 1024 * 1024;
/// The longest key, in bytes.
const KEY_BYTES: usize = 512;

type Answer = Result<Reply<VaultResult>, ToolError>;

impl Handle<VaultCall> for Keeper {
    fn handle_tool(&mut self, cx: &CallCx, call: VaultCall) -> Answer {
        if !self.house.options.enabled {
            return Err(Error::Disabled.into());
        }
        let by = &Caller { cx: cx.clone(), scope: part::of(call.as_member.as_deref())? };
        match call.action {
            Action::Read => self.read(by, call),
            Action::Write => self.write(by, call),
            Action::Search => self.search(by, call),
            Action::List => self.list(by, call),
            Action::Delete => self.delete(by, call),
            Action::Frontmatter => self.frontmatter(by, call),
            Action::Tags => self.tags(by, call),
            Action::Replace => self.replace(by, call),
            Action::Move => self.rename(by, call),
            Action::BatchRead => self.batch_read(by, call),
            Action::Stats => self.stats(by, call),
        }
    }
}

/// A parameter that the action needs.
fn need<T>(value: Option<T>, name: &str) -> Result<T, ToolError> {
    value.ok_or_else(|| ToolError::invalid(format!("this action needs `{name}`")))
}

impl Keeper {
    /// The note in a parameter, and the parameter.
    fn note(
        &self,
        by: &Caller,
        path: Option<String>,
        name: &str,
    ) -> Result<(NotePath, String), ToolError> {
        let given = need(path, name)?;
        let path = by.scope.place(&given)?;
        self.house.rules.admit_note(&path)?;
        Ok((path, given))
    }

    /// The same of what is only read: the cards of teams are there for it, too.
    fn readable(
        &self,
        by: &Caller,
        path: Option<String>,
        name: &str,
    ) -> Result<(NotePath, String), ToolError> {
        let given = need(path, name)?;
        let path = by.scope.place(&given)?;
        self.house.rules.admit_kept(&path)?;
        Ok((path, given))
    }

    /// The folder in a parameter.
    fn folder(&self, by: &Caller, path: Option<&str>) -> Result<NotePath, ToolError> {
        let path = by.scope.place(path.unwrap_or_default())?;
        self.house.rules.admit(&path)?;
        Ok(path)
    }

    fn read(&self, by: &Caller, call: VaultCall) -> Answer {
        let (note, given) = self.readable(by, call.path, "path")?;
        let json = call.format.unwrap_or_default() == Format::Json;
        Ok(self.look(by, &self.house.readers, move |vault, _| {
            let text = vault.read(&note)?.text;
            let front = json.then(|| front::read(&text));
            let (frontmatter, wrong) = match front {
                Some(Ok(front)) => (Some(front), None),
                Some(Err(wrong)) => (None, Some(wrong.to_string())),
                None => (None, None),
            };
            Ok(VaultResult {
                path: Some(given),
                size_bytes: Some(text.len() as u64),
                content: Some(text),
                frontmatter,
                frontmatter_error: wrong,
                ..VaultResult::default()
            })
        }))
    }

    fn write(&mut self, by: &Caller, call: VaultCall) -> Answer {
        let (note, given) = self.note(by, call.path, "path")?;
        let content = need(call.content, "content")?;
        let mode = call.mode.unwrap_or_default();
        Ok(self.change(by, vec![note.clone()], move |vault| {
            let how = match mode {
                WriteMode::Overwrite => Mode::Overwrite,
                WriteMode::Append => Mode::Append,
                WriteMode::Prepend => Mode::Prepend,
            };
            let (created, size) = vault.write(&note, &content, how)?;
            Ok(VaultResult {
                path: Some(given),
                mode: Some(mode),
                created: Some(created),
                size_bytes: Some(size as u64),
                ..VaultResult::default()
            })
        }))
    }

    fn search(&self, by: &Caller, call: VaultCall) -> Answer {
        let query = need(call.query, "query")?;
        let at = self.folder(by, call.path_prefix.as_deref())?;
        let tag = call.tag.map(|tag| valid_tag(&tag)).transpose()?;
        let context = call.context_lines.unwrap_or(DEFAULT_CONTEXT);
        if context > MOST_CONTEXT {
            return Err(ToolError::invalid(format!("context_lines must be 0 to {MOST_CONTEXT}")));
        }
        let options = self.house.options.clone();
        let most = match call.max_results {
            None => DEFAULT_RESULTS.min(options.max_results),
            Some(0) => options.max_results,
            Some(most) => options.max_results.min(most as usize),
        };
        let progress = by.cx.progress.clone();
        Ok(self.look(by, &self.house.searches, move |vault, stop: &Stop| {
            let ask = Request {
                query: &query,
                regex: call.regex.unwrap_or(false),
                case_sensitive: call.case_sensitive.unwrap_or(true),
                whole_word: call.whole_word.unwrap_or(false),
                context_lines: usize::from(context),
                at,
                tag: tag.as_deref(),
                max_results: most,
                timeout: Duration::from_secs(options.search_timeout_secs),
                threads: options.threads(),
            };
            let watch = Watch {
                every: PROGRESS,
                stopped: &|| stop.is_set(),
                progress: &|done, all| {
                    progress.report(done as f64, Some(all as f64), "notes searched");
                },
            };
            let found = search(vault, &ask, &watch)?;
            let results: Vec<_> = found.hits.into_iter().map(SearchRow::from).collect();
            let skipped = found.skipped.into_iter();
            let skipped: Vec<_> =
                skipped.map(|one| SkippedRow { path: one.path, reason: one.reason }).collect();
            Ok(VaultResult {
                result_count: Some(results.len()),
                results: Some(results),
                notes_searched: Some(found.searched),
                truncated: Some(found.cut.is_some()),
                truncated_by: found.cut.map(|cut| word(cut).to_owned()),
                skipped_count: Some(found.skipped_count),
                skipped: (!skipped.is_empty()).then_some(skipped),
                query: Some(query),
                ..VaultResult::default()
            })
        }))
    }

    fn list(&self, by: &Caller, call: VaultCall) -> Answer {
        let given = call.path.or(call.path_prefix).unwrap_or_default();
        let at = self.folder(by, Some(&given))?;
        let limit = call.limit.map_or(MOST_ROWS, |limit| limit as usize);
        if !(1..=MOST_ROWS).contains(&limit) {
            return Err(ToolError::invalid(format!("limit must be 1 to {MOST_ROWS}")));
        }
        let (recursive, notes_only) = (call.recursive.unwrap_or(false), call.notes_only);
        let notes_only = notes_only.unwrap_or(false);
        let wanted = Wanted { recursive, notes_only, after: call.after, limit };
        Ok(self.look(by, &self.house.readers, move |vault, stop| {
            let listed = vault.list(&at, &wanted, &|| stop.is_set())?;
            let rows = listed.rows.into_iter();
            let entries: Vec<_> = rows
                .map(|row| EntryRow { path: row.path, is_dir: row.is_folder, size: row.size_bytes })
                .collect();
            Ok(VaultResult {
                path: Some(given),
                recursive: Some(recursive),
                count: Some(entries.len()),
                entries: Some(entries),
                truncated: Some(listed.truncated),
                ..VaultResult::default()
            })
        }))
    }

    fn delete(&mut self, by: &Caller, call: VaultCall) -> Answer {
        let (note, given) = self.note(by, call.path, "path")?;
        if call.confirm != Some(true) {
            let message = format!("`{given}` would be gone for good");
            let refused = ToolError::new(hivekeep_kernel::Layer::Actor, "not_confirmed", message);
            return Err(refused.next("set `confirm` to true to delete it"));
        }
        Ok(self.change(by, vec![note.clone()], move |vault| {
            vault.delete(&note)?;
            Ok(VaultResult { path: Some(given), deleted: Some(true), ..VaultResult::default() })
        }))
    }

    fn frontmatter(&mut self, by: &Caller, call: VaultCall) -> Answer {
        let (note, given) = self.note(by, call.path, "path")?;
        let action = need(call.frontmatter_action, "frontmatter_action")?;
        let answer = move |vault: &Vault, note: &NotePath, changed| {
            Ok(VaultResult {
                path: Some(given),
                frontmatter: Some(vault.front(note)?),
                changed,
                ..VaultResult::default()
            })
        };
        if action == FrontmatterAction::Get {
            return Ok(
                self.look(by, &self.house.readers, move |vault, _| answer(vault, &note, None))
            );
        }
        let key = need(call.key, "key")?;
        if key.is_empty() || key.len() > KEY_BYTES {
            return Err(ToolError::invalid(format!("key must have 1 to {KEY_BYTES} bytes")));
        }
        let value = match action {
            FrontmatterAction::Set => Some(need(call.value, "value")?),
            _ => None,
        };
        Ok(self.change(by, vec![note.clone()], move |vault| {
            let changed = match &value {
                Some(value) => vault.set(&note, &key, value)?,
                None => vault.unset(&note, &key)?,
            };
            answer(vault, &note, Some(changed))
        }))
    }

    fn tags(&mut self, by: &Caller, call: VaultCall) -> Answer {
        let (note, given) = self.note(by, call.path, "path")?;
        let action = need(call.tags_action, "tags_action")?;
        let answer = move |vault: &Vault, note: &NotePath, changed, stopped: &dyn Fn() -> bool| {
            let Tags { all, inline, more, malformed } = vault.tags(note, stopped)?;
            Ok(VaultResult {
                path: Some(given),
                tags: Some(all),
                inline_tags: Some(inline),
                truncated: more.then_some(true),
                frontmatter_error: malformed.map(|wrong| wrong.to_string()),
                changed,
                ..VaultResult::default()
            })
        };
        if action == TagsAction::List {
            return Ok(self.look(by, &self.house.readers, move |vault, stop| {
                answer(vault, &note, None, &|| stop.is_set())
            }));
        }
        let tag = valid_tag(&need(call.tag, "tag")?)?;
        Ok(self.change(by, vec![note.clone()], move |vault| {
            let changed = match action {
                TagsAction::Add => vault.add_tag(&note, &tag)?,
                _ => vault.remove_tag(&note, &tag)?,
            };
            // What was changed is told, whoever still waits for it.
            answer(vault, &note, Some(changed), &|| false)
        }))
    }

    fn replace(&mut self, by: &Caller, call: VaultCall) -> Answer {
        let (note, given) = self.note(by, call.path, "path")?;
        let old = need(call.old_string, "old_string")?;
        let new = need(call.new_string, "new_string")?;
        if old.is_empty() {
            return Err(ToolError::invalid("old_string must not be empty"));
        }
        let is_pattern = call.regex.unwrap_or(false);
        Ok(self.change_until(by, vec![note.clone()], is_pattern, move |vault, stopped| {
            let replacement = Replacement::new(&old, &new, is_pattern)?;
            let count = vault.replace(&note, &replacement, stopped)?;
            Ok(VaultResult {
                path: Some(given),
                replacements: Some(count),
                ..VaultResult::default()
            })
        }))
    }

    fn rename(&mut self, by: &Caller, call: VaultCall) -> Answer {
        let (from, given) = self.note(by, call.path, "path")?;
        let (to, new) = self.note(by, call.new_path, "new_path")?;
        let overwrite = call.overwrite.unwrap_or(false);
        let mut notes = vec![from.clone(), to.clone()];
        notes.dedup();
        Ok(self.change(by, notes, move |vault| {
            let moved = vault.rename(&from, &to, overwrite)?;
            let (from, to) = (Some(given), Some(new));
            Ok(VaultResult { moved: Some(moved), from, to, ..VaultResult::default() })
        }))
    }

    fn batch_read(&self, by: &Caller, call: VaultCall) -> Answer {
        let paths = need(call.paths, "paths")?;
        if paths.is_empty() || paths.len() > MOST_PATHS {
            return Err(ToolError::invalid(format!("paths must name 1 to {MOST_PATHS} notes")));
        }
        let content = call.include_content.unwrap_or(true);
        let front = call.include_frontmatter.unwrap_or(true);
        // A path that is none is that row's error, as a note that is not there.
        let asked: Vec<_> = paths
            .into_iter()
            .map(|path| {
                (self.readable(by, Some(path.clone()), "paths").map(|(note, _)| note), path)
            })
            .collect();
        Ok(self.look(by, &self.house.readers, move |vault, stop| {
            let mut room = BATCH_BYTES;
            let mut rows = Vec::new();
            for (note, path) in asked {
                if stop.is_set() {
                    return Err(Error::Cancelled);
                }
                rows.push(row(vault, note, path, (content, front), &mut room));
            }
            let (count, notes) = (Some(rows.len()), Some(rows));
            Ok(VaultResult { count, notes, ..VaultResult::default() })
        }))
    }

    fn stats(&self, by: &Caller, call: VaultCall) -> Answer {
        let recent = call.recent_count.unwrap_or(DEFAULT_RECENT);
        if recent > MOST_RECENT {
            return Err(ToolError::invalid(format!("recent_count must be at most {MOST_RECENT}")));
        }
        Ok(self.look(by, &self.house.readers, move |vault, stop| {
            let stats = vault.stats(recent as usize, &|| stop.is_set())?;
            let rows = stats.recent.into_iter().map(|file| RecentRow {
                path: file.path,
                size_bytes: file.size_bytes,
                modified: DateTime::<Utc>::from(file.modified),
            });
            Ok(VaultResult {
                total_notes: Some(stats.notes),
                total_folders: Some(stats.folders),
                total_size_bytes: Some(stats.size_bytes),
                recent_files: Some(rows.collect()),
                truncated: Some(stats.truncated),
                ..VaultResult::default()
            })
        }))
    }
}

/// One note of several. `room` is what its text and those after it may have together.
fn row(
    vault: &Vault,
    note: Result<NotePath, ToolError>,
    path: String,
    (content, front): (bool, bool),
    room: &mut usize,
) -> NoteRow {
    let failed = |path, error: String| NoteRow { path, error: Some(error), ..NoteRow::default() };
    let text = match note {
        Ok(note) => match vault.read(&note) {
            Ok(note) => note.text,
            Err(error) => return failed(path, error.to_string()),
        },
        Err(error) => return failed(path, error.message),
    };
    let mut row = NoteRow { path, ..NoteRow::default() };
    if front {
        match front::read(&text) {
            Ok(front) => row.frontmatter = Some(front),
            Err(wrong) => row.error = Some(format!("front matter, {wrong}")),
        }
    }
    if content && text.len() > *room {
        row.error =
            Some(format!("its {} bytes are too many beside the others: read it alone", text.len()));
    } else if content {
        *room -= text.len();
        row.content = Some(text);
    }
    row
}

fn valid_tag(text: &str) -> Result<String, ToolError> {
    tags::parse(text).map(str::to_owned).ok_or_else(|| {
        ToolError::invalid(format!(
            "`{text}` is no tag: letters, digits, `_`, `-` and `/`, and not digits alone"
        ))
    })
}

fn word(cut: Cut) -> &'static str {
    match cut {
        Cut::Results => "max_results",
        Cut::Bytes => "bytes",
        Cut::Time => "time",
        Cut::Notes => "notes",
    }
}

impl From<crate::search::Hit> for SearchRow {
    fn from(hit: crate::search::Hit) -> Self {
        let crate::search::Hit { path, line_number, line, context } = hit;
        Self { path, line_number, line, context }
    }
}
