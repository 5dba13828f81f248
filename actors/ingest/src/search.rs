//! Hybrid search: the best passages by their vectors and by their words, fused by weighted scores or ranks.
//!
//! Cosine similarities carry their own weight: a weak model makes all of them alike, and leaves the order to
//! the words. Ranks do not: the first of a poor list counts as much as the first of a good one.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    point::{PassagePayload, PointId, SparseVector},
    store::{FoundPoint, PointFilter, PointStore, SearchVector, StoreFailure},
};

/// Offset of ranks in [`Fusion::Ranks`]. The published method's 60 is for lists of a thousand; with lists of
/// fifty it makes the first and the last nearly equal.
const RANK_OFFSET: f32 = 10.0;
/// Passages of each list at least.
const LEAST_CANDIDATES: usize = 50;

/// How passages are found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum SearchMode {
    /// By vectors and words together.
    #[default]
    Hybrid,
    /// By the similarity of vectors.
    Vector,
    /// By words, with BM25.
    Bm25,
}

/// How two lists become one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Fusion {
    /// By the sum of weighted scores: cosine similarity, and BM25 as a part of the best one's.
    #[default]
    Scores,
    /// By the sum of weighted reciprocal ranks.
    Ranks,
}

/// Fusion, and the weight of vectors; words have the weight 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Weighing {
    pub(crate) fusion: Fusion,
    pub(crate) vector_weight: f32,
}

/// Query of a search, with its filter and bounds.
#[derive(Debug, Clone)]
pub(crate) struct SearchRequest<'w> {
    pub(crate) mode: SearchMode,
    /// Weights for [`SearchMode::Hybrid`].
    pub(crate) weighing: Weighing,
    /// Vector of the question; none for [`SearchMode::Bm25`].
    pub(crate) dense: Vec<f32>,
    pub(crate) terms: &'w SparseVector,
    pub(crate) filter: PointFilter,
    pub(crate) top_k: usize,
    /// Least cosine similarity, or BM25 score where only words are compared.
    pub(crate) min_score: Option<f32>,
}

/// Passage that was found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Hit {
    pub(crate) payload: PassagePayload,
    /// Score that hits are ordered by.
    pub(crate) score: f32,
    pub(crate) similarity: Option<f32>,
    pub(crate) bm25: Option<f32>,
}

/// Passages that are shown, and counts of the others.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Hits {
    pub(crate) shown: Vec<Hit>,
    /// Number of hits below the least score, and the best of their scores.
    pub(crate) below: usize,
    pub(crate) best_below: Option<f32>,
    /// Number of candidates after the last one that is shown.
    pub(crate) beyond: usize,
}

/// Searches a collection.
pub(crate) async fn search(
    store: &dyn PointStore,
    collection: &str,
    request: SearchRequest<'_>,
) -> Result<Hits, StoreFailure> {
    let limit = LEAST_CANDIDATES.max(4 * request.top_k);
    let ask = |vector, filter| store.search(collection, vector, filter, limit);
    let dense = || ask(SearchVector::Dense(request.dense.clone()), request.filter.clone());
    let sparse = async || match request.terms.indices.is_empty() {
        true => Ok(Vec::new()),
        false => ask(SearchVector::Sparse(request.terms.clone()), request.filter.clone()).await,
    };
    let (dense, sparse) = match request.mode {
        SearchMode::Vector => (dense().await?, Vec::new()),
        SearchMode::Bm25 => (Vec::new(), sparse().await?),
        SearchMode::Hybrid => tokio::try_join!(dense(), sparse())?,
    };
    let mut hits = joined(&dense, sparse);
    // Hits that only their words found get a similarity too.
    let unknown: Vec<_> =
        hits.iter().filter(|(_, hit)| hit.similarity.is_none()).map(|(id, _)| *id).collect();
    if request.mode == SearchMode::Hybrid && !unknown.is_empty() {
        let among = PointFilter { among: Some(unknown), ..PointFilter::default() };
        for found in ask(SearchVector::Dense(request.dense.clone()), among).await? {
            if let Some(hit) = hits.get_mut(&found.id) {
                hit.similarity = Some(found.score);
            }
        }
    }
    score(&mut hits, request.mode, request.weighing);
    Ok(chosen(hits, &request))
}

/// Joins two lists, without a score.
fn joined(dense: &[FoundPoint], sparse: Vec<FoundPoint>) -> BTreeMap<PointId, Hit> {
    let hit = |payload| Hit { payload, score: 0.0, similarity: None, bm25: None };
    let mut hits = BTreeMap::<PointId, Hit>::new();
    for FoundPoint { id, score, payload } in dense {
        hits.insert(*id, Hit { similarity: Some(*score), ..hit(payload.clone()) });
    }
    for FoundPoint { id, score, payload } in sparse {
        hits.entry(id).or_insert_with(|| hit(payload)).bm25 = Some(score);
    }
    hits
}

/// Scores passages by what is known of them.
fn score(hits: &mut BTreeMap<PointId, Hit>, mode: SearchMode, weighing: Weighing) {
    let all = |of: fn(&Hit) -> Option<f32>| {
        let mut scores: Vec<_> = hits.values().filter_map(of).collect();
        scores.sort_by(|one, other| other.total_cmp(one));
        scores
    };
    let (similarities, bm25) = (all(|hit| hit.similarity), all(|hit| hit.bm25));
    let share = |sorted: &[f32], score: Option<f32>| {
        let rank = |score| sorted.partition_point(|it| *it > score) as f32 + 1.0;
        score.map_or(0.0, |score| 1.0 / (RANK_OFFSET + rank(score)))
    };
    let best = bm25.first().copied().unwrap_or(1.0).max(f32::MIN_POSITIVE);
    for hit in hits.values_mut() {
        hit.score = match (mode, weighing.fusion) {
            (SearchMode::Vector, _) => hit.similarity.unwrap_or_default(),
            (SearchMode::Bm25, _) => hit.bm25.unwrap_or_default(),
            (SearchMode::Hybrid, Fusion::Scores) => {
                let words = hit.bm25.unwrap_or_default() / best;
                words + weighing.vector_weight * hit.similarity.unwrap_or_default()
            }
            (SearchMode::Hybrid, Fusion::Ranks) => {
                let words = share(&bm25, hit.bm25);
                words + weighing.vector_weight * share(&similarities, hit.similarity)
            }
        };
    }
}

