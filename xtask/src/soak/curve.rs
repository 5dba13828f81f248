//! The picture of a soak test and the page around it.

use std::fs;

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;

use super::{Soaked, sample::Series};
use crate::repo::Repo;

const SIZE: (u32, u32) = (900, 520);
const COLOURS: [RGBColor; 6] = [BLUE, RED, GREEN, MAGENTA, BLACK, CYAN];

/// Writes `docs/soak.svg` and `docs/soak.md`.
pub(super) fn write(repo: &Repo, outcome: &Soaked) -> Result<()> {
    let docs = repo.root.join("docs");
    let mut picture = String::new();
    draw(&mut picture, outcome).map_err(|error| anyhow!("draw the curve: {error}"))?;
    fs::write(docs.join("soak.svg"), picture).context("write docs/soak.svg")?;
    let page = format!(
        "# Soak\n\nWritten by `cargo xtask soak --minutes {} --write`.\n\n\
         ![what the daemon holds, over time](soak.svg)\n\n\
         Each curve is in parts of its level after the first tenth of the time. A sample is taken \
         each second; compared are the medians of the second and of the last tenth.\n\n{}\n",
        outcome.time.as_secs() / 60,
        outcome.table()
    );
    fs::write(docs.join("soak.md"), page).context("write docs/soak.md")
}

/// Every quantity as a multiple of its level after the first tenth, so that one picture holds all.
fn draw(
    picture: &mut String,
    outcome: &Soaked,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let minutes = outcome.time.as_secs_f64() / 60.0;
    let relative = |series: &Series| -> Vec<(f64, f64)> {
        let level = series.level().max(f64::MIN_POSITIVE);
        series.points.iter().map(|(at, value)| (at / 60.0, value / level)).collect()
    };
    let curves: Vec<_> =
        outcome.series.iter().map(|series| (series.name, relative(series))).collect();
    let most = curves.iter().flat_map(|(_, points)| points).map(|(_, y)| *y).fold(1.2, f64::max);
    let area = SVGBackend::with_string(picture, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(44)
        .build_cartesian_2d(0.0..minutes, 0.0..most * 1.05)?;
    chart.configure_mesh().x_desc("minutes").y_desc("of the level after a tenth").draw()?;
    for ((name, points), colour) in curves.into_iter().zip(COLOURS) {
        chart
            .draw_series(LineSeries::new(points, colour))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    area.present()?;
    Ok(())
}
