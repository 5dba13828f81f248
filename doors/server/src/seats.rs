//! A bounded pool of places with eviction of the idlest: when none is free, the newcomer takes the
//! place of whoever has been idle longest. Only when all are busy is there no place.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use hivekeep_kernel::lock;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

/// The places. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ConnectionSlots {
    capacity: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    /// Counts what happens, so that it can be put in order.
    clock: u64,
    by_number: BTreeMap<u64, Sitting>,
}

#[derive(Debug)]
struct Sitting {
    idle_since: Option<u64>,
    evicted: CancellationToken,
}

/// A place, until it is dropped or lost to a newcomer.
#[derive(Debug)]
pub struct ConnectionSlot {
    seats: ConnectionSlots,
    number: u64,
    evicted: CancellationToken,
}

impl ConnectionSlots {
    /// So many places.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, taken: Arc::default() }
    }

    /// An idle newcomer's place. None when all are busy.
    pub fn take(&self) -> Option<ConnectionSlot> {
        let mut taken = self.lock();
        if taken.by_number.len() >= self.capacity {
            let idle = taken
                .by_number
                .iter()
                .filter_map(|(number, sitting)| sitting.idle_since.map(|since| (since, *number)));
            let (_, idlest) = idle.min()?;
            taken.by_number.remove(&idlest)?.evicted.cancel();
        }
        let number = taken.tick();
        let evicted = CancellationToken::new();
        let sitting = Sitting { idle_since: Some(number), evicted: evicted.clone() };
        taken.by_number.insert(number, sitting);
        Some(ConnectionSlot { seats: self.clone(), number, evicted })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Nothing between lock and unlock panics; were it so, the map still holds.
        lock(&self.taken)
    }
}

impl Taken {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

impl ConnectionSlot {
    /// Says whether its holder works on something: then it cannot be lost.
    pub fn set_busy(&self, busy: bool) {
        let mut taken = self.seats.lock();
        let now = taken.tick();
        if let Some(sitting) = taken.by_number.get_mut(&self.number)
            && sitting.idle_since.is_none() != busy
        {
            sitting.idle_since = (!busy).then_some(now);
        }
    }

    /// Waits until it is lost.
    pub fn lost(&self) -> WaitForCancellationFuture<'_> {
        self.evicted.cancelled()
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.seats.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_idlest_makes_room_and_the_busy_stay() {
        let seats = ConnectionSlots::new(3);
        let [a, b, c] = [(); 3].map(|()| seats.take().expect("a place"));
        a.set_busy(true);
        b.set_busy(true);
        b.set_busy(false);
        let d = seats.take().expect("a place");
        assert!(c.evicted.is_cancelled(), "it did nothing for longest");
        let e = seats.take().expect("a place");
        assert!(b.evicted.is_cancelled());
        assert!(![&a, &d, &e].iter().any(|seat| seat.evicted.is_cancelled()));
        for seat in [&d, &e] {
            seat.set_busy(true);
        }
        assert!(seats.take().is_none(), "all are busy");
        drop(d);
        assert!(seats.take().is_some());
        // The places of those who were evicted are not given back a second time.
        drop((b, c));
        let _again = seats.take().expect("a place");
        assert_eq!(seats.lock().by_number.len(), 3);
    }
}