fn chosen(hits: BTreeMap<PointId, Hit>, request: &SearchRequest<'_>) -> Hits {
    let judged = |hit: &Hit| match request.mode {
        SearchMode::Bm25 => hit.bm25,
        SearchMode::Hybrid | SearchMode::Vector => hit.similarity,
    };
    let passes =
        |hit: &Hit| request.min_score.is_none_or(|least| judged(hit).is_some_and(|it| it >= least));
    let (mut shown, left): (Vec<_>, Vec<_>) = hits.into_values().partition(passes);
    shown.sort_by(|one, other| other.score.total_cmp(&one.score));
    let beyond = shown.len().saturating_sub(request.top_k);
    shown.truncate(request.top_k);
    let best_below = left.iter().filter_map(judged).max_by(f32::total_cmp);
    Hits { shown, below: left.len(), best_below, beyond }
}

/// Block of passages for a prompt, empty without any. Their text cannot end the block.
pub(crate) fn context(hits: &[Hit]) -> String {
    if hits.is_empty() {
        return String::new();
    }
    let document = |Hit { payload, .. }: &Hit| {
        let [source, section, category, text] =
            [&payload.source, &payload.section, &payload.category, &payload.text]
                .map(|it| escaped(it));
        format!(
            "<document source=\"{source}\" section=\"{section}\" category=\"{category}\">\n{text}\n</document>\n"
        )
    };
    format!(
        "<retrieved_context>\n{}</retrieved_context>",
        hits.iter().map(document).collect::<String>()
    )
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&#34;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, score: f32) -> FoundPoint {
        let payload = PassagePayload {
            text: name.to_owned(),
            file: String::new(),
            source: name.to_owned(),
            section: String::new(),
            category: String::new(),
            chunk_index: 0,
            line: 1,
        };
        FoundPoint { id: PointId::of(name, name, 0), score, payload }
    }

    fn shown(hits: &Hits) -> Vec<&str> {
        hits.shown.iter().map(|hit| hit.payload.text.as_str()).collect()
    }

    fn request(
        terms: &SparseVector,
        mode: SearchMode,
        top_k: usize,
        min_score: Option<f32>,
    ) -> SearchRequest<'_> {
        let filter = PointFilter::default();
        SearchRequest {
            mode,
            weighing: by(Fusion::Scores, 1.0),
            dense: Vec::new(),
            terms,
            filter,
            top_k,
            min_score,
        }
    }

    fn by(fusion: Fusion, vector_weight: f32) -> Weighing {
        Weighing { fusion, vector_weight }
    }

    fn hits(mode: SearchMode, weighing: Weighing) -> BTreeMap<PointId, Hit> {
        let dense = [found("a", 0.9), found("b", 0.8), found("c", 0.1)];
        let mut hits = joined(&dense, vec![found("b", 8.0), found("d", 4.0)]);
        score(&mut hits, mode, weighing);
        hits
    }

    #[test]
    fn what_both_lists_have_comes_first_and_what_is_left_out_is_told() {
        let terms = SparseVector::default();
        let mode = SearchMode::Hybrid;
        let found = hits(mode, by(Fusion::Scores, 1.0));
        let all = chosen(found.clone(), &request(&terms, mode, 9, None));
        // 0.8 and 1; 0.9 alone; half of the best; 0.1 alone.
        assert_eq!(shown(&all), ["b", "a", "d", "c"]);
        let few = chosen(found, &request(&terms, mode, 1, Some(0.5)));
        assert_eq!(shown(&few), ["b"]);
        // c is below, d was not compared, a is behind b.
        assert_eq!((few.below, few.best_below, few.beyond), (2, Some(0.1), 1));
    }

    #[test]
    fn a_weight_moves_the_order_from_the_words_to_the_vectors() {
        let terms = SparseVector::default();
        let order = |fusion, weight| {
            let hits = hits(SearchMode::Hybrid, by(fusion, weight));
            let all = chosen(hits, &request(&terms, SearchMode::Hybrid, 9, None));
            all.shown.iter().map(|hit| hit.payload.text.clone()).collect::<String>()
        };
        for fusion in [Fusion::Scores, Fusion::Ranks] {
            assert!(order(fusion, 0.0).starts_with("bd"), "{fusion:?}");
            assert!(order(fusion, 0.1).starts_with("bda"), "{fusion:?}");
            assert!(order(fusion, 50.0).starts_with("abc"), "{fusion:?}");
        }
        let alone = hits(SearchMode::Vector, by(Fusion::Ranks, 0.1));
        assert!(alone.values().all(|hit| hit.score == hit.similarity.unwrap_or_default()));
    }

    #[test]
    fn a_passage_cannot_leave_its_block() {
        let terms = SparseVector::default();
        let hits = joined(&[found("</document>\" & 'x'", 1.0)], Vec::new());
        let hits = chosen(hits, &request(&terms, SearchMode::Vector, 1, None));
        let block = context(&hits.shown);
        assert_eq!(block.matches("</document>").count(), 1);
        assert!(block.contains("&lt;/document&gt;&#34; &amp; &#39;x&#39;"));
        assert_eq!(context(&[]), "");
    }
}
