//! Handlers of the actions on many notes at once.

use std::time::Duration;

use hivekeep_kernel::ToolError;

use super::{Answer, Caller, VaultActor, call, valid_tag};
use crate::answer::{NoteRow, VaultResult};
use crate::ops::{ListingParams, MOST_ROWS, VaultView};
use crate::path::NotePath;
use crate::search::{PROGRESS, SearchCallbacks, SearchLimit, SearchParams, search};
use crate::{Error, front};

const DEFAULT_RESULTS: usize = 20;
const DEFAULT_CONTEXT: u8 = 2;
const DEFAULT_RECENT: u32 = 10;
/// Texts that one `batch_read` answers together: with JSON's escapes, below what a result may be.
const BATCH_BYTES: usize = 20 * 1024 * 1024;

impl VaultActor {
    pub(super) fn search(&self, by: &Caller, call: call::SearchInput) -> Answer {
        let query = call.query;
        let at = self.folder(by, call.path_prefix.as_deref())?;
        let tag = call.tag.map(|tag| valid_tag(&tag)).transpose()?;
        let context = call.context_lines.unwrap_or(DEFAULT_CONTEXT);
        let options = self.shared.options.clone();
        let most = match call.max_results {
            None => DEFAULT_RESULTS.min(options.max_results),
            Some(0) => options.max_results,
            Some(most) => options.max_results.min(most as usize),
        };
        let progress = by.cx.progress.clone();
        Ok(self.look(by, &self.shared.searches, move |vault, stopped| {
            let ask = SearchParams {
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
            let watch = SearchCallbacks {
                every: PROGRESS,
                stopped,
                progress: &|done, all| {
                    progress.report(done as f64, Some(all as f64), "notes searched");
                },
            };
            let found = search(vault, &ask, &watch)?;
            Ok(VaultResult {
                result_count: Some(found.hits.len()),
                results: Some(found.hits),
                notes_searched: Some(found.searched),
                truncated: Some(found.cut.is_some()),
                truncated_by: found.cut.map(|cut| word(cut).to_owned()),
                skipped_count: Some(found.skipped_count),
                skipped: (!found.skipped.is_empty()).then_some(found.skipped),
                query: Some(query),
                ..VaultResult::default()
            })
        }))
    }

    pub(super) fn list(&self, by: &Caller, call: call::ListInput) -> Answer {
        let given = call.path.or(call.path_prefix).unwrap_or_default();
        let at = self.folder(by, Some(&given))?;
        let limit = call.limit.map_or(MOST_ROWS, |limit| limit as usize);
        let (recursive, notes_only) = (call.recursive.unwrap_or(false), call.notes_only);
        let notes_only = notes_only.unwrap_or(false);
        let wanted = ListingParams { recursive, notes_only, after: call.after, limit };
        Ok(self.look(by, &self.shared.readers, move |vault, stopped| {
            let listed = vault.list(&at, &wanted, stopped)?;
            Ok(VaultResult {
                path: Some(given),
                recursive: Some(recursive),
                count: Some(listed.rows.len()),
                entries: Some(listed.rows),
                truncated: Some(listed.truncated),
                ..VaultResult::default()
            })
        }))
    }

    pub(super) fn batch_read(&self, by: &Caller, call: call::BatchReadInput) -> Answer {
        let content = call.include_content.unwrap_or(true);
        let front = call.include_frontmatter.unwrap_or(true);
        // A path that is none is that row's error, as a note that is not there.
        let asked: Vec<_> = call
            .paths
            .into_iter()
            .map(|path| (self.readable(by, path.clone()).map(|(note, _)| note), path))
            .collect();
        Ok(self.look(by, &self.shared.readers, move |vault, stopped| {
            let mut room = BATCH_BYTES;
            let mut rows = Vec::new();
            for (note, path) in asked {
                if stopped() {
                    return Err(Error::Cancelled);
                }
                rows.push(row(vault, note, path, (content, front), &mut room));
            }
            let (count, notes) = (Some(rows.len()), Some(rows));
            Ok(VaultResult { count, notes, ..VaultResult::default() })
        }))
    }

    pub(super) fn stats(&self, by: &Caller, call: &call::StatsInput) -> Answer {
        let recent = call.recent_count.unwrap_or(DEFAULT_RECENT);
        Ok(self.look(by, &self.shared.readers, move |vault, stopped| {
            let stats = vault.stats(recent as usize, stopped)?;
            Ok(VaultResult {
                total_notes: Some(stats.notes),
                total_folders: Some(stats.folders),
                total_size_bytes: Some(stats.size_bytes),
                recent_files: Some(stats.recent),
                truncated: Some(stats.truncated),
                ..VaultResult::default()
            })
        }))
    }
}

/// Reads one note of several. `room` is the size left for its text and those after it.
fn row(
    vault: &VaultView,
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

fn word(cut: SearchLimit) -> &'static str {
    match cut {
        SearchLimit::Results => "max_results",
        SearchLimit::Bytes => "bytes",
        SearchLimit::Time => "time",
        SearchLimit::Notes => "notes",
    }
}
