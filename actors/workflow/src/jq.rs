//! Filters of jq: each is run by a process of the daemon's own program with bounds of its own, as a filter may be written
//! to run without an end, or to fill the memory.

use std::{
    io::{Read, Write},
    process::{ExitCode, Stdio},
    time::Duration,
};

use hivekeep_kernel::ToolError;
use jaq_core::{
    Compiler, Ctx, Vars, data,
    load::{Arena, File, Loader},
    unwrap_valr,
};
use jaq_json::{Val, read};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::{io::AsyncWriteExt, process::Command, sync::Semaphore};
use tokio_util::sync::CancellationToken;

/// Argument of the daemon's program that has it run [`jq_main`].
pub const JQ_ARGUMENT: &str = "jq-filter";
/// Program of this process, also where its file was replaced.
const SELF: &str = "/proc/self/exe";
/// Filters that run at a time.
const AT_ONCE: usize = 2;
/// Time of a filter, and of its processor.
const PATIENCE: Duration = Duration::from_secs(20);
const CPU_SECS: u64 = 15;
/// Address space of a filter.
const MEMORY_BYTES: u64 = 1024 * 1024 * 1024;
/// Largest request that is read.
const REQUEST_BYTES: u64 = 16 * 1024 * 1024;
/// Byte before the answer.
const ANSWER: u8 = 0x1e;

/// Filter with its input.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct JqRequest {
    pub(crate) filter: String,
    /// JSON: a value, or several.
    pub(crate) input: String,
    /// Texts as they are, not as JSON.
    pub(crate) raw: bool,
    pub(crate) most_bytes: usize,
}

/// Processes that run filters.
pub(crate) struct JqProcesses(Semaphore);

impl Default for JqProcesses {
    fn default() -> Self {
        Self(Semaphore::new(AT_ONCE))
    }
}

impl JqProcesses {
    /// Runs a filter; the values that come out, each in lines of its own.
    ///
    /// # Errors
    /// In words why there are none; `cancelled`.
    pub(crate) async fn run(
        &self,
        request: &JqRequest,
        cancel: &CancellationToken,
    ) -> Result<Result<String, String>, ToolError> {
        let work = async {
            // Nobody closes it.
            let _place = self.0.acquire().await;
            tokio::time::timeout(PATIENCE, answer_of(request)).await
        };
        match cancel.run_until_cancelled(work).await {
            None => Err(ToolError::cancelled()),
            Some(Err(_)) => Ok(Err(format!("it ran for more than {} s", PATIENCE.as_secs()))),
            Some(Ok(Err(error))) => Err(ToolError::internal(error.to_string())),
            Some(Ok(Ok(answer))) => Ok(answer),
        }
    }
}

async fn answer_of(request: &JqRequest) -> std::io::Result<Result<String, String>> {
    let mut command = Command::new(SELF);
    command.arg(JQ_ARGUMENT).env_clear().kill_on_drop(true);
    #[cfg(test)]
    command.args(["--exact", "jq::tests::child", "--nocapture"]).env(tests::CHILD, "1");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A child that ended early says why by its status.
        let _ended = stdin.write_all(&serde_json::to_vec(request)?).await;
    }
    let output = child.wait_with_output().await?;
    let answer = output.stdout.iter().position(|byte| *byte == ANSWER);
    let answer = answer.and_then(|at| {
        let answer = output.stdout.get(at + 1..)?;
        let mut values = serde_json::Deserializer::from_slice(answer).into_iter();
        values.next()?.ok()
    });
    Ok(answer
        .unwrap_or_else(|| Err(format!("it used too much memory or time ({})", output.status))))
}

