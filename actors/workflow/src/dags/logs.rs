//! Output of steps: from the guest while they run, and from the run's log after that.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{CallCx, Layer, ToolError};
use hivekeep_plan::progress::{NodePhase, ProgressRecord};
use hivekeep_ports::{TaskCapture, TaskSpan, TaskText, TaskWindow};
use hivekeep_runtime::OnBehalfOf;
use serde::Deserialize;
use serde_json::json;

use super::{
    Answer,
    show::{find, status, word},
    types::{DagEvent, DagLogs, DagLogsRead, DagStreamRead},
};
use crate::{
    run::{RunFold, RunRecord, RunSaga, try_name},
    secrets::{SecretMasks, head_of},
    service::WorkflowService,
};

/// Bytes of each stream in an answer.
const PART_BYTES: u32 = 64 * 1024;
/// Time limit of reading a file of a guest.
const READING: Duration = Duration::from_secs(20);

impl WorkflowService {
    pub(super) async fn dag_logs(
        self: Arc<Self>,
        cx: CallCx,
        input: DagLogs,
    ) -> Answer<DagLogsRead> {
        let (caller, DagLogs { run_id: id, step, offset, limit }) = (self.run_caller(&cx), input);
        let Some(step) = step else {
            let first = usize::try_from(offset).unwrap_or(usize::MAX);
            let page = self.runs.0.events(caller, &id, first, limit).await?;
            let view = self.runs.0.get(caller, &id)?;
            let event = |it: hivekeep_runtime::runs::SequencedEvent| DagEvent {
                sequence: it.sequence,
                event_type: it.event.event_type,
                payload: it.event.payload,
                recorded_at: it.recorded_at,
            };
            return Ok(DagLogsRead {
                run_id: view.state.begun.id,
                status: status(&view),
                stdout: None,
                stderr: None,
                events: Some(page.events.into_iter().map(event).collect()),
                total: Some(page.total),
            });
        };
        let (view, records) = self.runs.told(caller, &id).await?;
        let state = &view.state;
        let node = find(state, &step)?;
        let progress = state.work().and_then(|work| work.progress.node(node));
        let progress = progress.ok_or_else(|| ToolError::internal("a step of no plan"))?;
        let key = hivekeep_plan::progress::NodeKey { node, tries: progress.tries };
        let (stdout, stderr) = match progress.phase {
            NodePhase::Entered => self.running(state, &try_name(key), offset).await?,
            _ => match records.iter().rev().find_map(|record| logs_of(record, key)) {
                None => Default::default(),
                Some(TaskCapture { stdout, stderr, .. }) => (
                    self.ended(state, stdout, offset).await?,
                    self.ended(state, stderr, offset).await?,
                ),
            },
        };
        Ok(DagLogsRead {
            run_id: state.begun.id,
            status: word(&progress.phase),
            stdout: Some(stdout),
            stderr: Some(stderr),
            events: None,
            total: None,
        })
    }

    /// Output so far of a command that runs; nothing before it has begun in its guest. What may be the beginning of a
    /// secret is told with the rest of that.
    ///
    /// # Errors
    /// When the guest does not answer.
    async fn running(
        &self,
        state: &RunFold,
        name: &str,
        offset: u64,
    ) -> Answer<(DagStreamRead, DagStreamRead)> {
        let Some(workspace) = &state.workspace else { return Ok(Default::default()) };
        let masks = self.runs.1.masks_of(state).await?;
        let around = Around::of(&masks, offset);
        let window = TaskWindow {
            task_id: format!("{}/{name}", state.begun.id),
            stdout_from: around.from,
            stderr_from: around.from,
            max_bytes: around.bytes,
        };
        let output = self.outputs.output(workspace.workspace, window);
        let output = match tokio::time::timeout(READING, output).await {
            Ok(Ok(output)) => output,
            Ok(Err(error)) if error.retryable => return Err(error),
            // The guest does not know the command yet, or any more.
            Ok(Err(_)) => return Ok(Default::default()),
            Err(_) => return Err(ToolError::deadline(Layer::Guest, READING.as_secs())),
        };
        let part = |span: TaskSpan| {
            let (text, next_offset) = around.part(&masks, span.from, &span.bytes, true);
            DagStreamRead { next_offset, text, total_bytes: span.total_bytes, file: None }
        };
        Ok((part(output.stdout), part(output.stderr)))
    }

