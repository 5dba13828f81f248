//! Section `[runtimes]`.

use std::collections::HashSet;

use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Table of language runtimes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Which image a manifest gets for a language and a version: `language`, `version` and `image`,
    /// and `description` and `deprecated` if need be. A list that is set here replaces this one.
    pub images: Vec<LanguageRuntime>,
}

/// Runtime of a language.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LanguageRuntime {
    /// Language.
    pub language: String,
    /// Version, as manifests name it.
    pub version: String,
    /// Reference of the image.
    pub image: String,
    /// Description of the runtime, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// True if new manifests should use another version.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deprecated: bool,
}

/// Language, version, image, description, deprecated.
type Row = (&'static str, &'static str, &'static str, &'static str, bool);

/// Runtimes that manifests name, and those that replaced the deprecated ones.
const STANDARD: [Row; 19] = [
    ("bash", "5", "docker.io/library/bash:5", "GNU Bash 5", false),
    ("go", "1.20", "docker.io/library/golang:1.20-alpine", "Go 1.20", true),
    ("go", "1.21", "docker.io/library/golang:1.21-alpine", "Go 1.21", true),
    ("go", "1.24", "docker.io/library/golang:1.24-alpine", "Go 1.24", false),
    ("javascript", "18", "docker.io/library/node:18-alpine", "Node.js 18", true),
    ("javascript", "20", "docker.io/library/node:20-alpine", "Node.js 20", false),
    ("javascript", "22", "docker.io/library/node:22-alpine", "Node.js 22", false),
    ("javascript", "24", "docker.io/library/node:24-alpine", "Node.js 24", false),
    ("python", "3.9", "docker.io/library/python:3.9-slim", "CPython 3.9", true),
    ("python", "3.10", "docker.io/library/python:3.10-slim", "CPython 3.10", false),
    ("python", "3.11", "docker.io/library/python:3.11-slim", "CPython 3.11", false),
    ("python", "3.12", "docker.io/library/python:3.12-slim", "CPython 3.12", false),
    ("python", "3.13", "docker.io/library/python:3.13-slim", "CPython 3.13", false),
    ("ruby", "3.4", "docker.io/library/ruby:3.4-slim", "Ruby 3.4", false),
    ("rust", "1.74", "docker.io/library/rust:1.74-alpine", "Rust 1.74", true),
    ("rust", "1.75", "docker.io/library/rust:1.75-alpine", "Rust 1.75", false),
    ("rust", "1.85", "docker.io/library/rust:1.85-alpine", "Rust 1.85", false),
    ("rust", "1.90", "docker.io/library/rust:1.90-alpine", "Rust 1.90", false),
    (
        "typescript",
        "5.1",
        "docker.io/library/node:20-alpine",
        "TypeScript 5.1 on Node.js 20",
        false,
    ),
];

impl Default for Options {
    fn default() -> Self {
        let runtime = |(language, version, image, description, deprecated): Row| LanguageRuntime {
            language: language.to_owned(),
            version: version.to_owned(),
            image: image.to_owned(),
            description: description.to_owned(),
            deprecated,
        };
        Self { images: STANDARD.into_iter().map(runtime).collect() }
    }
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        let mut seen = HashSet::new();
        for LanguageRuntime { language, version, image, .. } in &self.images {
            if language.is_empty() || version.is_empty() || image.is_empty() {
                wrong.push(("images", "language, version and image may not be empty".to_owned()));
            }
            if !seen.insert((language, version)) {
                wrong.push(("images", format!("{language} {version} is there twice")));
            }
        }
        wrong
    }
}
