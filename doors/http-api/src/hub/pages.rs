//! The channel `pages`: the dashboard's pages of a user, which are told where to go. Nothing is kept for a page that
//! is not there.

use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use hivekeep_kernel::{ToolError, User, lock};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{client::Follower, frame::ToldFrame};

/// Paths that wait for a page; beyond them it does not read.
const PATHS_AHEAD: usize = 8;

/// Pages that are open.
#[derive(Debug, Default)]
pub(super) struct OpenPages {
    next: AtomicU64,
    open: Mutex<HashMap<u64, (User, mpsc::Sender<String>)>>,
}

/// A page, until it is dropped.
struct OpenPage<'a> {
    pages: &'a OpenPages,
    number: u64,
    paths: mpsc::Receiver<String>,
}

impl OpenPages {
    fn open(&self, user: User) -> OpenPage<'_> {
        let (number, (told, paths)) = (self.next.fetch_add(1, Relaxed), mpsc::channel(PATHS_AHEAD));
        lock(&self.open).insert(number, (user, told));
        OpenPage { pages: self, number, paths }
    }

    /// Tells the user's pages to go to a path; the number of those that take it.
    pub(super) fn navigate(&self, user: User, path: &str) -> usize {
        let open = lock(&self.open);
        let own = open.values().filter(|(owner, _)| *owner == user);
        own.filter(|(_, page)| page.try_send(path.to_owned()).is_ok()).count()
    }
}

impl Drop for OpenPage<'_> {
    fn drop(&mut self) {
        lock(&self.pages.open).remove(&self.number);
    }
}

/// Tells a page where to go until its client leaves.
///
/// # Errors
/// `invalid_input` for a position: the channel has no past.
pub(super) async fn follow(this: &Follower) -> Result<(), ToolError> {
    if this.frame.from.is_some() {
        return Err(ToolError::invalid("`from` does not apply to `pages`, which keeps nothing")
            .next("subscribe without `from`"));
    }
    let mut page = this.seat.pages.open(this.caller.user);
    let _seat = this.seat.seat(&this.name);
    if !this.acknowledge(Value::Null).await {
        return Ok(());
    }
    while let Some(path) = page.paths.recv().await {
        if !this.tell(ToldFrame::of("navigate", &this.name, json!({ "path": path }))).await {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_open_pages_of_the_user_that_read_are_told() {
        let (pages, own, other) = (OpenPages::default(), User::Uid(1), User::Uid(2));
        assert_eq!(pages.navigate(own, "/none"), 0);
        let (mut first, second, foreign) = (pages.open(own), pages.open(own), pages.open(other));
        assert_eq!(pages.navigate(own, "/a"), 2);
        assert_eq!(first.paths.try_recv().as_deref(), Ok("/a"));
        drop(second);
        for told in 0..PATHS_AHEAD {
            assert_eq!(pages.navigate(own, &format!("/{told}")), 1);
        }
        assert_eq!(pages.navigate(own, "/full"), 0, "it does not read");
        assert_eq!(first.paths.try_recv().as_deref(), Ok("/0"));
        assert_eq!(foreign.paths.len(), 0);
        drop((first, foreign));
        assert!(lock(&pages.open).is_empty(), "nothing is left of pages that were closed");
    }
}
