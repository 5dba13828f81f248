//! Consensus of judges: several scores become one, by formulas without state.

use crate::agent::Consensus;

/// Largest variance of numbers between 0 and 1.
const MOST_VARIANCE: f64 = 0.25;

/// Score of a judge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JudgeScore {
    /// Score from 0 to 1.
    pub score: f64,
    /// Confidence of the judge in it, from 0 to 1.
    pub confidence: f64,
    /// Weight beside the others, at least 0.
    pub weight: f64,
}

/// How scores become one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConsensusRule {
    /// The formula.
    pub by: Consensus,
    /// Score from which on a judge is in favour.
    pub threshold: f64,
    /// Number of the best, for [`Consensus::BestOfN`].
    pub best: usize,
    /// Part that agreement has in the confidence of a consensus.
    pub agreement: f64,
    /// Part that the judges' own confidence has in it.
    pub own_confidence: f64,
}

impl ConsensusRule {
    /// Rule by the usual shares of the confidence.
    pub fn new(by: Consensus, threshold: f64, best: usize) -> Self {
        Self { by, threshold, best, agreement: 0.7, own_confidence: 0.3 }
    }
}

/// Score and confidence of all judges together; both 0 without a judge that counts.
pub fn consensus(rule: &ConsensusRule, scores: &[JudgeScore]) -> (f64, f64) {
    let weight: f64 = scores.iter().map(|it| it.weight).sum();
    if weight <= 0.0 {
        return (0.0, 0.0);
    }
    let mean = |of: fn(&JudgeScore) -> f64| {
        scores.iter().map(|it| of(it) * it.weight).sum::<f64>() / weight
    };
    let (score, confidence) = (mean(|it| it.score), mean(|it| it.confidence));
    let in_favour = |it: &&JudgeScore| it.score >= rule.threshold;
    match rule.by {
        Consensus::WeightedAverage => {
            let apart = scores.iter().map(|it| it.weight * (it.score - score).powi(2)).sum::<f64>();
            let disagreement = (apart / weight / MOST_VARIANCE).min(1.0);
            (score, rule.agreement * (1.0 - disagreement) + rule.own_confidence * confidence)
        }
        Consensus::Majority => {
            let in_favour: f64 = scores.iter().filter(in_favour).map(|it| it.weight).sum();
            let margin = (2.0 * in_favour - weight) / weight;
            let score = match margin {
                won if won > 0.0 => 1.0,
                lost if lost < 0.0 => 0.0,
                _ => 0.5,
            };
            (score, rule.agreement * margin.abs() + rule.own_confidence * confidence)
        }
        Consensus::Unanimous => {
            let least = scores.iter().map(|it| it.confidence).fold(1.0, f64::min);
            (if scores.iter().all(|it| in_favour(&it)) { score } else { 0.0 }, least)
        }
        Consensus::BestOfN => {
            let mut ranked = scores.to_vec();
            let rank = |it: &JudgeScore| it.score * it.confidence;
            ranked.sort_by(|one, other| rank(other).total_cmp(&rank(one)));
            ranked.truncate(rule.best.max(1));
            let weight: f64 = ranked.iter().map(|it| it.weight).sum();
            let mean = |of: fn(&JudgeScore) -> f64| {
                ranked.iter().map(|it| of(it) * it.weight).sum::<f64>() / weight
            };
            (mean(|it| it.score), mean(|it| it.confidence))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Consensus::{BestOfN, Majority, Unanimous, WeightedAverage};

    #[test]
    fn several_scores_become_one_by_their_formula() {
        // Judges as (score, confidence, weight); with 0.7 as the threshold and the best two.
        type Row = (Consensus, &'static [(f64, f64, f64)], (f64, f64));
        let rows: [Row; 15] = [
            (WeightedAverage, &[], (0.0, 0.0)),
            (WeightedAverage, &[(0.8, 0.5, 1.0)], (0.8, 0.85)),
            (WeightedAverage, &[(1.0, 1.0, 1.0), (0.0, 1.0, 1.0)], (0.5, 0.3)),
            (WeightedAverage, &[(1.0, 1.0, 3.0), (0.0, 0.0, 1.0)], (0.75, 0.4)),
            (WeightedAverage, &[(0.8, 0.6, 1.0), (0.6, 1.0, 1.0)], (0.7, 0.912)),
            (Majority, &[(0.7, 1.0, 1.0), (0.9, 1.0, 1.0), (0.1, 1.0, 1.0)], (1.0, 1.6 / 3.0)),
            (Majority, &[(0.69, 0.5, 1.0), (0.9, 0.5, 1.0), (0.1, 0.5, 1.0)], (0.0, 1.15 / 3.0)),
            (Majority, &[(0.7, 0.4, 1.0), (0.1, 0.8, 1.0)], (0.5, 0.18)),
            (Majority, &[(0.7, 0.5, 3.0), (0.1, 0.5, 1.0)], (1.0, 0.5)),
            (Unanimous, &[(0.7, 0.9, 1.0), (0.9, 0.4, 1.0)], (0.8, 0.4)),
            (Unanimous, &[(0.69, 0.9, 1.0), (0.9, 0.4, 1.0)], (0.0, 0.4)),
            (BestOfN, &[(0.9, 0.1, 1.0), (0.5, 0.9, 1.0), (0.4, 1.0, 1.0)], (0.45, 0.95)),
            (BestOfN, &[(0.5, 0.9, 1.0), (0.4, 1.0, 3.0)], (0.425, 0.975)),
            (BestOfN, &[(0.5, 0.9, 1.0)], (0.5, 0.9)),
            (BestOfN, &[], (0.0, 0.0)),
        ];
        for (by, judges, (score, confidence)) in rows {
            let judge = |(score, confidence, weight): &_| JudgeScore {
                score: *score,
                confidence: *confidence,
                weight: *weight,
            };
            let judges: Vec<_> = judges.iter().map(judge).collect();
            let found = consensus(&ConsensusRule::new(by, 0.7, 2), &judges);
            let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
            assert!(
                near(found.0, score) && near(found.1, confidence),
                "{by:?} {judges:?}: {found:?}"
            );
        }
    }
    #[test]
    fn shares_of_the_confidence_are_the_rules() {
        let judge = |score, confidence| JudgeScore { score, confidence, weight: 1.0 };
        let rule = ConsensusRule {
            agreement: 0.5,
            own_confidence: 0.5,
            ..ConsensusRule::new(WeightedAverage, 0.7, 1)
        };
        assert_eq!(consensus(&rule, &[judge(0.5, 0.2), judge(0.5, 0.6)]), (0.5, 0.7));
    }
}
