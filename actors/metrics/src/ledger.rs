//! Ledger: the days with their segments, and which of them takes the next entry.
//!
//! Decisions are made under one short lock; what is decided is durable when the future that a decision
//! returns has completed. Segments that are closed and folded are kept as their heads alone, and read
//! from the journal when a window begins within them.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use chrono::{NaiveDate, TimeDelta};
use futures::future::BoxFuture;
use hivekeep_kernel::{Layer, ToolError, lock};
use hivekeep_runtime::log::{self, Decision, Log, LogError, Sourced};
use hivekeep_store::{Journal, StreamId};

use crate::{
    codes,
    segment::{MetricSegment, SegmentHead, SegmentId, SegmentRecord},
    tally::{DayAmount, DayBounds, DayTally, MetricEntry, OwnerTally, owner},
};

/// A decision on its way to the disk.
pub(crate) type Durable = BoxFuture<'static, Result<(), LogError>>;

/// All metrics that are kept, by day.
pub(crate) struct MetricsLedger {
    journal: Journal,
    bounds: DayBounds,
    days: Mutex<BTreeMap<NaiveDate, Day>>,
}

#[derive(Default)]
struct Day {
    /// Entries that were decided.
    has: DayAmount,
    slots: Vec<Slot>,
}

/// A segment: its log while something may be written to it, its head afterwards.
struct Slot {
    number: u32,
    log: Option<Log<MetricSegment>>,
    /// Head when the log was put away; without the tally, except in a day's last segment.
    head: SegmentHead,
}

impl Slot {
    fn view<R>(&self, look: impl FnOnce(&SegmentHead) -> R) -> R {
        match &self.log {
            None => look(&self.head),
            Some(log) => log.view(|segment| look(segment.map_or(&self.head, |it| &it.head))),
        }
    }
}

/// Segment for the next entry of a day.
enum Fit {
    Last(Log<MetricSegment>),
    /// Into a new segment, which begins with this tally.
    Next(DayTally),
    Wait,
}

/// A segment as a list of all shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentRow {
    pub(crate) id: SegmentId,
    pub(crate) entries: u32,
    pub(crate) bytes: u64,
    pub(crate) sent: u32,
    pub(crate) first_ms: Option<i64>,
    pub(crate) last_ms: Option<i64>,
    pub(crate) events_upto: u64,
}

pub(crate) fn stream(id: SegmentId) -> StreamId {
    log::stream::<MetricSegment>(id).expect("digits and dots are a name")
}

impl MetricsLedger {
    /// Reads what is kept from a day on, and removes what is older. Blocks; legal in a runtime.
    ///
    /// # Errors
    /// When a stream cannot be read.
    pub(crate) fn load(
        journal: Journal,
        bounds: DayBounds,
        oldest: NaiveDate,
    ) -> Result<(Self, Vec<SegmentId>), LogError> {
        let prefix = format!("{}/", MetricSegment::KIND);
        let all = log::stream::<MetricSegment>("all").expect("a name");
        let failed = |source| LogError::Journal { stream: all.clone(), source };
        let (mut days, mut expired) = (BTreeMap::<NaiveDate, Day>::new(), Vec::new());
        for stream in journal.streams(&prefix).map_err(failed)? {
            let unreadable = || LogError::Unreadable {
                stream: stream.clone(),
                what: "its name is not a segment's".to_owned(),
            };
            let id = SegmentId::parse(stream.id()).ok_or_else(unreadable)?;
            if id.date < oldest {
                expired.push(id);
                continue;
            }
            // A stream without a first record was never answered.
            let Some(loaded) = log::load::<MetricSegment>(&journal, &stream)? else { continue };
            let day = days.entry(id.date).or_default();
            let mut head = loaded.state.head.clone();
            day.has.add(DayAmount { entries: head.entries.into(), bytes: head.bytes });
            if let Some(before) = day.slots.last_mut() {
                before.head.tally = DayTally::default();
            }
            let done = head.closed && loaded.unfolded == 0;
            let log = (!done).then(|| Log::of(journal.clone(), stream, Some(loaded)));
            if log.is_some() {
                head = SegmentHead::default();
            }
            day.slots.push(Slot { number: id.number, log, head });
        }
        Ok((Self { journal, bounds, days: Mutex::new(days) }, expired))
    }

    /// Decides on an entry.
    ///
    /// # Errors
    /// `metrics_day_full`; `busy`, also for an owner that has half of the day; `journal_failed`.
    pub(crate) fn add(&self, entry: MetricEntry) -> Result<Durable, ToolError> {
        let date = entry.date();
        let mut days = lock(&self.days);
        let day = days.entry(date).or_default();
        day.take(self.bounds, &entry)?;
        day.decide(&self.journal, date, SegmentRecord::Added(Box::new(entry)))
    }

