//! Tools of agents, of all their parts.

use hivekeep_kernel::{Service, ServiceActor, ToolGroup};

use crate::{
    files, generate, permit, tasks,
    tools::{self, AgentService},
};

impl Service for AgentService {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = &[
        &tools::FAMILY,
        &tasks::AGENT_FAMILY,
        &tasks::COMPARE_FAMILY,
        &tasks::CONTINUE_FAMILY,
        &tasks::FORK_FAMILY,
        &tasks::REPLAY_FAMILY,
        &tasks::FAMILY,
        &files::FAMILY,
        &generate::FAMILY,
        &permit::FAMILY,
    ];
}
