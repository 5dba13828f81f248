//! References in texts of a DAG: `${params.version}` and its kin, with what they name.

use std::ops::Range;

/// Context fields, without `context.` before them.
const CONTEXT_FIELDS: &str = "dag.name run.id run.status run.scheduled_at run.root_name run.root_id \
    attempt.id attempt.started_at step.id step.name trigger.type trigger.actor paths.log_file \
    paths.work_dir paths.artifacts_dir paths.step_stdout_file paths.step_stderr_file \
    paths.step_output_file profile.name profile.resolved_at pushback.iteration \
    pushback.previous_stdout_file";

/// Reference in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference<'t> {
    /// Bytes from `$` to `}`.
    pub range: Range<usize>,
    /// Path of the value.
    pub path: ReferencePath<'t>,
    /// True behind an odd number of backslashes: the text stays, and the last backslash goes.
    pub is_escaped: bool,
}

/// Path of a value that a reference names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferencePath<'t> {
    /// Constant, as `consts.NAME`.
    Const(&'t str),
    /// `params`: all parameters as a JSON object.
    Params,
    /// Parameter, as `params.NAME`.
    Param(&'t str),
    /// Variable, as `env.NAME`.
    Env(&'t str),
    /// Output of a step, as `steps.ID.outputs.NAME`.
    StepOutput {
        /// Id of the step.
        step: &'t str,
        /// Name of the output.
        name: &'t str,
    },
    /// `foreach.index`: place of the item, from 0.
    ForeachIndex,
    /// Key of the item, as `foreach.key`.
    ForeachKey,
    /// `foreach.NAME` or `foreach.NAME.FIELD`.
    ForeachItem {
        /// Name that the step gives its items.
        name: &'t str,
        /// Field of an item that is an object.
        field: Option<&'t str>,
    },
    /// `context.GROUP.FIELD`, as `run.id`; the short forms without `context.` are the same.
    Context(&'static str),
    /// Text behind `context` that is no field.
    UnknownContext(&'t str),
    /// `ITEM` or `ITEM.FIELD`, where `parallel` is; elsewhere a variable of the shell.
    Item(Option<&'t str>),
    /// `ID.stdout`, `ID.output.PATH` and the like, which read what a step has left.
    StepResult {
        /// Id of the step.
        step: &'t str,
        /// Kind of the result.
        result: StepResult,
        /// Rest of the text, as `.items[0].name`; may be empty.
        rest: &'t str,
    },
}

/// Result of a step, apart from declared outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepResult {
    /// File of the standard output.
    Stdout,
    /// File of the standard error.
    Stderr,
    /// Exit status.
    ExitCode,
    /// Values of the step's `output`.
    Output,
    /// Values of the step's `stdout.outputs`.
    Outputs,
}

/// References of a text in its order, those that are escaped among them. Other text in braces is not ours.
pub fn references(text: &str) -> impl Iterator<Item = Reference<'_>> {
    text.match_indices("${").filter_map(|(start, _)| {
        let inner = text.get(start + 2..)?;
        // A search ends at the next dollar: the whole is linear.
        let length = inner.find(['$', '{', '}', '\n'])?;
        let (inner, behind) = inner.split_at_checked(length)?;
        let path = behind.starts_with('}').then(|| ReferencePath::of(inner))??;
        let before = text.as_bytes().get(..start)?;
        let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\').count();
        let range = start..start + length + 3;
        Some(Reference { range, path, is_escaped: backslashes % 2 == 1 })
    })
}

fn context_field(name: &str) -> Option<&'static str> {
    let known = || CONTEXT_FIELDS.split_whitespace().find(|known| *known == name);
    name.contains('.').then(known)?
}

/// True for a name of a constant, a parameter, a step or an output.
pub(super) fn is_name(text: &str) -> bool {
    is_variable(text) && !text.starts_with('_')
}

/// True for a name of an environment variable.
pub(super) fn is_variable(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl<'t> ReferencePath<'t> {
    /// Path of the text between the braces.
    fn of(text: &'t str) -> Option<Self> {
        let mut parts = text.splitn(5, '.');
        let parts = [(); 5].map(|()| parts.next());
        let named = |name: &&str| is_name(name);
        match parts {
            [Some("consts"), Some(name), None, ..] if is_name(name) => Some(Self::Const(name)),
            [Some("params"), None, ..] => Some(Self::Params),
            [Some("params"), Some(name), None, ..] if is_name(name) => Some(Self::Param(name)),
            [Some("env"), Some(name), None, ..] if is_variable(name) => Some(Self::Env(name)),
            [Some("steps"), Some(step), Some("outputs"), Some(name), None]
                if is_name(step) && is_name(name) =>
            {
                Some(Self::StepOutput { step, name })
            }
            [Some("foreach"), Some("index"), None, ..] => Some(Self::ForeachIndex),
            [Some("foreach"), Some("key"), None, ..] => Some(Self::ForeachKey),
            [Some("foreach"), Some(name), field, None, _]
                if is_name(name) && field.as_ref().is_none_or(named) =>
            {
                Some(Self::ForeachItem { name, field })
            }
            [Some("context"), ..] => Self::context(text),
            [Some("ITEM"), field, None, ..] if field.as_ref().is_none_or(named) => {
                Some(Self::Item(field))
            }
            [Some("consts" | "params" | "env" | "steps" | "foreach"), ..] => None,
            _ => Self::alias(text).or_else(|| Self::step_result(text)),
        }
    }

    fn context(text: &'t str) -> Option<Self> {
        let known = text.strip_prefix("context.").and_then(context_field).map(Self::Context);
        known.or_else(|| text.split('.').all(is_name).then_some(Self::UnknownContext(text)))
    }

    /// Short form of a context field; there are no new ones.
    fn alias(text: &str) -> Option<Self> {
        let field = match text {
            "run.started_at" => "attempt.started_at",
            "attempt.started_at" => return None,
            _ => text,
        };
        context_field(field).map(Self::Context)
    }

    fn step_result(text: &'t str) -> Option<Self> {
        let (step, path) = text.split_once('.').filter(|(step, _)| is_name(step))?;
        let end = path.find(['.', '[', ':']).unwrap_or(path.len());
        let (result, rest) = path.split_at_checked(end)?;
        let result = match result {
            "stdout" => StepResult::Stdout,
            "stderr" => StepResult::Stderr,
            "exit_code" | "exitCode" => StepResult::ExitCode,
            "output" => StepResult::Output,
            "outputs" => StepResult::Outputs,
            _ => return None,
        };
        Some(Self::StepResult { step, result, rest })
    }
}

#[cfg(test)]
mod tests {
    use super::{ReferencePath as Path, *};

    #[test]
    fn references_are_found_by_their_form() {
        let output = |step, name| Some(Path::StepOutput { step, name });
        let item = |name, field| Some(Path::ForeachItem { name, field });
        let result = |step, result, rest| Some(Path::StepResult { step, result, rest });
        for (text, expected) in [
            ("consts.a", Some(Path::Const("a"))),
            ("consts.a.b", None),
            ("consts.1a", None),
            ("params", Some(Path::Params)),
            ("params.a_1", Some(Path::Param("a_1"))),
            ("params...", None),
            ("params._a", None),
            ("env", None),
            ("env._A", Some(Path::Env("_A"))),
            ("steps.build.outputs.image", output("build", "image")),
            ("steps.build.outputs.meta.tag", None),
            ("steps.build-step.outputs.image", None),
            ("steps.build.output", None),
            ("foreach.index", Some(Path::ForeachIndex)),
            ("foreach.key", Some(Path::ForeachKey)),
            ("foreach.item", item("item", None)),
            ("foreach.item.slug", item("item", Some("slug"))),
            ("foreach.item.a.b", None),
            ("context.run.id", Some(Path::Context("run.id"))),
            (
                "context.paths.artifact_dir",
                Some(Path::UnknownContext("context.paths.artifact_dir")),
            ),
            ("context", Some(Path::UnknownContext("context"))),
            ("context...", None),
            ("run.id", Some(Path::Context("run.id"))),
            ("run.started_at", Some(Path::Context("attempt.started_at"))),
            ("attempt.started_at", None),
            ("step.xxx", None),
            ("ITEM", Some(Path::Item(None))),
            ("ITEM.a", Some(Path::Item(Some("a")))),
            ("ITEM.a.b", None),
            ("build.stdout", result("build", StepResult::Stdout, "")),
            ("build.output.items[0].a", result("build", StepResult::Output, ".items[0].a")),
            ("HOME", None),
            ("HOME:-x", None),
            ("", None),
            (" params.a", None),
        ] {
            let text = format!("ä${{{text}}}$");
            let found: Vec<_> = references(&text).collect();
            let paths: Vec<_> = found.iter().map(|one| one.path).collect();
            assert_eq!(paths, Vec::from_iter(expected), "{text}");
            assert!(found.iter().all(|one| one.range == (2..text.len() - 1)), "{text}: {found:?}");
        }
    }

    #[test]
    fn an_odd_number_of_backslashes_escapes() {
        for (text, escaped) in [("x", false), (r"\", true), (r"\\", false), (r"\\\", true)] {
            let text = format!("{text}${{params.a}}");
            let found: Vec<_> = references(&text).map(|one| one.is_escaped).collect();
            assert_eq!(found, [escaped], "{text}");
        }
    }

    #[test]
    fn hostile_texts_take_linear_time() {
        let size = 256 * 1024;
        for piece in ["${", "$", "{", "\\", "${params.", "${params.a", "\\${params.a}", "${}}"] {
            let text = piece.repeat(size / piece.len());
            let count = references(&text).count();
            assert_eq!(
                count,
                if piece.ends_with("a}") { size / piece.len() } else { 0 },
                "{piece}"
            );
        }
    }
}
