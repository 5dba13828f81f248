//! Tools of DAGs and of workflows, of all their parts.

use hivekeep_kernel::{Service, ServiceActor, ToolGroup};

use crate::{dags, service::WorkflowService, workflows};

impl Service for WorkflowService {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = &[
        &dags::FAMILY,
        &workflows::DEPLOY_FAMILY,
        &workflows::LISTING_FAMILY,
        &workflows::SEARCH_FAMILY,
        &workflows::SCOPE_FAMILY,
        &workflows::RUN_FAMILY,
        &workflows::STATUS_FAMILY,
        &workflows::LOG_FAMILY,
        &workflows::INTENT_FAMILY,
        &workflows::WAIT_FAMILY,
    ];
}
