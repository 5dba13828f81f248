//! The table, and the pages under `docs/`.

use std::fs;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::figure::{Figure, round};
use super::host::Host;
use crate::repo::Repo;

/// For people at a terminal.
pub(super) fn table(figures: &[Figure]) -> String {
    let mut rows =
        vec![["figure", "value", "baseline", "ratio", "target", "holds"].map(str::to_owned)];
    rows.extend(figures.iter().map(cells));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<_> = (0..6).map(width).collect();
    let line = |row: &[String; 6]| {
        let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let remarks = figures.iter().filter(|figure| !figure.remark.is_empty());
    let remarks = remarks.map(|figure| format!("{}: {}", figure.name, figure.remark));
    let lines: Vec<_> = rows.iter().map(line).chain([String::new()]).chain(remarks).collect();
    lines.join("\n")
}

fn cells(figure: &Figure) -> [String; 6] {
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| text(round(value)));
    [
        figure.name.to_owned(),
        format!("{} {}", text(round(figure.value)), figure.unit),
        figure
            .baseline
            .map_or("-".to_owned(), |value| format!("{} {}", text(round(value)), figure.unit)),
        number(figure.ratio()),
        figure.target_text(),
        if figure.holds() { "yes" } else { "NO" }.to_owned(),
    ]
}

fn text(value: f64) -> String {
    format!("{value}")
}

/// Writes figures into `docs/performance.json`, in place of what was known of them, and the page anew
/// from all. `order` lists every figure.
pub(super) fn write(repo: &Repo, host: &Host, figures: &[Figure], order: &[&str]) -> Result<()> {
    let docs = repo.root.join("docs");
    let json = docs.join("performance.json");
    let mut entries: Vec<Entry> = serde_json::from_str(&fs::read_to_string(&json)?)?;
    let shell = &repo.shell;
    let commit = xshell::cmd!(shell, "git log -1 --format=%cs:%h").quiet().read()?;
    let measured = commit.replace(':', ", ");
    entries.retain(|entry| !figures.iter().any(|figure| figure.name == entry.figure));
    entries.extend(figures.iter().map(|figure| Entry::of(figure, &host.line(), &measured)));
    entries.sort_by_key(|entry| order.iter().position(|name| *name == entry.figure));
    fs::write(json, format!("{}\n", serde_json::to_string_pretty(&entries)?))?;
    fs::write(docs.join("performance.md"), page(&host.kvm, &entries))?;
    Ok(())
}

/// A figure as the pages keep it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Entry {
    figure: String,
    unit: String,
    value: f64,
    baseline: Option<f64>,
    ratio: Option<f64>,
    target: String,
    holds: bool,
    remark: String,
    /// Date and name of the commit that was measured.
    measured: String,
    host: String,
}

impl Entry {
    fn of(figure: &Figure, host: &str, measured: &str) -> Self {
        Self {
            figure: figure.name.to_owned(),
            unit: figure.unit.to_owned(),
            value: round(figure.value),
            baseline: figure.baseline.map(round),
            ratio: figure.ratio().map(round),
            target: figure.target_text(),
            holds: figure.holds(),
            remark: figure.remark.clone(),
            measured: measured.to_owned(),
            host: host.to_owned(),
        }
    }

    fn row(&self) -> String {
        let Self { figure, unit, value, baseline, ratio, target, holds, measured, .. } = self;
        let baseline = baseline.map_or("-".to_owned(), |value| format!("{value} {unit}"));
        let ratio = ratio.map_or("-".to_owned(), text);
        let holds = if *holds { "yes" } else { "NO" };
        format!(
            "| `{figure}` | {value} {unit} | {baseline} | {ratio} | {target} | {holds} | {measured} |\n"
        )
    }
}

fn page(kvm: &str, entries: &[Entry]) -> String {
    let mut page = String::from(include_str!("page_head.md"));
    let mut hosts: Vec<&str> = Vec::new();
    for entry in entries {
        if !hosts.contains(&entry.host.as_str()) {
            hosts.push(&entry.host);
            page.push_str(&format!("Host: {}. ", entry.host));
        }
    }
    page.push_str(&format!("The daemon's doctor says: {kvm}.\n\n"));
    page.push_str(
        "| figure | value | baseline | ratio | target | holds | measured |\n|---|---|---|---|---|---|---|\n",
    );
    entries.iter().for_each(|entry| page.push_str(&entry.row()));
    page.push('\n');
    for entry in entries.iter().filter(|entry| !entry.remark.is_empty()) {
        page.push_str(&format!("- `{}`: {}.\n", entry.figure, entry.remark));
    }
    page.push('\n');
    page.push_str(include_str!("page_foot.md"));
    page
}

#[cfg(test)]
mod tests {
    use super::super::figure::Target;
    use super::*;

    #[test]
    fn an_entry_keeps_what_was_measured_and_when() {
        let figure = Figure {
            name: "quick",
            unit: "us",
            value: 150.04,
            baseline: Some(100.0),
            target: Target::AtMostTimes(1.4),
            remark: String::new(),
        };
        let row = Entry::of(&figure, "a host", "2026-01-31, abc").row();
        let wanted =
            "| `quick` | 150 us | 100 us | 1.5 | at most 1.4 times | NO | 2026-01-31, abc |\n";
        assert_eq!(row, wanted);
    }

    #[test]
    fn each_host_is_named_once() {
        let figure = Figure {
            name: "quick",
            unit: "us",
            value: 1.0,
            baseline: None,
            target: Target::AtMostTimes(1.4),
            remark: String::new(),
        };
        let entries = ["a", "b", "a"].map(|host| Entry::of(&figure, host, "today"));
        let page = page("kvm", &entries);
        assert_eq!(page.matches("Host: ").count(), 2, "{page}");
        assert!(page.contains("Host: a. Host: b. The daemon's doctor says: kvm."), "{page}");
    }

    #[test]
    fn the_table_shows_what_was_missed() {
        let figure = |name, value| Figure {
            name,
            unit: "us",
            value,
            baseline: Some(100.0),
            target: Target::AtMostTimes(1.5),
            remark: "as seen".to_owned(),
        };
        let table = table(&[figure("quick", 120.0), figure("slow", 151.0)]);
        let lines: Vec<_> = table.lines().collect();
        assert!(lines[1].starts_with("quick   120 us  100 us    1.2") && lines[1].ends_with("yes"));
        assert!(lines[2].ends_with("at most 1.5 times  NO"), "{table}");
        assert!(table.ends_with("slow: as seen"));
    }
}
