//! File that a step writes its declared outputs to, by lines of `NAME=VALUE` and `NAME<<END`.

use std::collections::HashMap;

use serde::de::IgnoredAny;

use super::{
    NamedTexts,
    variables::{is_variable, name_length},
};

/// Why outputs are not published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutputFileError {
    /// Larger than so many bytes.
    #[error("the output file is larger than {0} bytes: raise `max_output_size`, or publish a path")]
    TooLarge(usize),
    /// Bytes that are no text.
    #[error("the output file is not UTF-8")]
    NotUtf8,
    /// Number of a line, from 1, that is no record.
    #[error("line {0} of the output file is not `NAME=VALUE` or `NAME<<END`")]
    Syntax(usize),
    /// Name of an output whose value has no last line, and that line.
    #[error("the value of `{0}` in the output file has no end: a line with `{1}` alone")]
    Unclosed(String, String),
    /// An output that the step does not declare.
    #[error("undeclared output: `{0}`; name it in `outputs` of the step")]
    Undeclared(String),
    /// An output that is there twice.
    #[error("output `{0}` is emitted twice")]
    Duplicate(String),
    /// An output that is not there.
    #[error("output `{0}` is not emitted: write it to the file that DAGU_OUTPUT_FILE names")]
    Missing(String),
    /// Name of an output of the type `json` that is something else, and the reason.
    #[error("output `{0}` is not valid JSON: {1}")]
    Json(String, String),
}

/// Outputs of a file. `declared` are the names that the step declares, with true for the type `json`.
///
/// # Errors
/// For the first thing that is wrong; then nothing is published.
pub fn output_file(
    bytes: &[u8],
    declared: &[(&str, bool)],
    max_bytes: usize,
) -> Result<NamedTexts, OutputFileError> {
    use OutputFileError::{
        Duplicate, Json, Missing, NotUtf8, Syntax, TooLarge, Unclosed, Undeclared,
    };
    if bytes.len() > max_bytes {
        return Err(TooLarge(max_bytes));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| NotUtf8)?;
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let kinds: HashMap<_, _> = declared.iter().copied().collect();
    let mut lines = text.split('\n').enumerate().skip(usize::from(text.is_empty()));
    let mut found = NamedTexts::new();
    while let Some((number, line)) = lines.next() {
        let (name, rest) = line.split_at(name_length(line));
        let value = match (rest.strip_prefix('='), rest.strip_prefix("<<")) {
            _ if !is_variable(name) || name.starts_with('_') => return Err(Syntax(number + 1)),
            (Some(value), _) => value.to_owned(),
            (None, Some(end)) if is_variable(end) => {
                let mut value = Vec::new();
                loop {
                    match lines.next() {
                        Some((_, line)) if line == end => break value.join("\n"),
                        Some((_, line)) => value.push(line),
                        None => return Err(Unclosed(name.to_owned(), end.to_owned())),
                    }
                }
            }
            _ => return Err(Syntax(number + 1)),
        };
        let is_json = *kinds.get(name).ok_or_else(|| Undeclared(name.to_owned()))?;
        if is_json && let Err(error) = serde_json::from_str::<IgnoredAny>(&value) {
            return Err(Json(name.to_owned(), error.to_string()));
        }
        if found.insert(name.to_owned(), value).is_some() {
            return Err(Duplicate(name.to_owned()));
        }
    }
    match declared.iter().find(|(name, _)| !found.contains_key(*name)) {
        Some((name, _)) => Err(Missing((*name).to_owned())),
        None => Ok(found),
    }
}