    /// Output of a command that has ended: the beginning is in the run's log, the rest in the file of its workspace, as
    /// long as that is there.
    ///
    /// # Errors
    /// When what is asked for is beyond the beginning, and cannot be read.
    async fn ended(
        &self,
        state: &RunFold,
        stream: &TaskText,
        offset: u64,
    ) -> Answer<DagStreamRead> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let recorded = match stream.truncated && offset > 0 {
            true => None,
            false => stream.text.get(from.min(stream.text.len())..),
        };
        if let Some(text) = recorded {
            return Ok(DagStreamRead {
                text: text.to_owned(),
                next_offset: offset.max(head_of(stream).len() as u64),
                total_bytes: stream.total_bytes,
                file: stream.path.clone(),
            });
        }
        let masks = self.runs.1.masks_of(state).await?;
        let around = Around::of(&masks, offset);
        let Content { content, next_offset } = self.of_file(state, stream, &around).await?;
        let (bytes, is_plain) =
            (content.as_bytes(), around.from + content.len() as u64 == next_offset);
        let (text, next_offset) = match is_plain {
            true => around.part(&masks, around.from, bytes, next_offset < stream.total_bytes),
            // Not UTF-8: places in the text are none of the file.
            false => (masks.part(bytes, 0..bytes.len(), true).0, next_offset),
        };
        let (total_bytes, file) = (stream.total_bytes, stream.path.clone());
        Ok(DagStreamRead { text, next_offset, total_bytes, file })
    }

    async fn of_file(
        &self,
        state: &RunFold,
        stream: &TaskText,
        around: &Around,
    ) -> Result<Content, ToolError> {
        let gone = || ToolError::invalid("the workspace of the run is gone");
        let (path, workspace) =
            stream.path.as_ref().zip(state.workspace.as_ref()).ok_or_else(gone)?;
        let caller = OnBehalfOf::own(RunSaga::place_session(state)?, READING);
        let args = json!({
            "workspace_id": workspace.workspace, "path": path, "offset": around.from, "limit": around.bytes,
        });
        self.tools.call_idempotent(state.begun.id, &caller, "file_read", args).await
    }
}

#[derive(Deserialize)]
struct Content {
    content: String,
    next_offset: u64,
}

/// Part of a stream, with a margin on both sides that says what in it belongs to a secret.
struct Around {
    from: u64,
    bytes: u32,
    offset: u64,
}

impl Around {
    fn of(masks: &SecretMasks, offset: u64) -> Self {
        let margin = masks.margin();
        let from = offset.saturating_sub(margin as u64);
        let bytes = PART_BYTES.saturating_add(u32::try_from(2 * margin).unwrap_or(u32::MAX));
        Self { from, bytes, offset }
    }

    /// Text of the part without secrets, and the place behind it, of bytes that begin at `from`.
    fn part(&self, masks: &SecretMasks, from: u64, bytes: &[u8], grows: bool) -> (String, u64) {
        let start = usize::try_from(self.offset.saturating_sub(from)).unwrap_or(usize::MAX);
        let start = start.min(bytes.len());
        let end = bytes.len().min(start + PART_BYTES as usize);
        let (text, end) = masks.part(bytes, start..end, grows);
        (text, from + end as u64)
    }
}

fn logs_of(record: &RunRecord, key: hivekeep_plan::progress::NodeKey) -> Option<&TaskCapture> {
    match record {
        RunRecord::Moved { progress: ProgressRecord::Ended { key: of, .. }, left: Some(left) }
            if *of == key =>
        {
            left.logs.as_deref()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use hivekeep_kernel::secret::SecretString;

    use super::*;

    /// A reader may begin anywhere, also within a secret.
    #[test]
    fn a_log_is_masked_from_every_place_that_it_is_read_from() {
        let masks = SecretMasks::new([&SecretString::new("hunter2"), &SecretString::new("r2x")]);
        let (log, whole) = (b"say hunter2 hunter2x hunt", "say ******* ******** hunt");
        for grows in [false, true] {
            let end = if grows { log.len() - 4 } else { log.len() };
            for offset in 0..end {
                let around = Around::of(&masks, offset as u64);
                let from = usize::try_from(around.from).expect("it is small");
                let (text, next) = around.part(&masks, around.from, &log[from..], grows);
                assert_eq!((text.as_str(), next), (&whole[offset..end], end as u64));
            }
        }
    }
}
