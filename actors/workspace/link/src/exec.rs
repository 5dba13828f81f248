use hivekeep_protocol::{Exec, ExecAsked, ExecAsking, ExecDone, Request, Stream};

use super::{
    Link,
    call::Wait,
    calls::Slot,
    error::LinkError,
    inbox::Exchange,
    text::{Text, capped_text},
};

/// Most output that may be on the way at once.
const MAX_WINDOW: u32 = 32 * 1024 * 1024;

/// What a server wanted to know during a run, as git itself told it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// Somebody was told the credential.
    pub answered: bool,
    /// A server, in the guest's words, that asked and had no answer.
    pub unanswered: Option<String>,
    /// A server did not take what it was told.
    pub rejected: bool,
}

/// The first part of one stream's output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// At most the request's `max_output_bytes`.
    pub bytes: Vec<u8>,
    /// Bytes that the command wrote.
    pub total_bytes: u64,
}

impl Captured {
    /// As text, with a notice when it is not all.
    pub fn text(&self) -> Text {
        capped_text(&self.bytes, self.total_bytes)
    }
}

/// A command that ran, with its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutput {
    /// How it ended.
    pub done: ExecDone,
    /// stdout.
    pub stdout: Captured,
    /// stderr.
    pub stderr: Captured,
}

impl Link {
    /// Runs a command and collects its output. `on_output` sees each piece that
    /// is kept as it comes; it must not block.
    ///
    /// The command's own time limit is the request's `timeout_ms`; let `wait` end
    /// a little later, so that the guest's answer with the partial output wins.
    ///
    /// # Errors
    /// As [`Link::ask`].
    pub async fn exec(
        &self,
        request: Exec,
        wait: Wait,
        on_output: impl FnMut(Stream, &[u8]) + Send,
    ) -> Result<ExecOutput, LinkError> {
        let most = request.max_output_bytes;
        let (done, stdout, stderr) = self.collect(request, most, wait, on_output).await?;
        Ok(output(done, stdout, stderr))
    }

    /// [`Link::exec`] of a git whose questions are answered.
    ///
    /// # Errors
    /// As [`Link::ask`].
    pub async fn exec_asking(
        &self,
        request: ExecAsking,
        wait: Wait,
    ) -> Result<(ExecOutput, Asked), LinkError> {
        let most = request.exec.max_output_bytes;
        let (told, stdout, stderr) = self.collect(request, most, wait, |_, _| {}).await?;
        let ExecAsked { done, answered, unanswered, rejected } = told;
        let asked = Asked { answered: answered > 0, unanswered, rejected };
        Ok((output(done, stdout, stderr), asked))
    }

    /// The reply, and what came before it.
    async fn collect<R: Request>(
        &self,
        request: R,
        most: u64,
        wait: Wait,
        mut on_output: impl FnMut(Stream, &[u8]) + Send,
    ) -> Result<(R::Reply, Captured, Captured), LinkError> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let (mut stdout, mut stderr) = (Captured::default(), Captured::default());
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
                // A guest that sends more than was asked for does not make us keep it.
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

fn output(done: ExecDone, mut stdout: Captured, mut stderr: Captured) -> ExecOutput {
    stdout.total_bytes = stdout.total_bytes.max(done.stdout_total_bytes);
    stderr.total_bytes = stderr.total_bytes.max(done.stderr_total_bytes);
    ExecOutput { done, stdout, stderr }
}
