//! Category of a source, by the whole words of its path.

/// Categories with the words that stand for them; the first that fits is taken.
const CATEGORIES: [(&str, &[&str]); 7] = [
    ("ui-component", &["flux"]),
    ("ui-component", &["ui", "component"]),
    ("brand", &["brand", "mascot"]),
    ("product-brief", &["brief"]),
    ("help-doc", &["help", "draft"]),
    ("task", &["task", "plan"]),
    ("architecture", &["architecture", "migration"]),
];

/// Category of what none of the words stands for.
const OTHERWISE: &str = "documentation";

/// Category of a path from the folder that is ingested.
pub(crate) fn category(path: &str) -> &'static str {
    let path = path.to_lowercase();
    let words: Vec<_> = path.split(|c: char| !c.is_alphanumeric()).collect();
    let has =
        |wanted: &&str| words.iter().any(|word| word.strip_suffix('s').unwrap_or(word) == *wanted);
    let fits = |(name, wanted): &&(&str, &[&str])| match *name {
        // Both words together.
        "ui-component" => wanted.iter().all(has),
        _ => wanted.iter().any(has),
    };
    CATEGORIES.iter().find(fits).map_or(OTHERWISE, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_count_and_parts_of_words_do_not() {
        let rows = [
            ("ui/component/button.md", "ui-component"),
            ("flux/a.md", "ui-component"),
            ("influxdb.md", "documentation"),
            ("explanation.md", "documentation"),
            ("docs/tasks/one.md", "task"),
            ("release-plan.md", "task"),
            ("architecture.md", "architecture"),
            ("ui.md", "documentation"),
            ("Mascot.md", "brand"),
        ];
        for (path, wanted) in rows {
            assert_eq!(category(path), wanted, "{path}");
        }
    }
}