/// Runs the filter of the request on the standard input, and writes the answer. Called as a program of its own, whose
/// bounds it sets: it reads nothing else, and has no environment.
pub fn jq_main() -> ExitCode {
    let bound = |most| Rlimit { current: Some(most), maximum: Some(most) };
    let bounds = [(Resource::As, MEMORY_BYTES), (Resource::Cpu, CPU_SECS), (Resource::Fsize, 0)];
    if bounds.into_iter().any(|(resource, most)| setrlimit(resource, bound(most)).is_err()) {
        return ExitCode::FAILURE;
    }
    let mut text = String::new();
    let read = std::io::stdin().take(REQUEST_BYTES).read_to_string(&mut text);
    let answer = match read.map(|_| serde_json::from_str::<JqRequest>(&text)) {
        Ok(Ok(request)) => filtered(&request),
        _ => Err(format!("the filter and its input are more than {REQUEST_BYTES} bytes")),
    };
    let mut out = vec![ANSWER];
    let written = serde_json::to_writer(&mut out, &answer).is_ok()
        && std::io::stdout().write_all(&out).is_ok();
    if written { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn filtered(request: &JqRequest) -> Result<String, String> {
    let defs = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
    let funs = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
    let arena = Arena::default();
    let program = File { code: request.filter.as_str(), path: () };
    let modules = Loader::new(defs).load(&arena, program);
    let modules = modules.map_err(|_| "the filter cannot be read".to_owned())?;
    let compiled = Compiler::default().with_funs(funs).compile(modules);
    let filter = compiled.map_err(|errors| {
        let names = errors.iter().flat_map(|(_, undefined)| undefined.iter().map(|it| it.0));
        let names: Vec<_> = names.take(5).collect();
        format!("the filter uses what is not there: {}", names.join(", "))
    })?;
    let mut out = String::new();
    for input in read::parse_many(request.input.as_bytes()) {
        let input = input.map_err(|error| format!("the input is not JSON: {error}"))?;
        let ctx = Ctx::<data::JustLut<Val>>::new(&filter.lut, Vars::new([]));
        for value in filter.id.run((ctx, input)).map(unwrap_valr) {
            let value = value.map_err(|error| error.to_string())?.to_string();
            out.push_str(&shown(value, request.raw));
            out.push('\n');
            if out.len() > request.most_bytes {
                return Err(format!("its output is longer than {} bytes", request.most_bytes));
            }
        }
    }
    Ok(out)
}

/// Value as it is written. What JSON has no form for stays as it is.
fn shown(value: String, raw: bool) -> String {
    match serde_json::from_str::<Value>(&value) {
        Ok(Value::String(text)) if raw => text,
        Ok(json) => serde_json::to_string_pretty(&json).unwrap_or(value),
        Err(_) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Variable that has the process of these tests be the one of a filter.
    pub(super) const CHILD: &str = "HIVEKEEP_JQ_CHILD";

    #[test]
    fn child() {
        if std::env::var_os(CHILD).is_some() {
            std::process::exit(i32::from(jq_main() != ExitCode::SUCCESS));
        }
    }

    async fn run(filter: &str, input: &str, raw: bool) -> Result<String, String> {
        let (filter, input) = (filter.to_owned(), input.to_owned());
        let request = JqRequest { filter, input, raw, most_bytes: 10_000 };
        let processes = JqProcesses::default();
        processes.run(&request, &CancellationToken::new()).await.expect("it runs")
    }

    #[tokio::test]
    async fn a_filter_leaves_its_values_or_says_why_not() {
        let people = r#"{"users": [{"name": "a", "on": true, "n": 1}, {"name": "b", "on": false, "n": 2.5}]}"#;
        for (filter, input, raw, out) in [
            (".users[].name", people, true, "a\nb\n"),
            (".users[0].name", people, false, "\"a\"\n"),
            (
                "[.users[] | select(.on) | {id: .name}]",
                people,
                false,
                "[\n  {\n    \"id\": \"a\"\n  }\n]\n",
            ),
            (".users | map(.n) | add", people, false, "3.5\n"),
            (".", "1 2", false, "1\n2\n"),
            ("group_by(.) | map(length)", "[2, 1, 2]", true, "[\n  1,\n  2\n]\n"),
            ("env | del(.HIVEKEEP_JQ_CHILD)", "null", false, "{}\n"),
        ] {
            assert_eq!(run(filter, input, raw).await.as_deref(), Ok(out), "{filter}");
        }
        for (filter, input, why) in [
            (".[", "1", "cannot be read"),
            ("nothing(1)", "1", "not there"),
            (".a", "1", "index"),
            (".", "{", "not JSON"),
            // Its memory or its processor time is over, or on a busy host the time of the call.
            ("[range(1e12)]", "1", ""),
            ("def f: f; f", "1", ""),
            ("\"x\" * 1e9", "1", ""),
            ("range(1e9)", "1", "longer than"),
            ("input_filename, include \"x\";", "1", "cannot be read"),
        ] {
            let told = run(filter, input, false).await.expect_err(filter);
            assert!(told.contains(why), "{filter}: {told}");
        }
    }
}
