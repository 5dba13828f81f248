//! Metrics of all users, for the operator.

use std::sync::Arc;

use hivekeep_kernel::ToolError;
use hivekeep_metrics::{MetricsReach::All, MetricsStore, MetricsWindow};
use serde_json::Value;

use super::{Outlet, requests::value};
use crate::doors::DaemonServices;

fn store(core: &DaemonServices) -> Result<Arc<MetricsStore>, ToolError> {
    core.ports.need::<MetricsStore>()
}

pub(super) async fn count(core: &DaemonServices, since: MetricsWindow) -> Result<Value, ToolError> {
    value(store(core)?.count(since, All).await?)
}

/// All of them, as far as the client reads.
pub(super) async fn export(
    core: &DaemonServices,
    since: MetricsWindow,
    outlet: &Outlet,
) -> Result<Value, ToolError> {
    let mut export = store(core)?.export(since, All);
    while let Some(part) = export.next().await? {
        if !outlet.item(Value::Array(part)).await {
            break;
        }
    }
    Ok(Value::Null)
}
