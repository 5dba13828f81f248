use std::io::Cursor;

use hivekeep_protocol::{FileOperationDone, GuestRequest};

use super::{
    Link,
    call::CallTerms,
    calls::Slot,
    error::{LinkError, Violation},
    inbox::Exchange,
    upload::send,
};

impl Link {
    /// Has the guest run an encoded operation of the file engine, which `request` announces; returns the
    /// encoded outcome, which is not looked at here.
    ///
    /// # Errors
    /// See [`Link::ask`]; [`LinkError::Miscounted`] when the outcome has more than `max_bytes`, or
    /// another size than the guest reports.
    pub async fn run_file_operation<R: GuestRequest<Reply = FileOperationDone>>(
        &self,
        request: R,
        operation: Vec<u8>,
        max_bytes: u64,
        wait: CallTerms,
    ) -> Result<Vec<u8>, LinkError> {
        let core = self.core();
        let operation_bytes = operation.len() as u64;
        let request = request.into_wire();
        let mut call = core.open(request, Exchange::Both, Slot::Ordinary, &wait).await?;
        let mut source = Cursor::new(operation);
        if let Some(early) = send(&mut call, operation_bytes, &mut source, &wait, |_| {}).await? {
            // The guest cannot have run an operation that it has not received.
            core.typed::<R>(early)?;
            core.close(Violation::WrongReply.into());
            return Err(core.down_error());
        }
        drop(source);
        let mut outcome = Vec::new();
        loop {
            let taken = call.turn(&wait).await?;
            for chunk in &taken.chunks {
                let content = chunk.content();
                let passed_bytes = (outcome.len() + content.len()) as u64;
                if passed_bytes > max_bytes {
                    return Err(LinkError::Miscounted { told_bytes: max_bytes, passed_bytes });
                }
                outcome.extend_from_slice(content);
                call.consumed(content.len());
            }
            if let Some(reply) = taken.reply {
                let told_bytes = core.typed::<R>(reply)?.outcome_bytes;
                let passed_bytes = outcome.len() as u64;
                if told_bytes != passed_bytes {
                    return Err(LinkError::Miscounted { told_bytes, passed_bytes });
                }
                return Ok(outcome);
            }
        }
    }
}
