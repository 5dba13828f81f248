//! Ingestion of a folder and questions to it, beside an MCP server over Qdrant's client in its local mode with
//! the same model; and a question to 100,000 passages beside the engine alone.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::client::StdioClient;
use super::figure::{Figure, Target, median, round};
use super::{house::BenchDaemon, kit::BenchPrograms, passages};
use crate::test::outside;

const FILES: usize = 200;
const SECTIONS: usize = 10;
const INGESTIONS: usize = 5;
const LARGE_FILES: usize = 2_000;
const LARGE_SECTIONS: usize = 50;
/// Rounds of all questions.
const ROUNDS: usize = 10;
const COLLECTION: &str = "corpus";

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let stage = Stage::new(kit, (FILES, SECTIONS))?;
    let mut ours = stage.house.attach()?;
    let [mut durable, mut memory] = [stage.baseline("store")?, stage.baseline(":memory:")?];
    let mut figures = Vec::new();
    let ingested = ingestions(kit, &stage, &mut ours, (&mut durable, &mut memory))?;
    if kit.wants("rag_ingest") {
        figures.push(ingested);
    }
    if kit.wants("rag_query") {
        figures.push(questions(kit, &stage, &mut ours, &mut durable)?);
    }
    Ok(figures)
}

pub(super) fn large(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let stage = Stage::new(kit, (LARGE_FILES, LARGE_SECTIONS))?;
    let mut ours = stage.house.attach()?;
    let took = stage.ingest(&mut ours)?;
    let mut bare = BareEngine::start(kit, &stage)?;
    let (mut through, mut beside) = (Vec::new(), Vec::new());
    for round in 0..=kit.rounds(ROUNDS) {
        for question in &stage.questions {
            let bare = bare.ask(question)?;
            let (took, found) = ours.timed("rag_query", &asked(question, "hybrid"))?;
            ensure!(!found["results"][0].is_null(), "nothing is found: {found}");
            // The first round warms up.
            if round > 0 {
                beside.push(bare);
                through.push(took.as_secs_f64() * 1e6);
            }
        }
    }
    Ok(vec![Figure {
        name: "rag_query_100k",
        unit: "us",
        value: median(through),
        baseline: Some(median(beside)),
        target: Target::AtMostTimes(1.5),
        remark: format!(
            "five of {} passages of {} bytes on average, by vectors of 64 parts and words; they were ingested in {} s",
            stage.passages,
            stage.bytes / stage.passages,
            round(took / 1e3)
        ),
    }])
}

/// A corpus, a daemon that may read it, and a model that embeds on both sides.
struct Stage {
    house: BenchDaemon,
    folder: xshell::TempDir,
    model: std::path::PathBuf,
    python: std::path::PathBuf,
    server: std::path::PathBuf,
    questions: Vec<String>,
    passages: usize,
    bytes: usize,
}

impl Stage {
    fn new(kit: &BenchPrograms<'_>, (files, sections): (usize, usize)) -> Result<Self> {
        let (model, python) = (outside::static_model(kit.repo)?, outside::python(kit.repo, "rag")?);
        let folder = kit.repo.shell.create_temp_dir()?;
        let bytes = passages::make(kit.repo, folder.path(), (files, sections))?;
        let place = folder.path().join(COLLECTION);
        let house = BenchDaemon::open(
            kit,
            &format!(
                "[session.places.{COLLECTION}]\nfolder = {place:?}\nread_only = true\n\
                 [ingest]\nmemory_mb = 4096\n[ingest.local]\nfolder = {model:?}\n"
            ),
        )?;
        let server = kit.repo.root.join("tests/clients/rag_server.py");
        let questions = passages::questions(kit.repo)?;
        Ok(Self {
            house,
            folder,
            model,
            python,
            server,
            questions,
            passages: files * sections,
            bytes,
        })
    }

    /// The other server, with its store in a folder or in memory.
    fn baseline(&self, store: &str) -> Result<StdioClient> {
        let mut command = Command::new(&self.python);
        command.arg(&self.server).arg(&self.model).arg(store).current_dir(self.folder.path());
        StdioClient::start(command)
    }

    /// Ingests all anew; milliseconds.
    fn ingest(&self, client: &mut StdioClient) -> Result<f64> {
        let args =
            json!({ "path": ".", "place": COLLECTION, "collection": COLLECTION, "recreate": true });
        let (took, made) = client.timed("rag_ingest", &args)?;
        ensure!(made["chunks"] == self.passages && made["embedded"] == self.passages, "{made}");
        Ok(took.as_secs_f64() * 1e3)
    }

