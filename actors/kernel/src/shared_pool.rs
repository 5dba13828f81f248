//! A pool of places that several holders share, of which none takes more than half of what the others leave:
//! what one fills, costs nobody else, and what two fill leaves places to a third.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex},
};

use crate::{Layer, ToolError, User, codes, lock};

/// The pool. Cheap to clone.
///
/// Its holders are users, or what strangers ask for where nobody is known.
#[derive(Debug)]
pub struct SharedPool<K: Eq + Hash + Clone = User>(Arc<Pool<K>>);

impl<K: Eq + Hash + Clone> Clone for SharedPool<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

#[derive(Debug)]
struct Pool<K> {
    /// Option that bounds the pool.
    option: &'static str,
    most: usize,
    held: Mutex<Held<K>>,
}

#[derive(Debug)]
struct Held<K> {
    all: usize,
    by: HashMap<K, usize>,
}

/// A place in a pool, until it is dropped.
#[derive(Debug)]
pub struct PoolPlace<K: Eq + Hash + Clone = User> {
    pool: SharedPool<K>,
    holder: K,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PoolFull {
    /// The holder has half of what the others leave.
    #[error("you hold your {most} places of `{option}`: half of what others leave of it")]
    Own {
        /// Option that bounds the pool.
        option: &'static str,
        /// Places of this holder.
        most: usize,
    },
    /// All together have the whole of it.
    #[error("all {most} places of `{option}` are taken")]
    All {
        /// Option that bounds the pool.
        option: &'static str,
        /// Places of the pool.
        most: usize,
    },
}

impl<K: Eq + Hash + Clone> SharedPool<K> {
    /// Makes a pool of so many places, bounded by the option of this name.
    pub fn new(option: &'static str, most: usize) -> Self {
        let held = Mutex::new(Held { all: 0, by: HashMap::new() });
        Self(Arc::new(Pool { option, most, held }))
    }

    /// Takes a place for a holder, at once or not at all.
    ///
    /// # Errors
    /// With half of what the others leave held, or nothing free.
    pub fn take(&self, holder: K) -> Result<PoolPlace<K>, PoolFull> {
        let Pool { option, most, .. } = *self.0;
        let mut held = lock(&self.0.held);
        let own = held.by.get(&holder).copied().unwrap_or_default();
        PoolFull::check(option, most, own, held.all)?;
        held.all += 1;
        *held.by.entry(holder.clone()).or_default() += 1;
        drop(held);
        Ok(PoolPlace { pool: self.clone(), holder })
    }

    /// Places that are taken, of all holders.
    pub fn taken(&self) -> usize {
        lock(&self.0.held).all
    }

    /// Places that one holder has.
    pub fn taken_by(&self, holder: &K) -> usize {
        lock(&self.0.held).by.get(holder).copied().unwrap_or_default()
    }
}

impl<K: Eq + Hash + Clone> Drop for PoolPlace<K> {
    fn drop(&mut self) {
        let mut held = lock(&self.pool.0.held);
        held.all -= 1;
        if let Some(own) = held.by.get_mut(&self.holder) {
            *own -= 1;
            if *own == 0 {
                held.by.remove(&self.holder);
            }
        }
    }
}

impl PoolFull {
    /// Judges one place more for a holder of `own` of the `all` that are taken, where places are counted by
    /// what is kept and not by [`PoolPlace`]s.
    ///
    /// # Errors
    /// As [`SharedPool::take`].
    pub fn check(option: &'static str, most: usize, own: usize, all: usize) -> Result<(), Self> {
        let others = all.saturating_sub(own);
        let half = most.saturating_sub(others).div_ceil(2);
        match () {
            () if own > 0 && own >= half => Err(Self::Own { option, most: half }),
            () if all >= most => Err(Self::All { option, most }),
            () => Ok(()),
        }
    }
}

impl From<PoolFull> for ToolError {
    fn from(full: PoolFull) -> Self {
        let (PoolFull::Own { option, most } | PoolFull::All { option, most }) = full;
        let next = match full {
            PoolFull::Own { .. } => "end something that holds a place, then try again",
            PoolFull::All { .. } => "try again later, or have the operator raise that option",
        };
        Self::new(Layer::Admission, codes::BUSY, full.to_string())
            .next(next)
            .detail("share", option)
            .detail("most", most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_takes_half_of_what_others_leave() {
        let pool = SharedPool::new("doors.most", 4);
        let mut held: Vec<_> = (0..2).map(|_| pool.take(User::Uid(1)).expect("a place")).collect();
        let own = pool.take(User::Uid(1)).expect_err("it has its half");
        assert_eq!(own, PoolFull::Own { option: "doors.most", most: 2 });
        let told = ToolError::from(own);
        assert!(told.is(codes::BUSY) && told.message.contains("doors.most"), "{told}");
        held.extend((2..4).map(|it| pool.take(User::Uid(it)).expect("a place")));
        let all = pool.take(User::Uid(5)).expect_err("it is full");
        assert_eq!(all, PoolFull::All { option: "doors.most", most: 4 });
        let told = ToolError::from(all);
        assert_eq!((pool.taken(), &told.details["most"]), (4, &4.into()));
        assert!(told.next_step.is_some_and(|next| next.contains("raise")), "it is the operator's");
        held.truncate(1);
        assert_eq!(pool.taken(), 1);
        assert!(pool.take(User::Uid(1)).is_ok(), "what was dropped is free again");
        drop(held);
        assert!(
            lock(&pool.0.held).by.is_empty() && lock(&pool.0.held).all == 0,
            "nobody is remembered"
        );
    }

    #[test]
    fn two_holders_who_take_all_they_get_leave_places_to_others() {
        let pool = SharedPool::new("doors.most", 64);
        let fill =
            |user| (0..64).map_while(|_| pool.take(User::Uid(user)).ok()).collect::<Vec<_>>();
        let held: Vec<_> = (1..=6).map(fill).collect();
        assert_eq!(held.iter().map(Vec::len).collect::<Vec<_>>(), [32, 16, 8, 4, 2, 1]);
        drop(held);
        assert_eq!(fill(7).len(), 32, "what was given back is anybody's");
    }

    #[test]
    fn a_pool_of_one_is_anybodys_and_one_of_none_nobodys() {
        assert!(SharedPool::new("o", 1).take(()).is_ok());
        assert!(SharedPool::new("o", 0).take(()).is_err());
    }
}
