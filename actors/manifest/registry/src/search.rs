//! Search for manifests by their words and names.

use std::collections::BTreeMap;

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_runtime::word_index::{WordIndex, document};

use crate::{ManifestEntry, ManifestLabels, ManifestScope, codes, entry::KeptManifest};

/// Name of the one tenant that a daemon is.
const TENANT: &str = "local";
/// How often each field is in a manifest's document: its name, its description and labels, its words.
const TIMES: [usize; 3] = [4, 2, 1];
/// Least score of a name that is the query, or has it in it.
const NAMED: [f32; 2] = [1.0, 0.5];

/// Refuses every tenant but this daemon's.
///
/// # Errors
/// `tenant_not_found`.
pub fn check_tenant(asked: Option<&str>) -> Result<(), ToolError> {
    match asked.filter(|asked| *asked != TENANT) {
        None => Ok(()),
        Some(other) => {
            let error =
                ToolError::not_found(Layer::Resolve, codes::TENANT_NOT_FOUND, "tenant", other);
            Err(error.next("leave `tenant_id` out: this daemon is one tenant, `local`"))
        }
    }
}

/// Search for manifests.
#[derive(Debug)]
pub struct ManifestQuery {
    /// Words, or a part of a name.
    pub words: String,
    /// Labels that they have to have.
    pub labels: ManifestLabels,
    /// Least score, from 0 to 1.
    pub min_score: f64,
    /// False to leave out the global scope.
    pub global: bool,
}

impl ManifestQuery {
    fn takes<M>(&self, score: f64, entry: &ManifestEntry<M>) -> bool {
        let labels = &entry.latest().labels;
        score >= self.min_score
            && self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && (self.global || entry.scope != ManifestScope::Global)
    }
}

/// Names that a query finds, each with a score from 0 to 1 in thousandths, the best first.
pub(crate) fn ranked<M, Id>(
    entries: Vec<(Id, ManifestEntry<M>)>,
    query: &ManifestQuery,
) -> Vec<(f64, Id, ManifestEntry<M>)> {
    let documents = entries.iter().map(|(_, entry)| {
        let KeptManifest { description, labels, words, .. } = &**entry.latest();
        let labels: String = labels.iter().map(|(key, value)| format!("{key} {value}\n")).collect();
        let about = format!("{}\n{labels}", description.as_deref().unwrap_or_default());
        document([entry.name.as_str(), &about, words].into_iter().zip(TIMES))
    });
    let index = WordIndex::new(documents.collect());
    let mut scores: BTreeMap<_, _> = index.relevance(&query.words).into_iter().collect();
    let wanted = query.words.trim().to_lowercase();
    for (at, (_, entry)) in entries.iter().enumerate() {
        if !wanted.is_empty() && entry.name.contains(&wanted) {
            let score = scores.entry(at).or_default();
            *score = score.max(NAMED[usize::from(entry.name != wanted)]);
        }
    }
    let scored = entries.into_iter().enumerate().filter_map(|(at, (id, entry))| {
        let score = (f64::from(*scores.get(&at)?) * 1_000.0).round() / 1_000.0;
        Some((score, id, entry))
    });
    let mut found: Vec<_> = scored.filter(|(score, _, entry)| query.takes(*score, entry)).collect();
    // Equals stay in the order of their names.
    found.sort_by(|one, other| other.0.total_cmp(&one.0));
    found
}
