//! Handlers of the tool's actions.

mod many;

use hivekeep_kernel::{CallCx, Reply, ToolError};

use super::{Caller, VaultActor};
use crate::answer::{VaultResult, WriteMode};
use crate::ops::{NoteTags, TextReplacement, VaultView, WritePosition};
use crate::path::{NotePath, PathRules, Scope};
use crate::tools::{self as call, Format, FrontmatterAction, TagsAction, VaultAction, VaultCall};
use crate::{Error, codes, front, tags};

type Answer = Result<Reply<VaultResult>, ToolError>;

impl VaultActor {
    pub(crate) fn on_vault(&mut self, cx: &CallCx, call: VaultCall) -> Answer {
        if !self.shared.options.enabled {
            return Err(Error::Disabled.into());
        }
        let by = &Caller { cx: cx.clone(), scope: Scope::of_member(call.as_member.as_deref())? };
        match call.action {
            VaultAction::Read(call) => self.read(by, call),
            VaultAction::Write(call) => self.write(by, call),
            VaultAction::Search(call) => self.search(by, call),
            VaultAction::List(call) => self.list(by, call),
            VaultAction::Delete(call) => self.delete(by, call),
            VaultAction::Frontmatter(call) => self.frontmatter(by, call),
            VaultAction::Tags(call) => self.tags(by, call),
            VaultAction::Replace(call) => self.replace(by, call),
            VaultAction::Move(call) => self.rename(by, call),
            VaultAction::BatchRead(call) => self.batch_read(by, call),
            VaultAction::Stats(call) => self.stats(by, &call),
        }
    }
}

impl VaultActor {
    /// The note of a path, and the path as given.
    fn note(&self, by: &Caller, given: String) -> Result<(NotePath, String), ToolError> {
        self.placed(by, given, PathRules::admit_note)
    }

    /// The note or the card of a team: cards are only read.
    fn readable(&self, by: &Caller, given: String) -> Result<(NotePath, String), ToolError> {
        self.placed(by, given, PathRules::admit_kept)
    }

    fn placed(
        &self,
        by: &Caller,
        given: String,
        admit: fn(&PathRules, &NotePath) -> Result<(), Error>,
    ) -> Result<(NotePath, String), ToolError> {
        let path = by.scope.place(&given)?;
        admit(&self.shared.rules, &path)?;
        Ok((path, given))
    }

    /// Folder named by a parameter.
    fn folder(&self, by: &Caller, path: Option<&str>) -> Result<NotePath, ToolError> {
        let path = by.scope.place(path.unwrap_or_default())?;
        self.shared.rules.admit(&path)?;
        Ok(path)
    }

    fn read(&self, by: &Caller, call: call::ReadInput) -> Answer {
        let (note, given) = self.readable(by, call.path)?;
        let json = call.format.unwrap_or_default() == Format::Json;
        Ok(self.look(by, &self.shared.readers, move |vault, _| {
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

    fn write(&mut self, by: &Caller, call: call::WriteInput) -> Answer {
        let (note, given) = self.note(by, call.path)?;
        let (content, mode) = (call.content, call.mode.unwrap_or_default());
        Ok(self.change(by, vec![note.clone()], move |vault| {
            let how = match mode {
                WriteMode::Overwrite => WritePosition::Overwrite,
                WriteMode::Append => WritePosition::Append,
                WriteMode::Prepend => WritePosition::Prepend,
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

    fn delete(&mut self, by: &Caller, call: call::DeleteInput) -> Answer {
        let (note, given) = self.note(by, call.path)?;
        if call.confirm != Some(true) {
            let message = format!("`{given}` would be gone for good");
            let refused =
                ToolError::new(hivekeep_kernel::Layer::Actor, codes::NOT_CONFIRMED, message);
            return Err(refused.next("set `confirm` to true to delete it"));
        }
        Ok(self.change(by, vec![note.clone()], move |vault| {
            vault.delete(&note)?;
            Ok(VaultResult { path: Some(given), deleted: Some(true), ..VaultResult::default() })
        }))
    }

    fn frontmatter(&mut self, by: &Caller, call: call::FrontmatterInput) -> Answer {
        let (note, given) = self.note(by, call.path)?;
        let answer = move |vault: &VaultView, note: &NotePath, changed| {
            Ok(VaultResult {
                path: Some(given),
                frontmatter: Some(vault.front(note)?),
                changed,
                ..VaultResult::default()
            })
        };
        let (key, value) = match call.action {
            FrontmatterAction::Get => {
                return Ok(
                    self.look(by, &self.shared.readers, move |vault, _| answer(vault, &note, None))
                );
            }
            FrontmatterAction::Set { key, value } => (key, Some(value)),
            FrontmatterAction::Delete { key } => (key, None),
        };
        Ok(self.change(by, vec![note.clone()], move |vault| {
            let changed = match &value {
                Some(value) => vault.set(&note, &key, value)?,
                None => vault.unset(&note, &key)?,
            };
            answer(vault, &note, Some(changed))
        }))
    }

    fn tags(&mut self, by: &Caller, call: call::TagsInput) -> Answer {
        let (note, given) = self.note(by, call.path)?;
        let answer =
            move |vault: &VaultView, note: &NotePath, changed, stopped: &dyn Fn() -> bool| {
                let NoteTags { all, inline, more, malformed } = vault.tags(note, stopped)?;
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
        let (tag, adds) = match call.action {
            TagsAction::List => {
                return Ok(self.look(by, &self.shared.readers, move |vault, stopped| {
                    answer(vault, &note, None, stopped)
                }));
            }
            TagsAction::Add { tag } => (valid_tag(&tag)?, true),
            TagsAction::Remove { tag } => (valid_tag(&tag)?, false),
        };
        Ok(self.change(by, vec![note.clone()], move |vault| {
            let changed = match adds {
                true => vault.add_tag(&note, &tag)?,
                false => vault.remove_tag(&note, &tag)?,
            };
            // The result of a change is computed even if nobody waits for it.
            answer(vault, &note, Some(changed), &|| false)
        }))
    }

    fn replace(&mut self, by: &Caller, call: call::ReplaceInput) -> Answer {
        let (note, given) = self.note(by, call.path)?;
        let (old, new) = (call.old_string, call.new_string);
        let is_pattern = call.regex.unwrap_or(false);
        Ok(self.change_until(by, vec![note.clone()], is_pattern, move |vault, stopped| {
            let replacement = TextReplacement::new(&old, &new, is_pattern)?;
            let count = vault.replace(&note, &replacement, stopped)?;
            Ok(VaultResult {
                path: Some(given),
                replacements: Some(count),
                ..VaultResult::default()
            })
        }))
    }

    fn rename(&mut self, by: &Caller, call: call::MoveInput) -> Answer {
        let (from, given) = self.note(by, call.path)?;
        let (to, new) = self.note(by, call.new_path)?;
        let overwrite = call.overwrite.unwrap_or(false);
        let mut notes = vec![from.clone(), to.clone()];
        notes.dedup();
        Ok(self.change(by, notes, move |vault| {
            let moved = vault.rename(&from, &to, overwrite)?;
            let (from, to) = (Some(given), Some(new));
            Ok(VaultResult { moved: Some(moved), from, to, ..VaultResult::default() })
        }))
    }
}

fn valid_tag(text: &str) -> Result<String, ToolError> {
    tags::parse(text).map(str::to_owned).ok_or_else(|| {
        ToolError::invalid(format!(
            "`{text}` is not a valid tag: letters, digits, `_`, `-` and `/`, and not digits alone"
        ))
    })
}
