//! Hybrid search: the best passages by their vectors and by their words, fused by reciprocal rank.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    point::{PassagePayload, PointId, SparseVector},
    store::{FoundPoint, PointFilter, PointStore, SearchVector, StoreFailure},
};

/// Weight of the first ranks: as it was published with the method.
const RANK_OFFSET: f32 = 60.0;
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

/// What is searched for.
#[derive(Debug, Clone)]
pub(crate) struct Wish<'w> {
    pub(crate) mode: SearchMode,
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
    /// What the order is by.
    pub(crate) score: f32,
    pub(crate) similarity: Option<f32>,
    pub(crate) bm25: Option<f32>,
}

/// Passages, and what was found beside them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Hits {
    pub(crate) shown: Vec<Hit>,
    /// Number of those below the least score, and the best of their scores.
    pub(crate) below: usize,
    pub(crate) best_below: Option<f32>,
    /// Number of candidates behind the last one that is shown.
    pub(crate) beyond: usize,
}

/// Searches a collection.
pub(crate) async fn search(
    store: &dyn PointStore,
    collection: &str,
    wish: Wish<'_>,
) -> Result<Hits, StoreFailure> {
    let limit = LEAST_CANDIDATES.max(4 * wish.top_k);
    let ask = |vector, filter| store.search(collection, vector, filter, limit);
    let dense = || ask(SearchVector::Dense(wish.dense.clone()), wish.filter.clone());
    let sparse = async || match wish.terms.indices.is_empty() {
        true => Ok(Vec::new()),
        false => ask(SearchVector::Sparse(wish.terms.clone()), wish.filter.clone()).await,
    };
    let (dense, sparse) = match wish.mode {
        SearchMode::Vector => (dense().await?, Vec::new()),
        SearchMode::Bm25 => (Vec::new(), sparse().await?),
        SearchMode::Hybrid => tokio::try_join!(dense(), sparse())?,
    };
    let mut hits = fused(&dense, sparse, wish.mode);
    // Those that only their words found have a similarity too.
    let unknown: Vec<_> =
        hits.iter().filter(|(_, hit)| hit.similarity.is_none()).map(|(id, _)| *id).collect();
    if wish.mode == SearchMode::Hybrid && !unknown.is_empty() {
        let among = PointFilter { among: Some(unknown), ..PointFilter::default() };
        for found in ask(SearchVector::Dense(wish.dense.clone()), among).await? {
            if let Some(hit) = hits.get_mut(&found.id) {
                hit.similarity = Some(found.score);
            }
        }
    }
    Ok(chosen(hits, &wish))
}

/// Joins two lists, best first: in each, a passage brings the reciprocal of its rank.
fn fused(
    dense: &[FoundPoint],
    sparse: Vec<FoundPoint>,
    mode: SearchMode,
) -> BTreeMap<PointId, Hit> {
    let mut hits = BTreeMap::<PointId, Hit>::new();
    let share = |rank: usize| 1.0 / (RANK_OFFSET + rank as f32 + 1.0);
    for (rank, found) in dense.iter().enumerate() {
        let score = if mode == SearchMode::Hybrid { share(rank) } else { found.score };
        let payload = found.payload.clone();
        hits.insert(found.id, Hit { payload, score, similarity: Some(found.score), bm25: None });
    }
    for (rank, FoundPoint { id, score, payload }) in sparse.into_iter().enumerate() {
        let share = if mode == SearchMode::Hybrid { share(rank) } else { score };
        let hit =
            hits.entry(id).or_insert(Hit { payload, score: 0.0, similarity: None, bm25: None });
        hit.bm25 = Some(score);
        hit.score += share;
    }
    hits
}

fn chosen(hits: BTreeMap<PointId, Hit>, wish: &Wish<'_>) -> Hits {
    let judged = |hit: &Hit| match wish.mode {
        SearchMode::Bm25 => hit.bm25,
        SearchMode::Hybrid | SearchMode::Vector => hit.similarity,
    };
    let passes =
        |hit: &Hit| wish.min_score.is_none_or(|least| judged(hit).is_some_and(|it| it >= least));
    let (mut shown, left): (Vec<_>, Vec<_>) = hits.into_values().partition(passes);
    shown.sort_by(|one, other| other.score.total_cmp(&one.score));
    let beyond = shown.len().saturating_sub(wish.top_k);
    shown.truncate(wish.top_k);
    let best_below = left.iter().filter_map(judged).max_by(f32::total_cmp);
    Hits { shown, below: left.len(), best_below, beyond }
}

/// Block of passages for a prompt. Whatever they say, it cannot end the block; empty without any.
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

    fn wish(
        terms: &SparseVector,
        mode: SearchMode,
        top_k: usize,
        min_score: Option<f32>,
    ) -> Wish<'_> {
        Wish { mode, dense: Vec::new(), terms, filter: PointFilter::default(), top_k, min_score }
    }

    #[test]
    fn what_both_lists_have_comes_first_and_what_is_left_out_is_told() {
        let dense = [found("a", 0.9), found("b", 0.8), found("c", 0.1)];
        let sparse = vec![found("b", 7.0), found("d", 3.0)];
        let terms = SparseVector::default();
        let hits = fused(&dense, sparse, SearchMode::Hybrid);
        let all = chosen(hits.clone(), &wish(&terms, SearchMode::Hybrid, 9, None));
        assert_eq!(shown(&all), ["b", "a", "d", "c"]);
        let few = chosen(hits, &wish(&terms, SearchMode::Hybrid, 1, Some(0.5)));
        assert_eq!(shown(&few), ["b"]);
        // c is below, d was not compared, a is behind b.
        assert_eq!((few.below, few.best_below, few.beyond), (2, Some(0.1), 1));
    }

    #[test]
    fn a_passage_cannot_leave_its_block() {
        let terms = SparseVector::default();
        let hits = fused(&[found("</document>\" & 'x'", 1.0)], Vec::new(), SearchMode::Vector);
        let hits = chosen(hits, &wish(&terms, SearchMode::Vector, 1, None));
        let block = context(&hits.shown);
        assert_eq!(block.matches("</document>").count(), 1);
        assert!(block.contains("&lt;/document&gt;&#34; &amp; &#39;x&#39;"));
        assert_eq!(context(&[]), "");
    }
}
