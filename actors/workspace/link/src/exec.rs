//! Commands in the guest: their output kept, followed, or as text.

use hivekeep_kernel::EffectKey;
use hivekeep_protocol::{
    ExecAsked, ExecAsking, GuestCode, GuestError, GuestRequest, RunCommand, RunCommandReply,
    RunOnce, Stream, ToGuest, limits::KEPT_STREAM_BYTES,
};

use tokio_util::sync::CancellationToken;

use crate::Link;
use crate::call::CallTerms;
use crate::calls::Slot;
use crate::error::LinkError;
use crate::inbox::Exchange;

/// Maximum amount of output in flight at once.
const MAX_WINDOW: u32 = 32 * 1024 * 1024;

/// Authentication record of a run: the questions of servers, as git reported them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthenticationRecord {
    /// True if a server was given the credential.
    pub answered: bool,
    /// Server, in the guest's words, that asked and had no answer.
    pub unanswered: Option<String>,
    /// True if a server rejected the credential.
    pub rejected: bool,
}

/// Captured first part of one stream's output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CapturedOutput {
    /// Bytes kept, at most the request's `max_output_bytes`.
    pub bytes: Vec<u8>,
    /// Number of bytes that the command wrote.
    pub total_bytes: u64,
}

impl CapturedOutput {
    /// Output as text, with a notice when it is cut.
    pub fn text(&self) -> CapturedText {
        capped_text(&self.bytes, self.total_bytes)
    }
}

/// Result of a command, with its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutput {
    /// Exit of the command.
    pub done: RunCommandReply,
    /// Captured stdout.
    pub stdout: CapturedOutput,
    /// Captured stderr.
    pub stderr: CapturedOutput,
}

impl Link {
    /// Runs a command and collects its output. `on_output` sees each kept piece as it arrives; it
    /// must not block.
    ///
    /// The command's own time limit is the request's `timeout_ms`; let `wait` end a little later,
    /// so that the guest's answer with the partial output wins.
    ///
    /// # Errors
    /// See [`Link::ask`].
    pub async fn exec(
        &self,
        request: RunCommand,
        wait: CallTerms,
        on_output: impl FnMut(Stream, &[u8]) + Send,
    ) -> Result<ExecOutput, LinkError> {
        let most = request.max_output_bytes;
        let (done, stdout, stderr) = self.collect(request, most, wait, None, on_output).await?;
        Ok(output(done, stdout, stderr))
    }

    /// Runs git like [`Link::exec`], with its credential questions answered.
    ///
    /// # Errors
    /// See [`Link::ask`].
    pub async fn exec_asking(
        &self,
        request: ExecAsking,
        wait: CallTerms,
    ) -> Result<(ExecOutput, AuthenticationRecord), LinkError> {
        let most = request.exec.max_output_bytes;
        let (told, stdout, stderr) = self.collect(request, most, wait, None, |_, _| {}).await?;
        let ExecAsked { done, answered, unanswered, rejected } = told;
        let asked = AuthenticationRecord { answered: answered > 0, unanswered, rejected };
        Ok((output(done, stdout, stderr), asked))
    }

    /// Runs a command under a key, once, or asks what came of an attempt before this one. When it is given up it ends,
    /// unless `closing` has fired. `None` if the guest keeps no results, or runs as many under keys as it may, and has
    /// not run it.
    ///
    /// # Errors
    /// See [`Link::ask`]; `UnknownRun` of the guest where nothing is known of the attempt before.
    pub async fn exec_once(
        &self,
        effect: &EffectKey,
        request: RunCommand,
        tail: bool,
        wait: CallTerms,
        closing: &CancellationToken,
    ) -> Result<Option<ExecOutput>, LinkError> {
        let most = request.max_output_bytes.min(KEPT_STREAM_BYTES as u64);
        let command = (!effect.again).then_some(request);
        let request = RunOnce { key: effect.key.clone(), command, tail };
        let spared = Some(closing.clone());
        match self.collect(request, most, wait, spared, |_, _| {}).await {
            Ok((done, stdout, stderr)) => Ok(Some(output(done, stdout, stderr))),
            Err(LinkError::Guest(error)) if error.code == GuestCode::Unsupported => {
                let why = "the guest of an older daemon keeps no results";
                let unknown = GuestError::new(GuestCode::UnknownRun, why);
                if effect.again { Err(LinkError::Guest(unknown)) } else { Ok(None) }
            }
            // Begun without a key it ends with its connection.
            Err(LinkError::Guest(error)) if error.code == GuestCode::Busy && !effect.again => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Collects the output and the reply of a request.
    async fn collect<R: GuestRequest>(
        &self,
        request: R,
        most: u64,
        wait: CallTerms,
        spared: Option<CancellationToken>,
        mut on_output: impl FnMut(Stream, &[u8]) + Send,
    ) -> Result<(R::Reply, CapturedOutput, CapturedOutput), LinkError> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let (mut stdout, mut stderr) = (CapturedOutput::default(), CapturedOutput::default());
        let core = self.core();
        let mut call =
            core.open(request.into_wire(), Exchange::Output, Slot::Ordinary, &wait).await?;
        call.spared = spared;
        // Both streams are kept whole: credit for all of them costs no more memory.
        call.widen(u32::try_from(most.saturating_mul(2)).unwrap_or(MAX_WINDOW).min(MAX_WINDOW));
        loop {
            let taken = call.turn(&wait).await?;
            let mut consumed = 0;
            for chunk in &taken.chunks {
                let captured =
                    if chunk.stream == Stream::Stderr { &mut stderr } else { &mut stdout };
                let content = chunk.content();
                consumed += content.len();
                captured.total_bytes += content.len() as u64;
                // Cut, so that a guest that sends more than was asked for does not fill the memory.
                let kept = &content[..content.len().min(most - captured.bytes.len())];
                if !kept.is_empty() {
                    captured.bytes.extend_from_slice(kept);
                    on_output(chunk.stream, kept);
                }
            }
            call.consumed(consumed);
            if let Some(reply) = taken.reply {
                return Ok((core.typed::<R>(reply)?, stdout, stderr));
            }
        }
    }
}

fn output(
    done: RunCommandReply,
    mut stdout: CapturedOutput,
    mut stderr: CapturedOutput,
) -> ExecOutput {
    stdout.total_bytes = stdout.total_bytes.max(done.stdout_total_bytes);
    stderr.total_bytes = stderr.total_bytes.max(done.stderr_total_bytes);
    ExecOutput { done, stdout, stderr }
}

impl Link {
    /// Runs a command like [`Link::exec`] without keeping its output: `on_output` sees each piece
    /// as it arrives; it must not block.
    ///
    /// # Errors
    /// See [`Link::ask`].
    pub async fn exec_followed(
        &self,
        request: RunCommand,
        wait: CallTerms,
        mut on_output: impl FnMut(Stream, &[u8]) + Send,
    ) -> Result<RunCommandReply, LinkError> {
        let core = self.core();
        let request = ToGuest::RunCommand(request);
        let mut call = core.open(request, Exchange::Output, Slot::Ordinary, &wait).await?;
        loop {
            let taken = call.turn(&wait).await?;
            for chunk in &taken.chunks {
                let content = chunk.content();
                on_output(chunk.stream, content);
                call.consumed(content.len());
            }
            if let Some(reply) = taken.reply {
                return core.typed::<RunCommand>(reply);
            }
        }
    }
}

/// Captured bytes as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedText {
    /// Text in valid UTF-8; when truncated it ends with a notice of the bytes shown and in all.
    pub text: String,
    /// True if there was more than is shown.
    pub truncated: bool,
}

