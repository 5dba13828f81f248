use serde_json::{Value, json};

use super::*;

mod beginnings;
mod fields;
mod hostile;
mod outputs;
mod texts;

fn named<const N: usize>(texts: [(&str, &str); N]) -> NamedTexts {
    texts.map(|(name, text)| (name.to_owned(), text.to_owned())).into()
}

/// Scopes with something of each kind.
struct Filled {
    consts: NamedTexts,
    params: RunParams,
    env: NamedTexts,
    host: NamedTexts,
    context: NamedTexts,
    steps: std::collections::BTreeMap<String, StepValues>,
    item: ItemScope,
}

impl Filled {
    fn new() -> Self {
        let params = json!({ "target": "prod", "1": "first", "count": "3" });
        let build = StepValues {
            outputs: named([("image", "v1"), ("meta", r#"{"tag": "t"}"#)]),
            output: Some(json!({ "items": [{ "id": 7 }], "none": null, "half": 0.5, "on": true })),
            published: Some(json!({ "label": "good", "list": [1, 2] })),
            stdout_file: Some("/logs/build.out".to_owned()),
            stderr_file: None,
            exit_status: Some(3),
        };
        Self {
            consts: named([("service", "api")]),
            params: serde_json::from_value(params).expect("texts by name"),
            env: named([
                ("SERVICE", "api"),
                ("EMPTY", ""),
                ("IMAGE", "registry/team/api.tar.gz"),
                ("RESULTS", r#"{"summary": {"total": 2}, "results": [{"a b": "x"}]}"#),
            ]),
            host: named([("OUTSIDE", "host")]),
            context: named([("run.id", "r-1"), ("attempt.started_at", "2026-01-02T03:04:05Z")]),
            steps: [("build".to_owned(), build)].into(),
            item: ItemScope::Foreach {
                name: "episode".to_owned(),
                index: 4,
                key: Some("k".to_owned()),
                value: json!({ "url": "u", "deep": { "a": 1 } }),
            },
        }
    }

    fn scopes(&self) -> TextScopes<'_> {
        TextScopes {
            consts: Some(&self.consts),
            params: Some(&self.params),
            env: Some(&self.env),
            host_env: Some(&self.host),
            context: Some(&self.context),
            steps: Some(&self.steps),
            items: std::slice::from_ref(&self.item),
        }
    }

    fn resolve(&self, text: &str, field: TextField) -> String {
        resolve(text, field, &self.scopes()).expect("short")
    }
}
