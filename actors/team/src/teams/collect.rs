//! What a member's inbox and desk have for whoever receives in its name.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use hivekeep_kernel::{Address, AskError, MessageId, ToolError};
use tokio::sync::oneshot::{self, Receiver};

use crate::{
    desk::{self, ledger::Kept},
    lending::{Ask, Loan},
    mailbox::{self, book::Message},
    team::Card,
    tools::team::Unavailable,
};

/// What the messages of one answer may take, in bytes of JSON; the tool's budget is 4 MiB, and
/// doors send a result twice.
const MESSAGES_BYTES: usize = 2 * 1024 * 1024;
/// The same for results of tasks.
const RESULTS_BYTES: usize = 1024 * 1024;

/// For a write of an inbox. Above the journal's own deadline, which decides.
const PATIENCE: Duration = Duration::from_secs(35);

type Answer<T> = Receiver<Result<Loan<T>, ToolError>>;

/// What was handed out; nothing of a place that is given up.
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

/// Both of a member's places, as far as they are not given up.
#[derive(Clone)]
pub(super) struct Places {
    mailbox: Option<Address<mailbox::Msg>>,
    desk: Option<Address<desk::Msg>>,
    /// What is given up.
    pub(super) lost: Option<Unavailable>,
}

impl Places {
    /// # Errors
    /// When both are given up.
    pub(super) fn of(card: &Card, number: usize) -> Result<Self, ToolError> {
        let (mailbox, desk) = (&card.mailboxes[number], &card.desks[number]);
        let why = |path: &str| format!("{path} has given up; `hivekeep ps` shows why");
        let lost = match (mailbox.probe().gave_up(), desk.probe().gave_up()) {
            (false, false) => None,
            (true, false) => Some(Unavailable {
                what: "messages".to_owned(),
                error: why(mailbox.probe().path()),
            }),
            (false, true) => Some(Unavailable {
                what: "daemon_results".to_owned(),
                error: why(desk.probe().path()),
            }),
            (true, true) => return Err(AskError::Dropped(mailbox.probe().path().to_owned()).into()),
        };
        let there = |what: &str| lost.as_ref().is_none_or(|lost| lost.what != what);
        let (mailbox, desk) = (
            there("messages").then(|| mailbox.clone()),
            there("daemon_results").then(|| desk.clone()),
        );
        Ok(Self { mailbox, desk, lost })
    }

    /// What was received earlier: an id is that of a message, or of one that assigned a task.
    pub(super) async fn confirm(&self, ids: BTreeSet<MessageId>) -> Result<usize, ToolError> {
        let results = ids.clone();
        let messages = async {
            match &self.mailbox {
                Some(mailbox) => {
                    mailbox.ask(PATIENCE, |reply| mailbox::Msg::Confirm(ids, reply)).await?
                }
                None => Ok(0),
            }
        };
        let results = async {
            match &self.desk {
                Some(desk) => {
                    desk.ask(PATIENCE, |reply| desk::Msg::Confirm(results, reply)).await?
                }
                None => Ok(0),
            }
        };
        let (messages, results) = futures::join!(messages, results);
        Ok(messages? + results?)
    }

    /// What there is now, at most so many of each kind, or comes first within the time.
    ///
    /// A loan of the inbox may wait for one of the desk, and never the other way round: two
    /// receivers would wait for each other.
    pub(super) async fn collect(
        &self,
        limit: usize,
        wait: Option<Duration>,
    ) -> Result<Collected, ToolError> {
        let messages = now(self.messages(limit, false)?).await?;
        let results = now(self.results(limit, false)?).await?;
        let nothing = messages.as_ref().is_none_or(|loan| loan.items.is_empty())
            && results.as_ref().is_none_or(|loan| loan.items.is_empty());
        let Some(wait) = wait.filter(|_| nothing) else {
            return Ok(Collected { messages, results });
        };
        drop((messages, results));
        let (mut message, mut result) = (self.messages(limit, true)?, self.results(limit, true)?);
        let came = tokio::select! {
            came = first(&mut message) => Came::Messages(came?),
            came = first(&mut result) => Came::Results(came?),
            () = tokio::time::sleep(wait) => Came::Nothing,
        };
        let messages = match came {
            Came::Messages(came) => Some(came),
            Came::Results(came) => {
                return Ok(Collected { messages: late(message)?, results: Some(came) });
            }
            Came::Nothing => late(message)?,
        };
        let results = match late(result)? {
            Some(results) => Some(results),
            None => now(self.results(limit, false)?).await?,
        };
        Ok(Collected { messages, results })
    }

    fn messages(&self, limit: usize, wait: bool) -> Result<Option<Answer<Message>>, ToolError> {
        let Some(mailbox) = &self.mailbox else { return Ok(None) };
        let (reply, answer) = oneshot::channel();
        let ask = Ask { limit, answer_bytes: MESSAGES_BYTES, wait, reply };
        mailbox.send(mailbox::Msg::Ask(ask))?;
        Ok(Some(answer))
    }

    fn results(&self, limit: usize, wait: bool) -> Result<Option<Answer<Arc<Kept>>>, ToolError> {
        let Some(desk) = &self.desk else { return Ok(None) };
        let (reply, answer) = oneshot::channel();
        let ask = Ask { limit, answer_bytes: RESULTS_BYTES, wait, reply };
        desk.send(desk::Msg::Ask(ask))?;
        Ok(Some(answer))
    }
}

enum Came {
    Messages(Loan<Message>),
    Results(Loan<Arc<Kept>>),
    Nothing,
}

async fn now<T>(answer: Option<Answer<T>>) -> Result<Option<Loan<T>>, ToolError> {
    match answer {
        Some(answer) => answer.await.map_err(dropped)?.map(Some),
        None => Ok(None),
    }
}

/// What comes; never, from a place that is given up.
async fn first<T>(answer: &mut Option<Answer<T>>) -> Result<Loan<T>, ToolError> {
    match answer {
        Some(answer) => answer.await.map_err(dropped)?,
        None => std::future::pending().await,
    }
}

/// What was handed out before one stopped waiting.
fn late<T>(answer: Option<Answer<T>>) -> Result<Option<Loan<T>>, ToolError> {
    let Some(mut answer) = answer else { return Ok(None) };
    answer.close();
    answer.try_recv().ok().transpose()
}

fn dropped(_: oneshot::error::RecvError) -> ToolError {
    AskError::Dropped("the inbox".to_owned()).into()
}
