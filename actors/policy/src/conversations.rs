//! Modes of a conversation that there are without any configuration.

use std::collections::BTreeMap;

use crate::{ConversationOptions, ToolPattern};

/// Tools that every mode has: how to leave it, where to read, whom to ask.
const COMMON: &str = "zaru.* ask_user";

/// Name, tools and what a model is told.
const MODES: [(&str, &str, &str); 5] = [
    (
        "chat",
        "",
        "You talk with a person. You answer from what you know and from hivekeep's documents \
         (zaru.docs). You run nothing. When the person wants something done, ask for another mode \
         with zaru.mode and say why.",
    ),
    (
        "agentic",
        "aegis.agent.generate aegis.agent.wait aegis.agent.list aegis.agent.logs \
         aegis.task.execute aegis.task.wait aegis.task.list aegis.task.logs aegis.task.cancel \
         aegis.execution.file aegis.tools.list aegis.tools.search",
        "You get tasks done by agents: find one that fits, or have one made, run it, wait for it, \
         read its log, and tell the person what came of it.",
    ),
    (
        "execute",
        "aegis.execute.intent aegis.execute.status aegis.execute.wait aegis.execution.file \
         aegis.workflow.wait",
        "You turn what the person wants into one run: say in a sentence what is to be done, start \
         it, wait for it, and hand over the result.",
    ),
    (
        "architect",
        "aegis.workflow.generate aegis.workflow.list aegis.workflow.logs aegis.workflow.wait \
         aegis.agent.generate aegis.agent.wait aegis.agent.list aegis.agent.logs aegis.schema.* \
         aegis.task.execute aegis.task.wait aegis.execution.file",
        "You design workflows and agents: write manifests, check them against their schemas, try \
         them, and show the person what they do.",
    ),
    (
        "operator",
        "*",
        "You operate this daemon for the person: every tool is yours. Look before you change, and \
         ask before you destroy.",
    ),
];

/// The modes by their names.
pub(crate) fn modes() -> BTreeMap<String, ConversationOptions> {
    let mode = |(name, tools, prompt): (&str, &str, &str)| {
        let all = tools.split_whitespace().chain(COMMON.split_whitespace());
        let tools = all.filter_map(|tool| ToolPattern::try_from(tool.to_owned()).ok());
        let options = ConversationOptions { tools: tools.collect(), prompt: prompt.to_owned() };
        (name.to_owned(), options)
    };
    MODES.into_iter().map(mode).collect()
}

/// True when a mode lets a session call nothing that another does not.
pub(crate) fn within(inner: &ConversationOptions, outer: &ConversationOptions) -> bool {
    inner.tools.iter().all(|tool| outer.tools.iter().any(|other| other.covers(tool)))
}
