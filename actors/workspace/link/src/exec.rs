use hivekeep_protocol::{ExecAsked, ExecAsking, GuestRequest, RunCommand, RunCommandReply, Stream};

use super::{
    Link,
    call::CallTerms,
    calls::Slot,
    error::LinkError,
    inbox::Exchange,
    text::{CapturedText, capped_text},
};

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
        let (done, stdout, stderr) = self.collect(request, most, wait, on_output).await?;
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
        let (told, stdout, stderr) = self.collect(request, most, wait, |_, _| {}).await?;
        let ExecAsked { done, answered, unanswered, rejected } = told;
        let asked = AuthenticationRecord { answered: answered > 0, unanswered, rejected };
        Ok((output(done, stdout, stderr), asked))
    }

    /// Collects the output and the reply of a request.
    async fn collect<R: GuestRequest>(
        &self,
        request: R,
        most: u64,
        wait: CallTerms,
        mut on_output: impl FnMut(Stream, &[u8]) + Send,
    ) -> Result<(R::Reply, CapturedOutput, CapturedOutput), LinkError> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let (mut stdout, mut stderr) = (CapturedOutput::default(), CapturedOutput::default());
        let core = self.core();
        let mut call =
            core.open(request.into_wire(), Exchange::Output, Slot::Ordinary, &wait).await?;
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
