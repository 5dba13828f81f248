//! The tool `rag_delete`.

use std::time::Duration;

use hivekeep_kernel::{CallCx, Reply, ToolError, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::collections::{Collections, Msg};

/// Time for what runs to end, and for the store.
const PATIENCE: Duration = Duration::from_secs(300);

/// Remove one of your collections with all its passages. An ingestion into it is stopped, and a watching one
/// ends; the files that were ingested are not touched.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RagDelete {
    /// Collection.
    #[schemars(length(min = 1, max = 64))]
    pub collection: String,
}

/// Collection that is gone.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct CollectionRemoved {
    /// Collection.
    pub collection: String,
}

tools! {
    pub FAMILY: "rag" for Collections, singleton collections;
    rag_delete: RagDelete => CollectionRemoved = Collections::on_delete {
        title: "Remove a collection", effect: Destroy, risk: Risk::High,
    };
}

impl Collections {
    pub(super) fn on_delete(
        &mut self,
        cx: &CallCx,
        input: RagDelete,
    ) -> Result<Reply<CollectionRemoved>, ToolError> {
        let user = self.shared.user(cx.session)?;
        let (manager, cx) = (self.me.address.clone(), cx.clone());
        Ok(Reply::later(async move {
            let name = input.collection.clone();
            let gone = manager.ask(PATIENCE, |reply| Msg::delete(user, name, reply));
            // It goes on when nobody waits for it.
            cx.guard(async { gone.await? }).await?;
            Ok(CollectionRemoved { collection: input.collection })
        }))
    }
}
