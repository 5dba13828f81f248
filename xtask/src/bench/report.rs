//! The table, and the pages under `docs/`.

use std::fs;

use anyhow::Result;
use serde_json::Value;

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

/// Writes `docs/performance.md` and `docs/performance.json`.
pub(super) fn write(repo: &Repo, host: &Host, figures: &[Figure]) -> Result<()> {
    let entries: Vec<Value> = figures.iter().map(|figure| figure.json(&host.line())).collect();
    let docs = repo.root.join("docs");
    fs::write(docs.join("performance.json"), format!("{:#}\n", Value::Array(entries)))?;
    fs::write(docs.join("performance.md"), page(host, figures))?;
    Ok(())
}

fn page(host: &Host, figures: &[Figure]) -> String {
    let mut page = String::from(include_str!("page_head.md"));
    page.push_str(&format!("Host: {}. The daemon's doctor says: {}.\n\n", host.line(), host.kvm));
    page.push_str(
        "| figure | value | baseline | ratio | target | holds |\n|---|---|---|---|---|---|\n",
    );
    for figure in figures {
        let [name, rest @ ..] = cells(figure);
        page.push_str(&format!("| `{name}` | {} |\n", rest.join(" | ")));
    }
    page.push('\n');
    for figure in figures.iter().filter(|figure| !figure.remark.is_empty()) {
        page.push_str(&format!("- `{}`: {}.\n", figure.name, figure.remark));
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
