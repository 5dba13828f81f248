//! Registry of the processes that started `hivekeep mcp`: by it a hook, which the same client
//! starts, finds the client's session.

use std::sync::{Mutex, MutexGuard};

use hivekeep_kernel::{SessionId, lock};

/// Most ancestors of a process that are looked at.
const MOST_ANCESTORS: usize = 8;

/// Sessions that are attached over stdio, each with the parent of the process that serves it.
#[derive(Debug, Default)]
pub struct ClientParents(Mutex<Vec<(SessionId, i32)>>);

impl ClientParents {
    /// Notes the parent of a process that a session is attached by, until the guard is dropped.
    pub fn attached(&self, session: SessionId, process: Option<i32>) -> ParentGuard<'_> {
        let entry = process.and_then(parent).map(|parent| (session, parent));
        self.all().extend(entry);
        ParentGuard { all: self, entry }
    }

    /// Sessions of the nearest of these processes, the nearest first, that has any.
    pub fn sessions(&self, processes: &[i32]) -> Vec<SessionId> {
        let all = self.all();
        let of = |process: &i32| {
            let those = all.iter().filter(|(_, parent)| parent == process);
            those.map(|(session, _)| *session).collect::<Vec<_>>()
        };
        processes.iter().take(MOST_ANCESTORS).map(of).find(|it| !it.is_empty()).unwrap_or_default()
    }

    fn all(&self) -> MutexGuard<'_, Vec<(SessionId, i32)>> {
        // Nothing between lock and unlock panics; were it so, the list still holds.
        lock(&self.0)
    }
}

/// See [`ClientParents::attached`].
pub struct ParentGuard<'p> {
    all: &'p ClientParents,
    entry: Option<(SessionId, i32)>,
}

impl Drop for ParentGuard<'_> {
    fn drop(&mut self) {
        let mut all = self.all.all();
        if let Some(at) = self.entry.and_then(|entry| all.iter().position(|it| *it == entry)) {
            all.swap_remove(at);
        }
    }
}

/// Ancestors of this process, the nearest first.
pub fn ancestors() -> Vec<i32> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    std::iter::successors(parent(me), |process| parent(*process)).take(MOST_ANCESTORS).collect()
}

/// Parent of a process; none of one that is gone, or that began it all.
fn parent(process: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok().filter(|parent| *parent > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_ancestor_that_has_a_session_counts_while_it_is_attached() {
        let (all, outer, inner) = (ClientParents::default(), SessionId::new(), SessionId::new());
        let me = rustix::process::getpid().as_raw_nonzero().get();
        let above = ancestors();
        let _outer = all.attached(outer, above.first().copied());
        let guard = all.attached(inner, Some(me));
        let _nobody = all.attached(SessionId::new(), None);
        assert_eq!(all.sessions(&above), [inner]);
        drop(guard);
        let expected = if above.len() > 1 { vec![outer] } else { vec![] };
        assert_eq!(all.sessions(&above), expected);
        assert_eq!(all.sessions(&[]), []);
    }
}
