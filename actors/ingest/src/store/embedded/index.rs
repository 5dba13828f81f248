//! Exact index in memory: vectors in one matrix that is scanned, and postings of the terms.
//!
//! Each point has a slot, which a later point may get when it is gone. Searches see the same scores as those
//! of Qdrant: cosine similarity, and BM25 with the rarity of a term in the whole collection.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, HashMap},
};

use super::super::{FoundPoint, PointChange, PointFilter, PointPage, SearchVector, StoreFailure};
use crate::point::{PassagePayload, Point, PointId, SparseVector, Whereabouts};

/// Memory of a point beside its vectors and texts, about.
const POINT_BYTES: usize = 400;

/// Points of a collection.
pub(super) struct PointIndex {
    dimension: usize,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    by_id: BTreeMap<PointId, usize>,
    /// Vectors of length 1, slot after slot.
    matrix: Vec<f32>,
    /// Slots with a term, and its weights there.
    postings: HashMap<u32, Vec<(usize, f32)>>,
    bytes: usize,
}

struct Slot {
    id: PointId,
    payload: PassagePayload,
    sparse: SparseVector,
}

impl Slot {
    fn bytes(&self, dimension: usize) -> usize {
        let PassagePayload { text, file, source, section, category, .. } = &self.payload;
        let texts = text.len() + file.len() + source.len() + section.len() + category.len();
        // A term is in the point and in its posting.
        POINT_BYTES + texts + 4 * dimension + 24 * self.sparse.indices.len()
    }
}

impl PointIndex {
    pub(super) fn new(dimension: usize) -> Self {
        Self {
            dimension,
            slots: Vec::new(),
            free: Vec::new(),
            by_id: BTreeMap::new(),
            matrix: Vec::new(),
            postings: HashMap::new(),
            bytes: 0,
        }
    }

