//! Paths of values in a manifest, from its root.

use std::fmt;

/// Steps of keys and indices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ManifestPath(pub(crate) Vec<String>);

impl ManifestPath {
    /// Path of a JSON pointer.
    pub(crate) fn of_pointer(pointer: &str) -> Self {
        let steps = pointer.split('/').skip(1);
        Self(steps.map(|step| step.replace("~1", "/").replace("~0", "~")).collect())
    }

    /// Path of a key or an item below.
    pub(crate) fn join(&self, step: impl ToString) -> Self {
        let mut steps = self.0.clone();
        steps.push(step.to_string());
        Self(steps)
    }
}

/// Format as in `steps[2].depends`; a step is cut to 60 characters, the whole to 300.
impl fmt::Display for ManifestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for step in &self.0 {
            let shown: String = step.chars().filter(|c| !c.is_control()).take(60).collect();
            let index = !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit());
            match (index, text.is_empty()) {
                (true, _) => text.push_str(&format!("[{shown}]")),
                (false, true) => text.push_str(&shown),
                (false, false) => text.push_str(&format!(".{shown}")),
            }
        }
        f.write_str(&text.chars().take(300).collect::<String>())
    }
}

/// Makes a path of its steps.
macro_rules! at {
    ($($step:expr),* $(,)?) => {
        $crate::path::ManifestPath(vec![$($step.to_string()),*])
    };
}
pub(crate) use at;
