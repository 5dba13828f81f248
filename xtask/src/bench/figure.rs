//! A measured figure, its target, and the comparison of the two.

/// Target of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Target {
    /// At most so many times the baseline.
    AtMostTimes(f64),
    /// At least so many times the baseline.
    AtLeastTimes(f64),
    /// At most so much, in the figure's own unit.
    AtMost(f64),
    /// Stated; what must hold besides was looked at when it was measured.
    Stated,
    /// Stated, with the baseline reached again afterwards, give or take so much.
    BackWithin {
        /// The value that it came to rest at.
        after: f64,
        /// Allowed distance from the baseline.
        margin: f64,
    },
}

/// One measured figure beside its baseline of the same run.
#[derive(Debug, Clone)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) value: f64,
    pub(super) baseline: Option<f64>,
    pub(super) target: Target,
    /// Further observations, in a sentence or two.
    pub(super) remark: String,
}

impl Figure {
    pub(super) fn ratio(&self) -> Option<f64> {
        self.baseline.map(|baseline| self.value / baseline)
    }

    pub(super) fn holds(&self) -> bool {
        match (self.target, self.ratio()) {
            (Target::AtMostTimes(times), Some(ratio)) => ratio <= times,
            (Target::AtLeastTimes(times), Some(ratio)) => ratio >= times,
            (Target::AtMost(most), _) => self.value <= most,
            (Target::Stated, _) => true,
            (Target::BackWithin { after, margin }, _) => {
                self.baseline.is_some_and(|before| after <= before + margin)
            }
            (Target::AtMostTimes(_) | Target::AtLeastTimes(_), None) => false,
        }
    }

    pub(super) fn target_text(&self) -> String {
        match self.target {
            Target::AtMostTimes(times) => format!("at most {times} times"),
            Target::AtLeastTimes(times) => format!("at least {times} times"),
            Target::AtMost(most) => format!("at most {most} {}", self.unit),
            Target::Stated => "stated".to_owned(),
            Target::BackWithin { margin, .. } => {
                format!("stated; afterwards within {margin} {} of before", self.unit)
            }
        }
    }
}

/// To three significant digits: more would claim what no run repeats.
pub(super) fn round(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = 2 - value.abs().log10().floor() as i32;
    if digits <= 0 {
        return value.round();
    }
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// The middle value.
///
/// # Panics
/// Without values.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    assert!(!values.is_empty(), "a median of nothing");
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(value: f64, baseline: Option<f64>, target: Target) -> Figure {
        Figure { name: "f", unit: "ms", value, baseline, target, remark: String::new() }
    }

    #[test]
    fn a_ratio_holds_up_to_its_target_and_never_without_a_baseline() {
        assert!(figure(3.0, Some(2.0), Target::AtMostTimes(1.5)).holds());
        assert!(!figure(3.1, Some(2.0), Target::AtMostTimes(1.5)).holds());
        assert!(!figure(1.1, Some(2.0), Target::AtLeastTimes(0.6)).holds());
        assert!(!figure(1.0, None, Target::AtMostTimes(1.5)).holds());
    }

    #[test]
    fn what_grew_has_to_come_back() {
        let back = |after| Target::BackWithin { after, margin: 4.0 };
        assert!(figure(90.0, Some(30.0), back(33.9)).holds());
        assert!(!figure(90.0, Some(30.0), back(34.1)).holds());
    }

    #[test]
    fn three_digits_are_kept() {
        assert_eq!(
            [0.012_345, 1.2345, 123.45, 12_345.6].map(round),
            [0.0123, 1.23, 123.0, 12_346.0]
        );
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