    fn ingest_there(&self, client: &mut StdioClient) -> Result<f64> {
        let folder = self.folder.path().join(COLLECTION);
        let (took, made) =
            client.timed("ingest", &json!({ "folder": folder, "collection": COLLECTION }))?;
        ensure!(made["chunks"] == self.passages, "{made}");
        Ok(took.as_secs_f64() * 1e3)
    }
}

fn ingestions(
    kit: &BenchPrograms<'_>,
    stage: &Stage,
    ours: &mut StdioClient,
    (durable, memory): (&mut StdioClient, &mut StdioClient),
) -> Result<Figure> {
    let mut took = [Vec::new(), Vec::new(), Vec::new()];
    // Models are loaded by the first one.
    stage.ingest(ours)?;
    stage.ingest_there(memory)?;
    for _ in 0..kit.rounds(INGESTIONS) {
        took[0].push(stage.ingest_there(durable)?);
        took[1].push(stage.ingest(ours)?);
        took[2].push(stage.ingest_there(memory)?);
    }
    let [durable, ours, memory] = took.map(median);
    Ok(Figure {
        name: "rag_ingest",
        unit: "ms",
        value: ours,
        baseline: Some(durable),
        target: Target::AtMostTimes(1.0),
        remark: format!(
            "{} passages of {FILES} files, on the disk when it is answered; the baseline with a store in memory \
             alone, and without words, takes {} ms",
            stage.passages,
            round(memory)
        ),
    })
}

fn questions(
    kit: &BenchPrograms<'_>,
    stage: &Stage,
    ours: &mut StdioClient,
    theirs: &mut StdioClient,
) -> Result<Figure> {
    let (mut vector_us, mut hybrid_us, mut their_us) = (Vec::new(), Vec::new(), Vec::new());
    let mut equal = 0;
    for round in 0..=kit.rounds(ROUNDS) {
        for question in &stage.questions {
            let (there, found) =
                theirs.timed("find", &json!({ "question": question, "collection": COLLECTION }))?;
            let (vector, same) = ours.timed("rag_query", &asked(question, "vector"))?;
            let (hybrid, _) = ours.timed("rag_query", &asked(question, "hybrid"))?;
            if round == 0 {
                // It warms up.
                equal += usize::from(sources(&found) == sources(&same));
                continue;
            }
            for (all, took) in
                [(&mut vector_us, vector), (&mut hybrid_us, hybrid), (&mut their_us, there)]
            {
                all.push(took.as_secs_f64() * 1e6);
            }
        }
    }
    let all = stage.questions.len();
    ensure!(equal * 10 >= all * 9, "only {equal} of {all} answers are of the same passages");
    Ok(Figure {
        name: "rag_query",
        unit: "us",
        value: median(vector_us),
        baseline: Some(median(their_us)),
        target: Target::AtMostTimes(1.0),
        remark: format!(
            "the five most similar of {} passages, of the same files on both sides for {equal} of {all} \
             questions; with words, too, it is {} us",
            stage.passages,
            round(median(hybrid_us))
        ),
    })
}

fn asked(question: &str, mode: &str) -> Value {
    json!({ "question": question, "collection": COLLECTION, "topK": 5, "mode": mode })
}

fn sources(answer: &Value) -> Vec<&str> {
    let rows = answer["results"].as_array().map(Vec::as_slice).unwrap_or_default();
    rows.iter().filter_map(|row| row["source"].as_str()).collect()
}

/// The engine without a daemon. It ends when its input does.
struct BareEngine {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl BareEngine {
    fn start(kit: &BenchPrograms<'_>, stage: &Stage) -> Result<Self> {
        let mut command = kit.example("bare_engine");
        command.arg(stage.house.path().join("state/ingest")).arg(&stage.model);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("a piped child has an output")?);
        let mut bare = Self { child, input, output };
        let said = bare.line()?;
        ensure!(said == "ready", "the bare engine says `{said}`");
        Ok(bare)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    /// Asks; microseconds.
    fn ask(&mut self, question: &str) -> Result<f64> {
        writeln!(self.input.as_mut().context("it runs")?, "{question}")?;
        self.line()?.parse().context("the bare engine ended")
    }
}

impl Drop for BareEngine {
    fn drop(&mut self) {
        self.input = None;
        let _ended = self.child.wait();
    }
}
