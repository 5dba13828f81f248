//! Listing of the kernel's tables, in a form that can be compared.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// Rules by their chain, and sets with the elements that are planned; without handles, which
/// differ each time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Listing(BTreeMap<String, Vec<Value>>);

impl Listing {
    /// From nft's objects. Elements of `kept` sets are others' to change.
    pub(super) fn of(items: Vec<Map<String, Value>>, kept: &BTreeSet<String>) -> Self {
        let mut found = Self::default();
        for (kind, mut item) in items.into_iter().flatten() {
            let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
            let family = text("family");
            let place = match kind.as_str() {
                "chain" => format!("{family} chain {}", text("name")),
                "rule" => format!("{family} chain {}", text("chain")),
                "set" => format!("{family} set {}", text("name")),
                _ => continue,
            };
            let name = text("name");
            if let Some(fields) = item.as_object_mut() {
                fields.remove("handle");
                let elements = fields.get_mut("elem").and_then(Value::as_array_mut);
                match (kind == "set", elements) {
                    (true, Some(_)) if kept.contains(&name) => _ = fields.remove("elem"),
                    (true, Some(elements)) => elements.sort_by_cached_key(Value::to_string),
                    _ => {}
                }
            }
            found.0.entry(place).or_default().push(item);
        }
        found
    }

    /// The chains and sets that differ.
    pub(super) fn differences(&self, other: &Self) -> Vec<String> {
        let names: BTreeSet<_> = self.0.keys().chain(other.0.keys()).collect();
        names.into_iter().filter(|name| self.0.get(*name) != other.0.get(*name)).cloned().collect()
    }
}
