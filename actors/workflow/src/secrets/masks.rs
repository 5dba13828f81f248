//! Masks: texts as they are recorded and shown, with a `*` for each byte of a secret, so that places in them stay.

use std::{ops::Range, sync::Arc};

use hivekeep_kernel::{ToolError, secret::SecretString};
use hivekeep_ports::TaskText;
use serde_json::Value;

/// Byte in place of each of a secret.
const MASK: u8 = b'*';

/// Values that nothing which is recorded or shown may have. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct SecretMasks(Arc<[Needle]>);

/// Value that is searched for in one pass over a text, however that repeats itself.
struct Needle {
    bytes: Vec<u8>,
    /// Length of the longest proper beginning that each beginning of the value ends with.
    borders: Vec<usize>,
}

/// Bytes with their secrets masked.
struct MaskedBytes {
    bytes: Vec<u8>,
    has_secret: bool,
    /// Longest end of the bytes that a secret begins with.
    begun: usize,
}

impl SecretMasks {
    pub(crate) fn new<'s>(values: impl IntoIterator<Item = &'s SecretString>) -> Self {
        Self(values.into_iter().filter(|it| !it.is_empty()).map(Needle::new).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes around a part of a stream that say what in the part belongs to a secret.
    pub(crate) fn margin(&self) -> usize {
        self.0.iter().map(|needle| needle.bytes.len() - 1).max().unwrap_or_default()
    }

    /// True where a text of a value, a number or a key has a secret.
    pub(crate) fn finds_in(&self, value: &Value) -> bool {
        let finds = |text: &str| !self.is_empty() && self.masked(text.as_bytes()).has_secret;
        match value {
            Value::String(text) => finds(text),
            Value::Number(number) => finds(&number.to_string()),
            Value::Array(items) => items.iter().any(|item| self.finds_in(item)),
            Value::Object(members) => {
                members.iter().any(|(key, value)| finds(key) || self.finds_in(value))
            }
            Value::Null | Value::Bool(_) => false,
        }
    }

    pub(crate) fn text(&self, text: &mut String) {
        let masked = self.masked(text.as_bytes());
        if masked.has_secret {
            *text = lossy(&masked.bytes);
        }
    }

    pub(crate) fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(members) => {
                for (mut key, mut value) in std::mem::take(members) {
                    self.text(&mut key);
                    self.value(&mut value);
                    members.insert(key, value);
                }
            }
            Value::Number(number) => {
                let (mut text, plain) = (number.to_string(), number.to_string());
                self.text(&mut text);
                if text != plain {
                    *value = Value::String(text);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    pub(crate) fn error(&self, error: &mut ToolError) {
        self.text(&mut error.message);
        error.next_step.iter_mut().for_each(|next| self.text(next));
        error.details.values_mut().for_each(|value| self.value(value));
    }

    pub(crate) fn stream(&self, stream: &mut TaskText) {
        let head = head_of(stream).len();
        let rest = stream.text.split_off(head);
        let MaskedBytes { mut bytes, begun, .. } = self.masked(stream.text.as_bytes());
        if stream.truncated {
            // The rest of a secret may be in what was cut off.
            bytes.iter_mut().rev().take(begun).for_each(|byte| *byte = MASK);
        }
        stream.text = lossy(&bytes) + &rest;
    }

    /// Part of a stream, by the bytes that it and a margin on both sides have, and where it ends: of a stream that
    /// grows before what may be the beginning of a secret.
    pub(crate) fn part(&self, bytes: &[u8], shown: Range<usize>, grows: bool) -> (String, usize) {
        let MaskedBytes { bytes, begun, .. } = self.masked(bytes);
        let whole = bytes.len() - if grows { begun } else { 0 };
        let mut end = shown.end.min(whole).max(shown.start);
        while end > shown.start && bytes.get(end).is_some_and(|byte| byte & 0xC0 == 0x80) {
            end -= 1;
        }
        (lossy(bytes.get(shown.start..end).unwrap_or_default()), end)
    }

    fn masked(&self, bytes: &[u8]) -> MaskedBytes {
        let mut masked = MaskedBytes { bytes: bytes.to_vec(), has_secret: false, begun: 0 };
        self.0.iter().for_each(|needle| needle.mask(bytes, &mut masked));
        masked
    }
}

impl Needle {
    fn new(value: &SecretString) -> Self {
        let bytes = value.expose().as_bytes().to_vec();
        let (mut borders, mut state) = (vec![0], 0);
        for byte in bytes.iter().skip(1) {
            state = next(&bytes, &borders, state, *byte);
            borders.push(state);
        }
        Self { bytes, borders }
    }

    fn mask(&self, bytes: &[u8], masked: &mut MaskedBytes) {
        let (mut state, mut done, length) = (0, 0, self.bytes.len());
        for (end, byte) in (1..).zip(bytes) {
            state = next(&self.bytes, &self.borders, state, *byte);
            if state == length {
                if let Some(secret) = masked.bytes.get_mut(done.max(end - length)..end) {
                    secret.fill(MASK);
                }
                (masked.has_secret, done) = (true, end);
                state = self.borders.last().copied().unwrap_or_default();
            }
        }
        masked.begun = masked.begun.max(state);
    }
}

/// Beginning of an output, without the notice that it is cut short.
pub(crate) fn head_of(stream: &TaskText) -> &str {
    const NOTICE: &str = "[output truncated: ";
    let cut = stream.text.rsplit_once(NOTICE).filter(|_| stream.truncated);
    let Some((head, notice)) = cut else { return &stream.text };
    let shown = notice.split(' ').next().and_then(|bytes| bytes.parse().ok());
    shown.and_then(|bytes: usize| head.get(..bytes)).unwrap_or(head)
}

/// Bytes of a value that a text ends with, of one that ended with `state` of them and goes on with `byte`.
fn next(value: &[u8], borders: &[usize], mut state: usize, byte: u8) -> usize {
    while state > 0 && value.get(state) != Some(&byte) {
        state = borders.get(state - 1).copied().unwrap_or_default();
    }
    if value.get(state) == Some(&byte) { state + 1 } else { 0 }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naive(secrets: &[String], text: &str) -> String {
        let mut masked = text.as_bytes().to_vec();
        for secret in secrets {
            for at in 0..text.len() {
                if text[at..].starts_with(secret) {
                    masked[at..at + secret.len()].fill(MASK);
                }
            }
        }
        String::from_utf8(masked).expect("ASCII")
    }

    /// However a stream grows and is read, the parts are together what the whole is without its secrets.
    #[test]
    fn a_secret_is_masked_however_its_bytes_are_written_and_read() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..3_000 {
            let mut word = |most: usize| -> String {
                let length = random.usize(1..most);
                (0..length).map(|_| if random.u8(..3) == 0 { 'b' } else { 'a' }).collect()
            };
            let secrets: Vec<String> = (0..3).map(|_| word(6)).collect();
            let (text, values) = (word(40), secrets.iter().map(SecretString::new));
            let values: Vec<_> = values.collect();
            let masks = SecretMasks::new(&values);
            let (bytes, whole, margin) = (text.as_bytes(), naive(&secrets, &text), masks.margin());
            let (mut shown, mut there) = (String::new(), 0);
            while shown.len() < bytes.len() {
                // The stream has grown, or is over.
                there = random.usize(there..=bytes.len());
                let (at, grows) = (shown.len(), there < bytes.len());
                let end = (at + random.usize(1..8)).min(there).max(at);
                let (from, to) = (at.saturating_sub(margin), (end + margin).min(there).max(at));
                let (piece, _) = masks.part(&bytes[from..to], at - from..end - from, grows);
                shown.push_str(&piece);
                assert!(whole.starts_with(&shown), "{secrets:?} in {text}: {shown}; seed {seed}");
            }
            let (mut all, value) = (text.clone(), Value::from(text));
            masks.text(&mut all);
            assert_eq!(all, whole, "{secrets:?}; seed {seed}");
            assert_eq!(masks.finds_in(&value), whole.contains('*'), "{secrets:?}; seed {seed}");
        }
    }

    #[test]
    fn a_long_secret_in_a_text_that_repeats_it_takes_one_pass() {
        let masks = SecretMasks::new([&SecretString::new("a".repeat(64 * 1024))]);
        let mut text = "a".repeat(1024 * 1024);
        let began = std::time::Instant::now();
        masks.text(&mut text);
        assert!(!text.contains('a') && began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    }

    #[test]
    fn the_end_of_a_log_that_is_cut_short_may_be_the_beginning_of_a_secret() {
        let masks = SecretMasks::new([&SecretString::new("hunter2")]);
        let notice = "\n[output truncated: 8 of 30 bytes shown]";
        let text = format!("x hunter{notice}");
        let mut stream = TaskText { text, truncated: true, total_bytes: 30, path: None };
        masks.stream(&mut stream);
        assert_eq!(stream.text, format!("x ******{notice}"));
    }
}