    pub(super) fn dimension(&self) -> usize {
        self.dimension
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Refuses a change that cannot be applied.
    pub(super) fn check(&self, change: &PointChange) -> Result<(), StoreFailure> {
        let fits = |point: &Point| {
            point.dense.len() == self.dimension
                && point.sparse.indices.len() == point.sparse.values.len()
        };
        match change.upserted.iter().all(fits) {
            true => Ok(()),
            false => Err(StoreFailure::lasting(format!(
                "a vector does not have {} parts",
                self.dimension
            ))),
        }
    }

    pub(super) fn apply(&mut self, change: PointChange) -> Result<(), StoreFailure> {
        self.check(&change)?;
        let PointChange { upserted, moved, removed } = change;
        for point in upserted {
            self.remove(point.id);
            self.insert(point);
        }
        for (id, payload) in moved {
            if let Some(slot) = self.by_id.get(&id).and_then(|at| self.slots[*at].as_mut()) {
                let before = slot.bytes(self.dimension);
                slot.payload = payload;
                self.bytes = self.bytes + slot.bytes(self.dimension) - before;
            }
        }
        removed.into_iter().for_each(|id| self.remove(id));
        Ok(())
    }

    fn insert(&mut self, Point { id, dense, sparse, payload }: Point) {
        let at = self.free.pop().unwrap_or(self.slots.len());
        if at == self.slots.len() {
            self.slots.push(None);
            self.matrix.resize(self.slots.len() * self.dimension, 0.0);
        }
        let row = &mut self.matrix[at * self.dimension..(at + 1) * self.dimension];
        row.copy_from_slice(&unit(dense));
        for (term, weight) in sparse.indices.iter().zip(&sparse.values) {
            self.postings.entry(*term).or_default().push((at, *weight));
        }
        let slot = Slot { id, payload, sparse };
        self.bytes += slot.bytes(self.dimension);
        self.slots[at] = Some(slot);
        self.by_id.insert(id, at);
    }

    fn remove(&mut self, id: PointId) {
        let Some(at) = self.by_id.remove(&id) else { return };
        let Some(slot) = self.slots[at].take() else { return };
        self.bytes -= slot.bytes(self.dimension);
        for term in &slot.sparse.indices {
            if let Some(posting) = self.postings.get_mut(term) {
                posting.retain(|(other, _)| *other != at);
                if posting.is_empty() {
                    self.postings.remove(term);
                }
            }
        }
        self.free.push(at);
    }

    /// All points, with vectors of length 1.
    pub(super) fn points(&self) -> Vec<Point> {
        let point = |at: &usize| {
            let slot = self.slots[*at].as_ref()?;
            let dense = self.row(*at).to_vec();
            Some(Point {
                id: slot.id,
                dense,
                sparse: slot.sparse.clone(),
                payload: slot.payload.clone(),
            })
        };
        self.by_id.values().filter_map(point).collect()
    }

    pub(super) fn page(&self, from: Option<PointId>, limit: usize) -> PointPage {
        let mut rest = match from {
            Some(id) => self.by_id.range(id..),
            None => self.by_id.range(..),
        };
        let row = |(id, at): (&PointId, &usize)| {
            self.slots[*at].as_ref().map(|slot| (*id, Whereabouts::from(&slot.payload)))
        };
        let rows = rest.by_ref().take(limit).filter_map(row).collect();
        PointPage { rows, next: rest.next().map(|(id, _)| *id) }
    }

    /// # Errors
    /// For a vector of another length.
    pub(super) fn search(
        &self,
        vector: &SearchVector,
        filter: &PointFilter,
        limit: usize,
    ) -> Result<Vec<FoundPoint>, StoreFailure> {
        let fits = |slot: &Slot| {
            filter.source.as_ref().is_none_or(|source| *source == slot.payload.source)
                && filter
                    .category
                    .as_ref()
                    .is_none_or(|category| *category == slot.payload.category)
        };
        // Those that are asked for alone, or all.
        let among: Option<BTreeSet<usize>> = filter
            .among
            .as_ref()
            .map(|ids| ids.iter().filter_map(|id| self.by_id.get(id).copied()).collect());
        let mut scored = match vector {
            SearchVector::Dense(vector) => self.nearest(vector, among.as_ref(), fits)?,
            SearchVector::Sparse(terms) => self.matching(terms, |at, slot| {
                among.as_ref().is_none_or(|among| among.contains(&at)) && fits(slot)
            }),
        };
        let better = |one: &(f32, usize), other: &(f32, usize)| {
            let id = |at: usize| self.slots[at].as_ref().map(|slot| slot.id);
            other.0.total_cmp(&one.0).then_with(|| id(one.1).cmp(&id(other.1)))
        };
        best(&mut scored, limit, better);
        let found = |(score, at): (f32, usize)| {
            let slot = self.slots[at].as_ref()?;
            Some(FoundPoint { id: slot.id, score, payload: slot.payload.clone() })
        };
        Ok(scored.into_iter().filter_map(found).collect())
    }

    fn nearest(
        &self,
        vector: &[f32],
        among: Option<&BTreeSet<usize>>,
        fits: impl Fn(&Slot) -> bool,
    ) -> Result<Vec<(f32, usize)>, StoreFailure> {
        if vector.len() != self.dimension {
            let message =
                format!("the vectors have {} parts, not {}", self.dimension, vector.len());
            return Err(StoreFailure::lasting(message));
        }
        let wanted = unit(vector.to_vec());
        let fits = |at: &usize| self.slots[*at].as_ref().is_some_and(&fits);
        let scored = |at| (dot(&wanted, self.row(at)), at);
        Ok(match among {
            Some(among) => among.iter().copied().filter(fits).map(scored).collect(),
            None => (0..self.slots.len()).filter(fits).map(scored).collect(),
        })
    }

    fn matching(
        &self,
        terms: &SparseVector,
        fits: impl Fn(usize, &Slot) -> bool,
    ) -> Vec<(f32, usize)> {
        let mut scores = vec![0.0_f32; self.slots.len()];
        for (term, wanted) in terms.indices.iter().zip(&terms.values) {
            let Some(posting) = self.postings.get(term) else { continue };
            let (all, with) = (self.len() as f32, posting.len() as f32);
            let rarity = ((all - with + 0.5) / (with + 0.5)).ln_1p();
            for (at, weight) in posting {
                scores[*at] += wanted * rarity * weight;
            }
        }
        let fits = |at: &usize| self.slots[*at].as_ref().is_some_and(|slot| fits(*at, slot));
        let matching = (0..scores.len()).filter(|at| scores[*at] > 0.0).filter(fits);
        matching.map(|at| (scores[at], at)).collect()
    }

    fn row(&self, at: usize) -> &[f32] {
        &self.matrix[at * self.dimension..(at + 1) * self.dimension]
    }
}

/// Keeps the first ones in order.
fn best<T>(all: &mut Vec<T>, limit: usize, order: impl Fn(&T, &T) -> Ordering) {
    if limit > 0 && all.len() > limit {
        all.select_nth_unstable_by(limit - 1, &order);
    }
    all.truncate(limit);
    all.sort_by(order);
}

/// The vector with length 1; one without a length stays.
fn unit(mut vector: Vec<f32>) -> Vec<f32> {
    let length = dot(&vector, &vector).sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|part| *part /= length);
    }
    vector
}

/// Scalar product, in eight sums that a processor makes at once.
fn dot(one: &[f32], other: &[f32]) -> f32 {
    let (mut sums, split) = ([0.0_f32; 8], one.len() / 8 * 8);
    for (one, other) in one[..split].chunks_exact(8).zip(other[..split].chunks_exact(8)) {
        for at in 0..8 {
            sums[at] += one[at] * other[at];
        }
    }
    let rest: f32 = one[split..].iter().zip(&other[split..]).map(|(one, other)| one * other).sum();
    sums.iter().sum::<f32>() + rest
}