    /// Decides on events of the daemon of one day; what it has no room for is only numbered.
    ///
    /// # Errors
    /// `busy`, `journal_failed`.
    pub(crate) fn fold(
        &self,
        date: NaiveDate,
        mut entries: Vec<MetricEntry>,
        upto: u64,
    ) -> Result<Durable, ToolError> {
        let mut days = lock(&self.days);
        let day = days.entry(date).or_default();
        let room = entries.iter().take_while(|it| day.take(self.bounds, it).is_ok()).count();
        let uncounted = (entries.len() - room) as u64;
        entries.truncate(room);
        day.decide(&self.journal, date, SegmentRecord::Folded { entries, uncounted, upto })
    }

    /// Segments in their order.
    pub(crate) fn rows(&self) -> Vec<SegmentRow> {
        let days = lock(&self.days);
        let all = days.iter().flat_map(|(date, day)| day.slots.iter().map(move |it| (*date, it)));
        all.map(|(date, slot)| {
            let id = SegmentId { date, number: slot.number };
            slot.view(|head| {
                let SegmentHead { entries, bytes, sent, first_ms, last_ms, events_upto, .. } =
                    *head;
                SegmentRow { id, entries, bytes, sent, first_ms, last_ms, events_upto }
            })
        })
        .collect()
    }

    /// Tallies of the days from one on, the oldest first.
    pub(crate) fn tallies(&self, from: NaiveDate) -> Vec<(NaiveDate, DayTally)> {
        let days = lock(&self.days);
        let tally = |day: &Day| day.slots.last().map(|slot| slot.view(|head| head.tally.clone()));
        days.range(from..).filter_map(|(date, day)| Some((*date, tally(day)?))).collect()
    }

    /// A segment with its entries, from memory or the journal; `None` for one that was removed.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) async fn segment(&self, id: SegmentId) -> Result<Option<MetricSegment>, LogError> {
        let open = self.with_slot(id, |slot| slot.log.as_ref().map(Log::state));
        match open {
            None => Ok(None),
            Some(Some(state)) => Ok(state),
            Some(None) => {
                let loaded = log::read::<MetricSegment>(&self.journal, &stream(id)).await?;
                Ok(loaded.map(|loaded| loaded.state))
            }
        }
    }

    /// Notes that the first so many entries of a segment are in the other database.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) async fn sent(&self, id: SegmentId, upto: u32) -> Result<(), LogError> {
        let open = self.with_slot(id, |slot| slot.log.clone());
        let log = match open {
            None => return Ok(()),
            Some(Some(log)) => log,
            Some(None) => {
                let log = Log::open(self.journal.clone(), stream(id)).await?;
                self.with_slot(id, |slot| slot.log.get_or_insert(log).clone()).unwrap_or_else(
                    // Removed meanwhile: the record below is written to nothing that is read.
                    || Log::of(self.journal.clone(), stream(id), None),
                )
            }
        };
        log.decide::<LogError>(|segment| {
            Ok(match segment {
                Some(_) => Decision::record(SegmentRecord::Sent { upto }),
                None => Decision::nothing(),
            })
        })?
        .await
    }

    /// Closes segments of days before `today`, and those that another follows; puts away the logs of
    /// closed ones that are folded.
    ///
    /// # Errors
    /// When one cannot be written.
    pub(crate) async fn tidy(&self, today: NaiveDate) -> Result<(), LogError> {
        for (id, log, last) in self.logs() {
            let is_closed = log.view(|it| it.is_none_or(|it| it.head.closed));
            if !is_closed {
                if last && id.date >= today {
                    continue;
                }
                log.decide::<LogError>(|segment| {
                    Ok(match segment.is_some_and(|it| !it.head.closed) {
                        true => Decision::record(SegmentRecord::Closed),
                        false => Decision::nothing(),
                    })
                })?
                .await?;
            }
            log.idle().await;
            self.put_away(id);
        }
        Ok(())
    }

    /// Forgets the log of a closed segment with nothing on its way, and keeps its head.
    fn put_away(&self, id: SegmentId) {
        let mut days = lock(&self.days);
        let Some(day) = days.get_mut(&id.date) else { return };
        let last = day.slots.len().saturating_sub(1);
        for (at, slot) in day.slots.iter_mut().enumerate().filter(|(_, it)| it.number == id.number)
        {
            let Some(log) = &slot.log else { continue };
            let heads = log.views(|decided, durable| {
                let same = decided.map(|it| &it.head) == durable.map(|it| &it.head);
                durable.filter(|it| same && it.head.closed).map(|it| it.head.clone())
            });
            if let Some(mut head) = heads {
                if at != last {
                    head.tally = DayTally::default();
                }
                (slot.head, slot.log) = (head, None);
            }
        }
    }

    /// Takes out the days before one.
    pub(crate) fn take_expired(&self, oldest: NaiveDate) -> Vec<SegmentRow> {
        let gone: Vec<_> = self.rows().into_iter().filter(|row| row.id.date < oldest).collect();
        lock(&self.days).retain(|date, _| *date >= oldest);
        gone
    }

    /// Removes the records of segments that were taken out.
    ///
    /// # Errors
    /// When the journal does not.
    pub(crate) async fn forget(&self, ids: &[SegmentId]) -> Result<(), hivekeep_store::Error> {
        for id in ids {
            self.journal.forget(&stream(*id)).await?;
        }
        Ok(())
    }

    /// First day that is kept, today being this day.
    pub(crate) fn first_kept(today: NaiveDate, keep_days: u32) -> NaiveDate {
        today - TimeDelta::days(i64::from(keep_days) - 1)
    }

    fn logs(&self) -> Vec<(SegmentId, Log<MetricSegment>, bool)> {
        let days = lock(&self.days);
        let mut logs = Vec::new();
        for (date, day) in days.iter() {
            for (at, slot) in day.slots.iter().enumerate() {
                let id = SegmentId { date: *date, number: slot.number };
                logs.extend(slot.log.clone().map(|log| (id, log, at + 1 == day.slots.len())));
            }
        }
        logs
    }

    fn with_slot<R>(&self, id: SegmentId, change: impl FnOnce(&mut Slot) -> R) -> Option<R> {
        let mut days = lock(&self.days);
        let slot = days.get_mut(&id.date)?.slots.iter_mut().find(|it| it.number == id.number)?;
        Some(change(slot))
    }
}

