//! Pictures and events of a team, from the daemon.
//!
//! Events are followed on one connection. Members are looked at on another one: their tasks whenever
//! one moved, their machines whenever something happened to them, and now and then, because a link
//! can be lost without an event.

use std::{
    collections::HashSet,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use hivekeep_store::JournalEvent;
use hivekeep_team::Picture;
use serde_json::Value;

use super::board::Board;
use crate::{
    cli::{CommandFailure, client::Client, reach::DaemonReach},
    control::{ControlMethod, TeamSnapshot},
};

/// Events of the daemon before the picture that are read for what happened lately.
const BEFORE: u64 = 2_000;
/// Pause between two looks when nothing happens. Each look is a call for each member.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Pause after each look, so that a hundred tasks that end at once are not a hundred looks.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// Bound of requests for a look that wait; more are as good as these.
const LOOKS_WAITING: usize = 16;
/// Pause before a daemon that went away is tried again, and between two snapshots with recent
/// events: a daemon that answers and sends no events would be asked without a pause.
const PAUSE: Duration = Duration::from_secs(1);

/// Messages of the feed.
#[derive(Debug)]
pub(super) enum FeedMessage {
    /// Everything anew.
    Begin(Box<TeamSnapshot>),
    /// The members once more.
    Look(Box<Picture>),
    /// An event of the team or of a member's workspace.
    Event(Box<JournalEvent>),
    /// Nothing is heard, and why.
    Away(String),
}

impl Board {
    /// Takes in what the feed tells.
    pub(super) fn take(&mut self, message: FeedMessage) {
        match message {
            FeedMessage::Begin(now) => self.begin(*now),
            FeedMessage::Look(picture) => self.look(*picture),
            FeedMessage::Event(event) => self.fold(&event),
            // The end of a team is no trouble of the daemon's.
            FeedMessage::Away(why) if !self.over() => self.away = Some(why),
            FeedMessage::Away(_) => {}
        }
    }
}

/// The team as it is now, with what happened lately.
///
/// # Errors
/// When no daemon runs, or it has no such team.
pub(super) fn once(reach: &DaemonReach, name: &str) -> Result<Board, CommandFailure> {
    let mut client = Client::connect(reach)?;
    let now = ask(&mut client, name, true)?;
    let subjects = subjects(&now.picture);
    let from = now.seq.saturating_sub(BEFORE).max(1);
    let mut board = Board::default();
    board.begin(now);
    client.ask(ControlMethod::Events { from: Some(from), follow: false }, |item| {
        if let Item::Event(event) = read(item)?
            && subjects.contains(&event.subject)
        {
            board.fold(&event);
        }
        Ok(())
    })?;
    Ok(board)
}

/// Tells `messages` until nobody listens or the team is no more. Goes on over restarts of the daemon.
/// The first picture is there when this returns.
///
/// # Errors
/// As [`once`].
pub(super) fn follow<T: From<FeedMessage> + Send + 'static>(
    reach: DaemonReach,
    name: String,
    messages: SyncSender<T>,
) -> Result<(), CommandFailure> {
    let mut client = Client::connect(&reach)?;
    let mut now = ask(&mut client, &name, true)?;
    let (wake, woken) = sync_channel(LOOKS_WAITING);
    thread::spawn({
        let (reach, name, messages) = (reach.clone(), name.clone(), messages.clone());
        move || look_again(&reach, &name, &messages, &woken)
    });
    thread::spawn(move || {
        loop {
            let begun = Instant::now();
            let ended = match tell(&mut client, now, &messages, &wake) {
                Ok(FeedEnd::Stale) => None,
                Ok(FeedEnd::Over) => return,
                Err(failure) => Some(failure),
            };
            if let Some(failure) = ended
                && messages.send(FeedMessage::Away(failure.to_string()).into()).is_err()
            {
                return;
            }
            thread::sleep(PAUSE.saturating_sub(begun.elapsed()));
            (client, now) = loop {
                let again = Client::connect(&reach).map_err(CommandFailure::from);
                match again.and_then(|mut client| Ok((ask(&mut client, &name, true)?, client))) {
                    Ok((now, client)) => break (client, now),
                    Err(failure) => {
                        if messages.send(FeedMessage::Away(failure.to_string()).into()).is_err() {
                            return;
                        }
                        thread::sleep(PAUSE);
                    }
                }
            };
        }
    });
    Ok(())
}

