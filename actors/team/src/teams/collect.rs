//! What a member's inbox and desk have for whoever receives in its name.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{Address, AskError, ToolError};
use tokio::sync::oneshot::{self, Receiver};

use crate::{
    desk::{self, ledger::Kept},
    lending::{Ask, Loan},
    mailbox::{self, book::Message},
};

/// What the messages of one answer may take, in bytes of JSON; the tool's budget is 4 MiB, and
/// doors send a result twice.
const MESSAGES_BYTES: usize = 2 * 1024 * 1024;
/// The same for results of tasks.
const RESULTS_BYTES: usize = 1024 * 1024;

type Answer<T> = Receiver<Result<Loan<T>, ToolError>>;

/// What was handed out.
pub(super) struct Collected {
    pub(super) messages: Option<Loan<Message>>,
    pub(super) results: Option<Loan<Arc<Kept>>>,
}

impl Collected {
    /// It reached the receiver.
    pub(super) fn taken(self) {
        self.messages.into_iter().for_each(Loan::taken);
        self.results.into_iter().for_each(Loan::taken);
    }
}

/// Both of a member's places.
pub(super) struct Collector {
    pub(super) mailbox: Address<mailbox::Msg>,
    pub(super) desk: Address<desk::Msg>,
    /// Of each kind.
    pub(super) limit: usize,
}

impl Collector {
    /// What there is now, or comes first within the time.
    ///
    /// A loan of the inbox may wait for one of the desk, and never the other way round: two
    /// receivers would wait for each other.
    pub(super) async fn collect(&self, wait: Option<Duration>) -> Result<Collected, ToolError> {
        let messages = answer(self.messages(false)?).await?;
        let results = answer(self.results(false)?).await?;
        let nothing = messages.items.is_empty() && results.items.is_empty();
        let Some(wait) = wait.filter(|_| nothing) else {
            return Ok(Collected { messages: Some(messages), results: Some(results) });
        };
        drop((messages, results));
        let (mut message, mut result) = (self.messages(true)?, self.results(true)?);
        let came = tokio::select! {
            came = &mut message => Came::Messages(came),
            came = &mut result => Came::Results(came),
            () = tokio::time::sleep(wait) => Came::Nothing,
        };
        let messages = match came {
            Came::Messages(came) => Some(came.map_err(dropped)??),
            Came::Results(came) => {
                let (results, messages) = (came.map_err(dropped)??, late(message)?);
                return Ok(Collected { messages, results: Some(results) });
            }
            Came::Nothing => late(message)?,
        };
        let results = match late(result)? {
            Some(results) => results,
            None => answer(self.results(false)?).await?,
        };
        Ok(Collected { messages, results: Some(results) })
    }

    fn messages(&self, wait: bool) -> Result<Answer<Message>, ToolError> {
        let (reply, answer) = oneshot::channel();
        let ask = Ask { limit: self.limit, answer_bytes: MESSAGES_BYTES, wait, reply };
        self.mailbox.send(mailbox::Msg::Ask(ask))?;
        Ok(answer)
    }

    fn results(&self, wait: bool) -> Result<Answer<Arc<Kept>>, ToolError> {
        let (reply, answer) = oneshot::channel();
        let ask = Ask { limit: self.limit, answer_bytes: RESULTS_BYTES, wait, reply };
        self.desk.send(desk::Msg::Ask(ask))?;
        Ok(answer)
    }
}

enum Came {
    Messages(Result<Result<Loan<Message>, ToolError>, oneshot::error::RecvError>),
    Results(Result<Result<Loan<Arc<Kept>>, ToolError>, oneshot::error::RecvError>),
    Nothing,
}

async fn answer<T>(answer: Answer<T>) -> Result<Loan<T>, ToolError> {
    answer.await.map_err(dropped)?
}

/// What was handed out before one stopped waiting.
fn late<T>(mut answer: Answer<T>) -> Result<Option<Loan<T>>, ToolError> {
    answer.close();
    answer.try_recv().ok().transpose()
}

fn dropped(_: oneshot::error::RecvError) -> ToolError {
    AskError::Dropped("the inbox".to_owned()).into()
}
