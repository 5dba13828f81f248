//! PDFs: one that Chromium printed, and files that are made to do harm. Each is read in a process of its own.
//!
//! `handbook.pdf` is what `chromium --headless --print-to-pdf` makes of two pages; `bomb.pdf` has a page whose
//! 1,799 bytes become a gigabyte.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Counter, home};
use crate::home::{Home, wait_until};

const CATALOG: &str = "<< /Type /Catalog /Pages 2 0 R >>";
const PAGES: &str = "<< /Type /Pages /Kids [3 0 R] /Count 1 >>";
const PAGE: &str = "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Contents 4 0 R \
                    /Resources << /Font << /F1 5 0 R >> /XObject << /X 6 0 R >> >> >>";
const FONT: &str = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>";
const TEXT: &str = "BT /F1 12 Tf 20 100 Td (A plain heron) Tj ET";

/// File of these objects, in their order.
fn pdf(objects: &[&str]) -> String {
    let (mut file, mut at) = ("%PDF-1.4\n".to_owned(), Vec::new());
    for (object, number) in objects.iter().zip(1..) {
        at.push(file.len());
        write!(file, "{number} 0 obj\n{object}\nendobj\n").expect("written");
    }
    let (begin, size) = (file.len(), objects.len() + 1);
    write!(file, "xref\n0 {size}\n0000000000 65535 f \n").expect("written");
    for offset in at {
        writeln!(file, "{offset:010} 00000 n ").expect("written");
    }
    write!(file, "trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{begin}\n%%EOF\n")
        .expect("written");
    file
}

fn stream(content: &str, more: &str) -> String {
    format!("<< /Length {} {more} >>\nstream\n{content}\nendstream", content.len())
}

fn put(home: &Home, name: &str, bytes: impl AsRef<[u8]>) {
    std::fs::write(home.path("docs").join(name), bytes).expect("writes");
}

#[test]
fn a_printed_pdf_is_asked_and_hostile_ones_are_failures_by_name() {
    if std::process::Command::new("bwrap").arg("--version").output().is_err() {
        return hivekeep_skip::skip("bwrap is not installed");
    }
    let counter = Counter::start();
    let home = home(&counter);
    let handbook = include_bytes!("handbook.pdf");
    put(&home, "handbook.pdf", handbook);
    put(&home, "plain.pdf", pdf(&[CATALOG, PAGES, PAGE, &stream(TEXT, ""), FONT]));
    let form = stream(
        "/X Do /X Do",
        "/Type /XObject /Subtype /Form /BBox [0 0 1 1] /Resources << /XObject << /X 6 0 R >> >>",
    );
    let text = stream(TEXT, "");
    let own_kid = "<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>";
    let own_parent = "<< /Type /Page /Parent 3 0 R /Contents 4 0 R >>";
    let own_length = format!("<< /Length 4 0 R >>\nstream\n{TEXT}\nendstream");
    let hostile: [(&str, Vec<u8>); 9] = [
        ("bomb.pdf", include_bytes!("bomb.pdf").to_vec()),
        ("cut.pdf", handbook[..handbook.len() / 2].to_vec()),
        ("form.pdf", pdf(&[CATALOG, PAGES, PAGE, &stream("/X Do", ""), FONT, &form]).into()),
        ("kids.pdf", pdf(&[CATALOG, own_kid, PAGE, &text, FONT]).into()),
        ("length.pdf", pdf(&[CATALOG, PAGES, PAGE, &own_length, FONT]).into()),
        ("nested.pdf", pdf(&[CATALOG, PAGES, PAGE, &text, &"[".repeat(1_000_000)]).into()),
        ("parent.pdf", pdf(&[CATALOG, PAGES, own_parent, &text, FONT]).into()),
        ("scan.pdf", pdf(&[CATALOG, PAGES, PAGE, &stream("0 0 9 9 re f", ""), FONT]).into()),
        ("word.pdf", b"%PDF".to_vec()),
    ];
    for (name, bytes) in &hostile {
        put(&home, name, bytes);
    }
    let _daemon = home.daemon();
    let args = json!({ "path": ".", "place": "docs", "collection": "docs" }).to_string();
    let done = home.json(&["call", "rag_ingest", "--json", &args]);
    assert_eq!(done["files"], 2, "{done}");
    let failed: Vec<_> = done["failed"].as_array().expect("a list").iter().collect();
    let names: Vec<_> = failed.iter().map(|row| row["path"].as_str().expect("one")).collect();
    assert_eq!(names, hostile.each_ref().map(|(name, _)| *name), "{done}");
    let why = |name: &str| -> &str {
        let row = failed.iter().find(|row| row["path"] == name).expect("it failed");
        row["why"].as_str().expect("why")
    };
    assert!(why("scan.pdf").contains("without text"), "{done}");
    assert!(why("word.pdf").contains("not a valid PDF"), "{done}");
    assert!(why("bomb.pdf").contains("memory"), "{done}");
    let ask = |question: &str| -> Value {
        let args = json!({ "collection": "docs", "question": question, "mode": "bm25", "topK": 1 });
        home.json(&["call", "rag_query", "--json", &args.to_string()])["results"][0].clone()
    };
    let found = ask("who feeds the cormorant");
    assert_eq!((&found["source"], &found["section"]), (&json!("handbook.pdf"), &json!("page 2")));
    // Ligatures are the letters that they stand for.
    let found = ask("office waffle");
    assert!(found["content"].as_str().expect("text").contains("office, waffle"), "{found}");
    assert_eq!(ask("heron")["source"], "plain.pdf");
    // An edit of one is an edit.
    put(
        &home,
        "plain.pdf",
        pdf(&[CATALOG, PAGES, PAGE, &stream(&TEXT.replace("heron", "egret"), ""), FONT]),
    );
    let again = home.json(&["call", "rag_ingest", "--json", &args]);
    assert_eq!((&again["embedded"], &again["removed"]), (&json!(1), &json!(1)), "{again}");
    // While it is watched, what has not changed stays without being read again.
    for (name, _) in &hostile {
        std::fs::remove_file(home.path("docs").join(name)).expect("removed");
    }
    let args = json!({ "path": ".", "place": "docs", "collection": "docs", "watch": true });
    let watched = home.json(&["call", "rag_ingest", "--json", &args.to_string()]);
    put(&home, "late.md", "a late walrus\n");
    wait_until("the new file is found", || ask("walrus")["source"] == "late.md");
    let listed = home.json(&["call", "rag_collections", "--json", r#"{"show_stats": true}"#]);
    let points = watched["chunks"].as_u64().expect("a number") + 1;
    assert_eq!(listed["collections"][0]["points_count"], points, "{listed}");
    assert_eq!(ask("egret")["source"], "plain.pdf");
    put(&home, "plain.pdf", pdf(&[CATALOG, PAGES, PAGE, &text, FONT]));
    wait_until("the edit is found", || ask("heron")["source"] == "plain.pdf");
    assert!(ask("egret").is_null());
}