/// The reason why events no longer arrive.
enum FeedEnd {
    /// The picture they go on from is not good enough any more.
    Stale,
    /// Nobody listens, or nothing more will happen.
    Over,
}

fn tell<T: From<FeedMessage>>(
    client: &mut Client,
    now: TeamSnapshot,
    messages: &SyncSender<T>,
    wake: &SyncSender<bool>,
) -> Result<FeedEnd, CommandFailure> {
    let (seq, subjects) = (now.seq, subjects(&now.picture));
    let from = seq.saturating_sub(BEFORE).max(1);
    if messages.send(FeedMessage::Begin(Box::new(now)).into()).is_err() {
        return Ok(FeedEnd::Over);
    }
    let mut told = None;
    let outcome = client.ask(ControlMethod::Events { from: Some(from), follow: true }, |item| {
        let event = match read(item)? {
            Item::Missed { last } if last <= seq => return Ok(()),
            Item::Missed { .. } => return Err(stop(&mut told, FeedEnd::Stale)),
            Item::Event(event) if !subjects.contains(&event.subject) => return Ok(()),
            Item::Event(event) => event,
        };
        let kind = event.kind.clone();
        let fresh = event.seq.get() > seq;
        if messages.send(FeedMessage::Event(event).into()).is_err() {
            return Err(stop(&mut told, FeedEnd::Over));
        }
        match kind.as_str() {
            _ if !fresh => {}
            // Now it has workspaces, whose events count.
            "team.created" => return Err(stop(&mut told, FeedEnd::Stale)),
            "team.destroyed" | "team.undone" => return Err(stop(&mut told, FeedEnd::Over)),
            kind if kind.starts_with("message.") => {}
            kind => {
                let _full = wake.try_send(!kind.starts_with("task."));
            }
        }
        Ok(())
    });
    match (told, outcome) {
        (Some(told), _) => Ok(told),
        (None, Err(failure)) => Err(failure),
        (None, Ok(_)) => Err(CommandFailure::Other("the daemon tells no more events".to_owned())),
    }
}

/// Ends the reading of events from inside of it.
fn stop(told: &mut Option<FeedEnd>, why: FeedEnd) -> CommandFailure {
    *told = Some(why);
    CommandFailure::Reported
}

fn look_again<T: From<FeedMessage>>(
    reach: &DaemonReach,
    name: &str,
    messages: &SyncSender<T>,
    woken: &Receiver<bool>,
) {
    use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
    let mut client = None;
    loop {
        let machines = match woken.recv_timeout(LOOK_EVERY) {
            Ok(machines) => woken.try_iter().fold(machines, |any, one| any || one),
            Err(Timeout) => true,
            Err(Disconnected) => return,
        };
        if client.is_none() {
            client = Client::connect(reach).ok();
        }
        // The follower of the events reports that the daemon is away.
        let Some(Ok(now)) = client.as_mut().map(|client| ask(client, name, machines)) else {
            client = None;
            continue;
        };
        if messages.send(FeedMessage::Look(Box::new(now.picture)).into()).is_err() {
            return;
        }
        thread::sleep(LOOK_PAUSE);
    }
}

fn ask(client: &mut Client, name: &str, machines: bool) -> Result<TeamSnapshot, CommandFailure> {
    client.get_as(ControlMethod::Team { name: name.to_owned(), machines })
}

fn subjects(picture: &Picture) -> HashSet<String> {
    let workspaces = picture.members.iter().filter_map(|one| one.member.workspace_id);
    let workspaces = workspaces.map(|id| id.to_string());
    workspaces.chain([picture.team_id.to_string()]).collect()
}

/// An item of the answer to a request for events.
enum Item {
    Event(Box<JournalEvent>),
    Missed { last: u64 },
}

fn read(item: Value) -> Result<Item, CommandFailure> {
    if let Some(missed) = item.get("missed") {
        return Ok(Item::Missed { last: missed["last"].as_u64().unwrap_or(u64::MAX) });
    }
    let event = serde_json::from_value(item);
    let event = event
        .map_err(|error| CommandFailure::Other(format!("an event cannot be read: {error}")))?;
    Ok(Item::Event(Box::new(event)))
}

#[cfg(test)]
mod tests;
