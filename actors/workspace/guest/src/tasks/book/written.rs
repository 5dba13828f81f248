//! The queue's changes and the log: none holds before it is written.

use std::collections::{HashMap, HashSet};
use std::io;

use hivekeep_protocol::{GuestError, TaskPut};
use serde::{Deserialize, Serialize};

use super::{Book, disk, run_of};
use crate::tasks::log::{Flush, Log};
use crate::tasks::queue::{Phase, Queue, Task};

/// One record of the log; the last of a task holds.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    task: Task,
    /// What it asks for, once.
    asked: Option<TaskPut>,
}

impl Book {
    pub(super) fn read_back(&mut self) -> io::Result<()> {
        let (mut queue, mut asked_at) = (Queue::default(), HashMap::new());
        let log = self.folder.load(|at, record| {
            let Entry { task, asked } = serde_json::from_slice(record)?;
            if asked.is_some() {
                asked_at.insert(task.seq, at);
            }
            queue.settle(task);
            Ok(())
        })?;
        asked_at.retain(|seq, _| queue.is_open(*seq));
        let runs: HashSet<_> = queue.all().filter_map(run_of).collect();
        let swept = self.folder.sweep(|number| runs.contains(&number))?;
        self.last_run = runs.into_iter().chain(swept).max().unwrap_or(0);
        (self.queue, self.asked_at, self.log) = (queue, asked_at, Some(log));
        Ok(())
    }

    /// Writes tasks down, and then they are so.
    pub(super) fn commit(
        &mut self,
        tasks: Vec<(Task, Option<TaskPut>)>,
        flush: Flush,
    ) -> Result<(), GuestError> {
        let mut put = Vec::new();
        let entries = tasks.into_iter().map(|(task, asked)| {
            put.push((task.clone(), asked.is_some()));
            Ok(serde_json::to_vec(&Entry { task, asked })?)
        });
        let written = entries
            .collect::<io::Result<Vec<_>>>()
            .and_then(|records| self.log()?.append(&records, flush));
        let places = written.map_err(|error| disk(&error))?;
        for ((task, asks), at) in put.into_iter().zip(places) {
            match (&task.phase, asks) {
                (Phase::Open, true) => drop(self.asked_at.insert(task.seq, at)),
                (Phase::Open, false) => {}
                _ => drop(self.asked_at.remove(&task.seq)),
            }
            self.queue.settle(task);
        }
        Ok(())
    }

    /// The log, made if it is not there, and anew where it has to be or had better be.
    fn log(&mut self) -> io::Result<&mut Log> {
        match &self.log {
            None => self.log = Some(self.folder.make(&self.owner)?),
            Some(log) if log.is_broken() => self.renew()?,
            Some(log) if log.is_long() => drop(self.renew()),
            Some(_) => {}
        }
        let log = self.log.as_mut().expect("it is there");
        if log.is_long() {
            log.go_on();
        }
        Ok(log)
    }

    /// Writes a log of what still counts in the place of the one there is.
    fn renew(&mut self) -> io::Result<()> {
        let Some(old) = &self.log else { return Ok(()) };
        let tasks: Vec<_> = self.queue.all().cloned().collect();
        let records = tasks.iter().map(|task| match self.asked_at.get(&task.seq) {
            Some(at) => {
                let Entry { asked, .. } = serde_json::from_slice(&old.record(*at)?)?;
                Ok(serde_json::to_vec(&Entry { task: task.clone(), asked })?)
            }
            None => Ok(serde_json::to_vec(&Entry { task: task.clone(), asked: None })?),
        });
        let (log, places) = Log::create(&self.folder.log(), records)?;
        let places = tasks.iter().map(|task| task.seq).zip(places);
        self.asked_at = places.filter(|(seq, _)| self.asked_at.contains_key(seq)).collect();
        self.log = Some(log);
        Ok(())
    }

    /// What an open task asks for.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn asked(&self, seq: u64) -> io::Result<TaskPut> {
        let at = self.asked_at.get(&seq).zip(self.log.as_ref());
        let (at, log) = at.ok_or(io::ErrorKind::NotFound)?;
        let entry: Entry = serde_json::from_slice(&log.record(*at)?)?;
        entry.asked.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
