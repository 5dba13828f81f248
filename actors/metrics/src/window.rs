//! Window of a query: a span of time that ends now.

use std::str::FromStr;

use chrono::TimeDelta;
use hivekeep_kernel::{Layer, ToolError};
use serde::{Deserialize, Serialize};

use crate::codes;

/// Longest window.
const MOST_MINUTES: i64 = 365 * 24 * 60;

/// A positive number of days, hours or minutes, at most 365 days: `7d`, `24h`, `30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MetricsWindow {
    minutes: i64,
}

impl MetricsWindow {
    /// Length.
    pub fn length(self) -> TimeDelta {
        TimeDelta::minutes(self.minutes)
    }
}

impl FromStr for MetricsWindow {
    type Err = ToolError;

    fn from_str(text: &str) -> Result<Self, ToolError> {
        let refused = |why: &str| {
            let shown: String = text.chars().take(40).collect();
            let message = format!("`{shown}` {why}");
            ToolError::new(Layer::Actor, codes::METRICS_WINDOW_INVALID, message)
                .next("give a number with d, h or m, such as `7d`, `24h` or `30m`")
        };
        let parsed = || {
            let unit = text.chars().next_back()?;
            let digits = text.strip_suffix(unit)?;
            let scale = match unit {
                'd' => 24 * 60,
                'h' => 60,
                'm' => 1,
                _ => return None,
            };
            let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| digits.parse::<i64>().unwrap_or(i64::MAX).saturating_mul(scale))
        };
        match parsed() {
            None | Some(0) => Err(refused("is not a valid window")),
            Some(minutes) if minutes > MOST_MINUTES => Err(refused("is longer than 365 days")),
            Some(minutes) => Ok(Self { minutes }),
        }
    }
}

impl TryFrom<String> for MetricsWindow {
    type Error = ToolError;

    fn try_from(text: String) -> Result<Self, ToolError> {
        text.parse()
    }
}

impl From<MetricsWindow> for String {
    fn from(window: MetricsWindow) -> Self {
        format!("{}m", window.minutes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_a_positive_number_with_a_unit() {
        let minutes = |text: &str| text.parse::<MetricsWindow>().map(|it| it.minutes);
        for (text, is) in [
            ("1m", 1),
            ("30m", 30),
            ("24h", 1440),
            ("7d", 10_080),
            ("007d", 10_080),
            ("365d", 525_600),
        ] {
            assert_eq!(minutes(text), Ok(is), "{text}");
        }
        for bad in [
            "",
            "d",
            "7",
            "0d",
            "-7d",
            "+7d",
            "7 d",
            "7D",
            "7w",
            "1.5h",
            "7dd",
            "366d",
            "8761h",
            "525601m",
            "99999999999999999999d",
            "７d",
            "7ö",
        ] {
            assert_eq!(minutes(bad).expect_err(bad).code, "metrics_window_invalid", "{bad}");
        }
    }
}
