//! Full-text search over hivekeep's own documents, which are part of the program.
//!
//! A document is cut at its headings. A section's score is the part of the query's words that it has;
//! of equals the one goes first that has them in its title, then the one that has them more often for
//! its length.

use std::{cmp::Reverse, sync::LazyLock};

use pulldown_cmark::{Event, Parser, Tag};
use schemars::JsonSchema;
use serde::Serialize;

/// Sections that are shown.
const SHOWN: usize = 5;
/// Most characters of a section that are shown.
const EXCERPT: usize = 2_000;
/// Shorter words say nothing of what is looked for.
const MIN_WORD: usize = 3;

macro_rules! pages {
    ($($path:literal)+) => {
        /// Documents by their place among the sources.
        pub(crate) const PAGES: &[(&str, &str)] =
            &[$(($path, include_str!(concat!("../../../", $path)))),+];
    };
}
pages! {
    "README.md"
    "docs/architecture.md"
    "docs/errors.md"
    "docs/glossary.md"
    "docs/mcp-clients.md"
    "docs/guides/a-swarm.md"
    "docs/guides/a-team.md"
    "docs/guides/acp.md"
    "docs/guides/agent-fields.md"
    "docs/guides/agent-programs.md"
    "docs/guides/agents.md"
    "docs/guides/agents-after.md"
    "docs/guides/assistant.md"
    "docs/guides/artifacts.md"
    "docs/guides/approvals.md"
    "docs/guides/browser.md"
    "docs/guides/coming-from-dagu.md"
    "docs/guides/container-images.md"
    "docs/guides/dags.md"
    "docs/guides/dags-agents.md"
    "docs/guides/dags-people.md"
    "docs/guides/dags-retry.md"
    "docs/guides/dags-schedules.md"
    "docs/guides/finding-tools.md"
    "docs/guides/forks-of-programs.md"
    "docs/guides/forks-of-thought.md"
    "docs/guides/http-api.md"
    "docs/guides/knowledge.md"
    "docs/guides/lifetimes-and-parking.md"
    "docs/guides/manifests.md"
    "docs/guides/metrics.md"
    "docs/guides/models.md"
    "docs/guides/places.md"
    "docs/guides/port-urls.md"
    "docs/guides/processes.md"
    "docs/guides/repositories.md"
    "docs/guides/running-code.md"
    "docs/guides/sources.md"
    "docs/guides/tasks.md"
    "docs/guides/volumes.md"
    "docs/guides/web.md"
    "docs/runbook/audit.md"
    "docs/runbook/backup.md"
}

/// A section of a document.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct DocsSection {
    /// Title of the document and of the section.
    pub(crate) title: String,
    /// File that it stands in, among hivekeep's sources.
    pub(crate) source: &'static str,
    /// Beginning of the section, at most 2000 characters.
    pub(crate) content: String,
    /// Part of the query's words that the section has, from 0 to 1.
    pub(crate) score: f64,
}

struct Section {
    source: &'static str,
    title: String,
    text: &'static str,
    /// Words of title and text, in small letters.
    words: Vec<String>,
}

static SECTIONS: LazyLock<Vec<Section>> =
    LazyLock::new(|| PAGES.iter().flat_map(|(source, page)| sections(source, page)).collect());

/// Cuts a document at its headings.
fn sections(source: &'static str, page: &'static str) -> Vec<Section> {
    let headings = Parser::new(page).into_offset_iter().filter_map(|(event, range)| {
        matches!(event, Event::Start(Tag::Heading { .. })).then_some(range)
    });
    let headings: Vec<_> = headings.collect();
    let ends = headings.iter().skip(1).map(|next| next.start).chain([page.len()]);
    let plain = |heading: &str| heading.trim_start_matches('#').trim().to_owned();
    let whole = headings.first().map(|first| plain(&page[first.clone()])).unwrap_or_default();
    let cut = headings.iter().zip(ends).map(|(heading, end)| {
        let own = plain(&page[heading.clone()]);
        let title = if own == whole { own } else { format!("{whole}: {own}") };
        let text = page[heading.end..end].trim();
        let words = words(&title).chain(words(text)).collect();
        Section { source, title, text, words }
    });
    cut.filter(|section| !section.text.is_empty()).collect()
}

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| word.chars().count() >= MIN_WORD).map(str::to_lowercase)
}

/// Sections that have some of the query's words, the best first, and how many there are.
pub(crate) fn search(query: &str) -> (Vec<DocsSection>, usize) {
    let wanted: Vec<_> = words(query).collect();
    if wanted.is_empty() {
        return (Vec::new(), 0);
    }
    let has = |section: &Section, word: &String| {
        section.words.iter().any(|one| one.starts_with(word.as_str()))
    };
    let mut found: Vec<_> = SECTIONS
        .iter()
        .map(|section| {
            let matched = wanted.iter().filter(|word| has(section, word)).count();
            let titled = words(&section.title).filter(|one| wanted.contains(one)).count();
            let often = section.words.iter().filter(|one| wanted.contains(one)).count();
            let dense = often * 1_000 / section.words.len().max(1);
            ((matched, titled, dense), section)
        })
        .filter(|((matched, ..), _)| *matched > 0)
        .collect();
    found.sort_by_key(|(rank, _)| Reverse(*rank));
    let shown = found.iter().take(SHOWN).map(|((matched, ..), section)| DocsSection {
        title: section.title.clone(),
        source: section.source,
        content: section.text.chars().take(EXCERPT).collect(),
        score: f64::from(u32::try_from(*matched).unwrap_or(u32::MAX))
            / f64::from(u32::try_from(wanted.len()).unwrap_or(u32::MAX)),
    });
    (shown.collect(), found.len())
}
