//! Sessions of an editor: chats of its user, opened, listed and shown again.

use hivekeep_agent::acp::{
    frames::params,
    schema::{
        Error, ListSessionsRequest, ListSessionsResponse, LoadSessionRequest, LoadSessionResponse,
        NewSessionRequest, NewSessionResponse, ResumeSessionRequest, ResumeSessionResponse,
        SessionInfo,
    },
};
use serde_json::{Value, json};

use super::{AcpDesk, updates};
use crate::cli::{output::word, runs::list};

/// Sessions of one page.
const PAGE: usize = 50;
/// Most characters of a session's name.
const NAME_CHARS: usize = 100;
/// Folder that the agent works in, which is in its machine.
const FOLDER: &str = "/workspace";

impl AcpDesk {
    pub(super) fn open(&self, given: Option<Value>) -> Result<NewSessionResponse, Error> {
        self.check(given.as_ref())?;
        let request: NewSessionRequest = params(given)?;
        let (tool, input) = match &self.args.agent {
            Some(agent) => ("aegis.task.execute", json!({ "agent_id": agent, "chat": true })),
            None => {
                let folder = request.cwd.file_name().unwrap_or(request.cwd.as_os_str());
                let name: String = folder.to_string_lossy().chars().take(NAME_CHARS).collect();
                let name = if name.trim().is_empty() { "/".to_owned() } else { name };
                ("ide_session_create", json!({ "name": name }))
            }
        };
        let opened = self.daemon.call_once(tool, input)?;
        let id = opened["execution_id"].as_str().or(opened["session"]["id"].as_str());
        let id = id.ok_or_else(|| Error::internal_error().data("the daemon named no chat"))?;
        Ok(NewSessionResponse::new(id.to_owned()))
    }

    /// Shows everything that was said and done.
    pub(super) fn load(&self, given: Option<Value>) -> Result<LoadSessionResponse, Error> {
        self.check(given.as_ref())?;
        let request: LoadSessionRequest = params(given)?;
        let id = &*request.session_id.0;
        self.chat(id)?;
        self.daemon.events(id, 0, |event| {
            let said = updates::said_by_people(event).into_iter();
            for update in said.chain(updates::done(event)) {
                self.editor.update(id, update);
            }
        })?;
        Ok(LoadSessionResponse::new())
    }

    pub(super) fn resume(&self, given: Option<Value>) -> Result<ResumeSessionResponse, Error> {
        self.check(given.as_ref())?;
        let request: ResumeSessionRequest = params(given)?;
        self.chat(&request.session_id.0)?;
        Ok(ResumeSessionResponse::new())
    }

    /// Lists chats that are not over. They belong to no folder of the editor, so they are listed in each.
    pub(super) fn list(&self, given: Option<Value>) -> Result<ListSessionsResponse, Error> {
        let ListSessionsRequest { cwd, cursor, .. } = params(given)?;
        let from = cursor.map_or(Ok(0), |cursor| cursor.parse::<usize>());
        let from = from.map_err(|_| Error::invalid_params().data("`cursor` is none of these"))?;
        let chats = self.daemon.call("ide_session_list", json!({}))?;
        let open = |chat: &&Value| {
            !["completed", "failed", "cancelled"].contains(&&*word(&chat["status"]))
        };
        let mut open = list(&chats["sessions"]).iter().filter(open).skip(from);
        let folder = cwd.unwrap_or_else(|| FOLDER.into());
        let info = |chat: &Value| {
            SessionInfo::new(word(&chat["id"]), folder.clone())
                .title(word(&chat["name"]))
                .updated_at(word(&chat["createdAt"]))
        };
        let page: Vec<_> = open.by_ref().take(PAGE).map(info).collect();
        let more = open.next().map(|_| (from + PAGE).to_string());
        Ok(ListSessionsResponse::new(page).next_cursor(more))
    }

    /// A chat of this user: an operator sees other executions, too, and does not talk to them here.
    pub(super) fn chat(&self, id: &str) -> Result<(), Error> {
        let chats = self.daemon.call("ide_session_list", json!({}))?;
        match list(&chats["sessions"]).iter().any(|chat| chat["id"] == id) {
            true => Ok(()),
            false => Err(Error::session_not_found(id.to_owned())),
        }
    }

    /// Refuses what no session here has.
    fn check(&self, given: Option<&Value>) -> Result<(), Error> {
        let set = |name: &str| {
            let value = given.and_then(|it| it.get(name));
            value.is_some_and(|it| !it.is_null() && it.as_array().is_none_or(|it| !it.is_empty()))
        };
        if !self.args.without_mcp && set("mcpServers") {
            let why = "the agent's machine reaches no MCP server of the editor: have the operator add it as a source \
                of the daemon, or leave it out by `hivekeep acp --without-mcp`";
            return Err(Error::invalid_params().data(why));
        }
        if set("additionalDirectories") {
            let why =
                "`additionalDirectories`: the agent works in its own machine, in no folder here";
            return Err(Error::invalid_params().data(why));
        }
        Ok(())
    }
}