impl Day {
    /// Takes room for an entry.
    ///
    /// # Errors
    /// As [`DayBounds::check`].
    fn take(&mut self, bounds: DayBounds, entry: &MetricEntry) -> Result<(), ToolError> {
        let more = DayAmount { entries: 1, bytes: entry.bytes() };
        bounds.check(entry.date(), self.has, self.of_owner(&owner(entry)), more)?;
        self.has.add(more);
        Ok(())
    }

    /// Amount that an owner has in the day.
    fn of_owner(&self, owner: &str) -> DayAmount {
        let of = |head: &SegmentHead| head.tally.0.get(owner).map(OwnerTally::amount);
        let of_last = self.slots.last().and_then(|slot| match &slot.log {
            Some(log) => log.views(|decided, _| decided.and_then(|it| of(&it.head))),
            None => of(&slot.head),
        });
        of_last.unwrap_or_default()
    }

    fn decide(
        &mut self,
        journal: &Journal,
        date: NaiveDate,
        record: SegmentRecord,
    ) -> Result<Durable, ToolError> {
        let log = match self.fit()? {
            Fit::Last(log) => log,
            Fit::Next(tally) => self.begin(journal, date, tally)?,
            Fit::Wait => {
                return Err(ToolError::new(Layer::Actor, codes::BUSY, "the journal is behind")
                    .retry_after(Duration::from_millis(100)));
            }
        };
        log.decide::<ToolError>(|_| Ok(Decision::record(record)))
    }

    /// Finds the place of the next entry. Closes a full segment, once all of it is durable.
    fn fit(&self) -> Result<Fit, LogError> {
        let Some(last) = self.slots.last() else { return Ok(Fit::Next(DayTally::default())) };
        let Some(log) = &last.log else { return Ok(Fit::Next(last.head.tally.clone())) };
        let fit = log.views(|decided, durable| {
            let (Some(decided), settled) = (decided, durable.map(|it| &it.head)) else {
                // The segment's first record could not be decided; the log says why.
                return Fit::Last(log.clone());
            };
            let head = &decided.head;
            match () {
                () if !head.closed && !head.is_full() => Fit::Last(log.clone()),
                () if settled == Some(head) => Fit::Next(head.tally.clone()),
                () if head.closed || head.takes_none() => Fit::Wait,
                () => Fit::Last(log.clone()),
            }
        });
        if matches!(fit, Fit::Next(_)) && !log.view(|it| it.is_none_or(|it| it.head.closed)) {
            log.decide_then::<LogError>(|_| Ok(Decision::record(SegmentRecord::Closed)), drop)?;
        }
        Ok(fit)
    }

    fn begin(
        &mut self,
        journal: &Journal,
        date: NaiveDate,
        tally: DayTally,
    ) -> Result<Log<MetricSegment>, LogError> {
        let number = self.slots.last().map_or(0, |slot| slot.number) + 1;
        let log = Log::of(journal.clone(), stream(SegmentId { date, number }), None);
        let opened = SegmentRecord::Opened { tally };
        log.decide_then::<LogError>(|_| Ok(Decision::record(opened)), drop)?;
        self.slots.push(Slot { number, log: Some(log.clone()), head: SegmentHead::default() });
        Ok(log)
    }
}
