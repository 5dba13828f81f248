//! Names of nodes: those of the steps, their ids, or others that are free.

use std::collections::{HashMap, HashSet};

use super::StepEntry;
use crate::plan::NodeIndex;

/// Name of each step, unique among all.
pub(super) fn of(entries: &[StepEntry]) -> Vec<String> {
    let given =
        |entry: &StepEntry| entry.key.clone().or_else(|| entry.step.name().map(str::to_owned));
    let mut taken: HashSet<String> = entries.iter().filter_map(given).collect();
    taken.extend(entries.iter().filter_map(|entry| entry.step.id().map(str::to_owned)));
    let mut names = Vec::with_capacity(entries.len());
    for (at, entry) in entries.iter().enumerate() {
        let name = given(entry).unwrap_or_else(|| {
            let mut name = format!("step_{}", at + 1);
            while taken.contains(&name) {
                name.push('_');
            }
            name
        });
        taken.insert(name.clone());
        names.push(name);
    }
    names
}

/// Places of steps by name and by id.
pub(super) fn index(names: &[String], entries: &[StepEntry]) -> HashMap<String, NodeIndex> {
    let places = || (0u16..).map(NodeIndex);
    let ids = entries.iter().zip(places()).filter_map(|(entry, at)| Some((entry.step.id()?, at)));
    let by_name = names.iter().map(String::as_str).zip(places());
    ids.chain(by_name).map(|(name, at)| (name.to_owned(), at)).collect()
}

/// This name, or one like it that no step has.
pub(super) fn free(name: &str, names: &[String]) -> String {
    let mut name = name.to_owned();
    while names.contains(&name) {
        name.push('_');
    }
    name
}