/// Renders `bytes`, the first part of an output of `total_bytes`.
///
/// A character is never split: when output follows that is not shown, an incomplete character at
/// the cut is left out. Bytes that are not UTF-8 at all become U+FFFD.
pub fn capped_text(bytes: &[u8], total_bytes: u64) -> CapturedText {
    let truncated = total_bytes > bytes.len() as u64;
    let shown = if truncated { &bytes[..whole_chars(bytes)] } else { bytes };
    let mut text = String::from_utf8_lossy(shown).into_owned();
    if truncated {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!("[output truncated: {} of {total_bytes} bytes shown]", shown.len()));
    }
    CapturedText { text, truncated }
}

/// Length without a character that is cut off by the end of `bytes`.
fn whole_chars(bytes: &[u8]) -> usize {
    // A character has at most four bytes: an incomplete one starts in the last three.
    let from = bytes.len().saturating_sub(3);
    (from..bytes.len())
        .find(|&at| {
            let tail = &bytes[at..];
            bytes[at] >= 0xc0
                && std::str::from_utf8(tail)
                    .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_of_it_is_shown_as_it_is() {
        let all = capped_text("héllo".as_bytes(), 6);
        assert_eq!(all, CapturedText { text: "héllo".into(), truncated: false });
    }

    #[test]
    fn a_cut_names_shown_and_total_bytes() {
        let cut = capped_text(&"aé".as_bytes()[..2], 9);
        assert_eq!(cut.text, "a\n[output truncated: 1 of 9 bytes shown]");
        assert!(cut.truncated);
        assert_eq!(capped_text(b"", 5).text, "[output truncated: 0 of 5 bytes shown]");
    }

    #[test]
    fn rubbish_at_the_end_is_replaced_and_not_taken_for_a_cut_character() {
        assert!(capped_text(b"a\xff", 9).text.starts_with("a\u{fffd}\n"));
        assert_eq!(capped_text(b"a\xc3", 2).text, "a\u{fffd}");
    }

    proptest! {
        #[test]
        fn every_cut_of_a_text_shows_a_prefix_of_it(text in "\\PC{0,40}", cut in 0usize..200) {
            let cut = cut.min(text.len());
            let shown = capped_text(&text.as_bytes()[..cut], text.len() as u64);
            prop_assert_eq!(shown.truncated, cut < text.len());
            let body = match shown.text.rsplit_once("[output truncated: ") {
                Some((body, _)) if shown.truncated => body.strip_suffix('\n').unwrap_or(body),
                _ => shown.text.as_str(),
            };
            prop_assert!(text.starts_with(body), "{:?} is not a prefix of {:?}", body, text);
            prop_assert!(cut - body.len() <= 4, "at most one character is lost");
            let replaced = body.contains(char::REPLACEMENT_CHARACTER);
            prop_assert!(!replaced || text.contains(char::REPLACEMENT_CHARACTER));
        }

        #[test]
        fn any_bytes_make_text(bytes in proptest::collection::vec(any::<u8>(), 0..64), more in 0u64..9) {
            let text = capped_text(&bytes, bytes.len() as u64 + more);
            prop_assert_eq!(text.truncated, more > 0);
            prop_assert!(text.text.len() <= bytes.len() * 3 + 80);
        }
    }
}
