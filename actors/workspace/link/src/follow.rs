use hivekeep_protocol::{RunCommand, RunCommandReply, Stream, ToGuest};

use super::{Link, call::CallTerms, calls::Slot, error::LinkError, inbox::Exchange};

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
