use hivekeep_protocol::{Exec, ExecDone, Stream};

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
        mut on_output: impl FnMut(Stream, &[u8]) + Send,
    ) -> Result<ExecOutput, LinkError> {
        let most = usize::try_from(request.max_output_bytes).unwrap_or(usize::MAX);
        let (mut stdout, mut stderr) = (Captured::default(), Captured::default());
        let core = self.core();
        let mut call = core
            .open(
                hivekeep_protocol::ToGuest::Exec(request),
                Exchange::Output,
                Slot::Ordinary,
                &wait,
            )
            .await?;
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
                let done = core.typed::<Exec>(reply)?;
                stdout.total_bytes = stdout.total_bytes.max(done.stdout_total_bytes);
                stderr.total_bytes = stderr.total_bytes.max(done.stderr_total_bytes);
                return Ok(ExecOutput { done, stdout, stderr });
            }
        }
    }
}
