//! The editor at the other end: what is written to it, and what it was asked.

use std::{
    collections::HashMap,
    io::Write,
    sync::{
        Mutex,
        atomic::{AtomicI64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
};

use hivekeep_agent::acp::{
    frames::AcpFrame,
    schema::{
        CLIENT_METHOD_NAMES, CancelRequestNotification, Error, PROTOCOL_LEVEL_METHOD_NAMES,
        RequestId, Response, SessionNotification, SessionUpdate,
    },
};
use hivekeep_kernel::lock;
use serde::Serialize;
use serde_json::Value;

type EditorAnswer = Result<Value, Error>;

/// See the module.
pub(super) struct Editor {
    output: Mutex<Box<dyn Write + Send>>,
    /// Requests to the editor that it has not answered.
    waiting: Mutex<HashMap<i64, SyncSender<EditorAnswer>>>,
    next: AtomicI64,
}

/// A request to the editor.
pub(super) struct EditorRequest {
    pub(super) id: i64,
    pub(super) answer: Receiver<EditorAnswer>,
}

impl Editor {
    pub(super) fn new(output: impl Write + Send + 'static) -> Self {
        let output = Mutex::new(Box::new(output) as Box<dyn Write + Send>);
        Self { output, waiting: Mutex::default(), next: AtomicI64::new(0) }
    }

    pub(super) fn write(&self, frame: &AcpFrame) {
        let mut output = lock(&self.output);
        // An editor that has gone ends the input, too.
        let _gone = output.write_all(&frame.line()).and_then(|()| output.flush());
    }

    pub(super) fn answer(&self, id: RequestId, answer: Result<impl Serialize, Error>) {
        self.write(&AcpFrame::answer(id, answer));
    }

    pub(super) fn update(&self, session: &str, update: SessionUpdate) {
        let update = SessionNotification::new(session.to_owned(), update);
        self.write(&AcpFrame::notification(CLIENT_METHOD_NAMES.session_update, update));
    }

    pub(super) fn ask(&self, method: &str, params: impl Serialize) -> EditorRequest {
        let id = self.next.fetch_add(1, Relaxed);
        let (answered, answer) = sync_channel(1);
        lock(&self.waiting).insert(id, answered);
        self.write(&AcpFrame::request(id, method, params));
        EditorRequest { id, answer }
    }

    /// Takes a request back; its answer, if one comes, is for nobody.
    pub(super) fn take_back(&self, id: i64) {
        if lock(&self.waiting).remove(&id).is_some() {
            let cancel = CancelRequestNotification::new(RequestId::Number(id));
            let method = PROTOCOL_LEVEL_METHOD_NAMES.cancel_request;
            self.write(&AcpFrame::notification(method, cancel));
        }
    }

    /// Takes an answer of the editor.
    pub(super) fn answered(&self, response: Response<Value>) {
        let (id, answer) = match response {
            Response::Result { id, result } => (id, Ok(result)),
            Response::Error { id, error } => (id, Err(error)),
        };
        let RequestId::Number(id) = id else { return };
        if let Some(waiting) = lock(&self.waiting).remove(&id) {
            let _nobody_waits = waiting.try_send(answer);
        }
    }
}
