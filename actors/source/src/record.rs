//! Last good list of a server's tools: one event-sourced stream per server, `source/NAME`.

use hivekeep_runtime::log::Sourced;
use rmcp::model::Tool;
use serde::{Deserialize, Serialize};

/// Size of a piece of a record.
const PIECE_BYTES: usize = 256 * 1024;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum ListRecord {
    /// The server listed these tools, other than before.
    Listed { tools: Vec<Tool> },
}

/// Tools as the server listed them last.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct LastList(pub(crate) Vec<Tool>);

impl Sourced for LastList {
    const KIND: &'static str = "source";
    const FOLD_EVERY: usize = 4;
    const PIECE_BYTES: Option<usize> = Some(PIECE_BYTES);
    type Record = ListRecord;

    fn begin(record: ListRecord) -> Result<Self, ListRecord> {
        let ListRecord::Listed { tools } = record;
        Ok(Self(tools))
    }

    fn apply(&mut self, record: ListRecord) -> Result<(), ListRecord> {
        let ListRecord::Listed { tools } = record;
        self.0 = tools;
        Ok(())
    }

    fn fold(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok()
    }

    fn unfold(snapshot: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(snapshot).map_err(|error| error.to_string())
    }
}
