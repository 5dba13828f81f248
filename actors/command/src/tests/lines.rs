//! The allow list against real shells: whatever line passes, no program runs that is not listed.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use tempfile::TempDir;

use super::restricted;
use crate::options::{Rules, Runnable};

/// Shells that lines are run by.
const SHELLS: [&str; 2] = ["/bin/sh", "/bin/bash"];
/// Programs there are. Each says its name, and its first argument, where it is run.
const PROGRAMS: [&str; 5] = ["ok", "sub", "bad", "rm", "time"];

fn rules() -> Rules {
    Rules::new(&restricted(&["ok", "sub one"], true))
}

/// A folder that is all of PATH, and what ran there.
struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("bin")).expect("made");
        std::fs::create_dir(folder.path().join("cwd")).expect("made");
        for program in PROGRAMS {
            let path = folder.path().join("bin").join(program);
            let script = format!("#!/bin/sh\nprintf '%s\\0' \"{program} $1\" >> \"$LOG\"\n");
            std::fs::write(&path, script).expect("written");
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("set");
        }
        Self(folder)
    }

    /// What a shell runs for a line.
    fn runs(&self, shell: &str, line: &str) -> Vec<String> {
        let log = self.0.path().join("log");
        std::fs::write(&log, "").expect("written");
        let mut command = Command::new(shell);
        command.arg("-c").arg(line).current_dir(self.0.path().join("cwd"));
        command.env_clear().env("PATH", self.0.path().join("bin")).env("LOG", &log);
        command.env("bad", "bad").stdin(std::process::Stdio::null());
        let _whatever = command.output().expect("the shell runs");
        // An argument may have lines.
        let log = std::fs::read_to_string(log).expect("a log");
        log.split_terminator('\0').map(str::to_owned).collect()
    }
}

fn shells() -> Vec<&'static str> {
    SHELLS.into_iter().filter(|shell| Path::new(shell).exists()).collect()
}

/// Pieces of lines, most of them meant to get something past a judge.
fn piece() -> impl Strategy<Value = String> {
    let plain = prop::sample::select(vec![
        "ok", "ok", "sub", "sub one", "bad", "rm", "time", "one", "x", "'a b'", "\"c d\"", "a\\ b",
        "''", "{}", "*", "~", "[a]", "-n", "'", "\"", "\\", "\\\n", "=",
    ]);
    let joined = prop::sample::select(vec![
        ";", "&&", "||", "|", "&", "\n", "|&", "&>", ";;", "!", "(", ")", "{", "}", "((", "))",
        "[[", "]]",
    ]);
    let tricks = prop::sample::select(vec![
        "$(bad)",
        "`bad`",
        "<(bad)",
        ">(bad)",
        "$bad",
        "${bad}",
        "\"$(bad)\"",
        "$'\\'; bad #'",
        "<<E\n$(bad)\nE\n",
        "<<< bad",
        "> out",
        ">> out bad",
        "> out bad",
        "2>&1",
        "2>&1 bad",
        "< in bad",
        ">| out",
        "<> out",
        ">&out",
        "A=1",
        "A=1 bad",
        "PATH=/x",
        "A=$(bad)",
        "ok() { bad; }",
        "function ok { bad; }",
        "eval bad",
        "exec bad",
        "command bad",
        ". ./bad",
        "if ok; then bad; fi",
        "while ok; do bad; break; done",
        "for i in 1; do bad; done",
        "case x in x) bad;; esac",
        "coproc bad",
        "select x in a; do bad; done",
        "alias ok=bad",
        "trap bad EXIT",
        "# bad",
        "ok # \n bad",
        "$((a[$(bad)]))",
        "a[$(bad)]=1",
        "{bad,ok}",
        "b{a,}d",
        "b'a'd",
        "\"bad\"",
        "b\\ad",
        "\u{a0}bad",
        "\rbad",
        "\u{b}bad",
        "\u{c}bad",
        "!bad",
        "~bad",
        "@(bad)",
        "$[1]",
        "$\"bad\"",
        "if",
        "then",
        "fi",
        "do",
        "done",
        "esac",
        "in",
        "\u{2028}bad",
        "ok\u{0}bad",
        "E\n",
        "<<-E\n\tbad\n",
        "<<'E'\nbad\nE\n",
    ]);
    prop_oneof![5 => plain, 3 => joined, 3 => tricks].prop_map(str::to_owned)
}

fn line() -> impl Strategy<Value = String> {
    let separator = prop::sample::select(vec![" ", " ", " ", "", "\t", "\n"]);
    prop::collection::vec((piece(), separator), 1..9)
        .prop_map(|pieces| pieces.into_iter().map(|(piece, gap)| piece + gap).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]
    #[test]
    fn no_line_that_passes_runs_an_unlisted_program(line in line()) {
        let judged = [rules().script(&line).ok().map(Runnable::Script), rules().line(&line).ok()];
        for runnable in judged.into_iter().flatten() {
            let script = match runnable {
                Runnable::Script(script) => script,
                Runnable::Program(argv) => {
                    prop_assert!(argv[0] == "ok" || argv[..2] == ["sub", "one"], "{argv:?}");
                    continue;
                }
            };
            let bench = Bench::new();
            for shell in shells() {
                for ran in bench.runs(shell, &script) {
                    let listed = ran.starts_with("ok ") || ran == "sub one";
                    prop_assert!(listed, "{line:?} as {script:?} runs {ran:?} in {shell}");
                }
            }
        }
    }

    #[test]
    fn words_arrive_as_they_were_quoted(
        words in prop::collection::vec("[^\\p{Cc}\\p{Zs}\\p{Zl}\\p{Zp}]{0,6}( [a-z$`*~;]{0,3})?", 1..5),
    ) {
        let quoted: Vec<_> =
            words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
        let line = format!("ok {}", quoted.join(" "));
        let argv = match Rules::default().line(&line) {
            Ok(Runnable::Program(argv)) => argv,
            other => return Err(TestCaseError::fail(format!("{line:?}: {other:?}"))),
        };
        prop_assert_eq!(&argv[1..], &words[..]);
    }
}

#[test]
fn lines_of_every_day_pass_and_do_what_they_say() {
    let bench = Bench::new();
    for (line, ran) in [
        ("ok", "ok \n"),
        ("ok a && sub one b || ok c", "ok a\nsub one\n"),
        ("ok 1; ok 2 &\nwait", ""),
        ("ok 1; ok 2\nok 3", "ok 1\nok 2\nok 3\n"),
        ("! ok 1 || ok 2", "ok 1\nok 2\n"),
        ("(ok 1; ok 2) > out 2>&1", "ok 1\nok 2\n"),
        ("ok \"a 'b' \\\"c\\\"\" | sub one < /dev/null >> out", "ok a 'b' \"c\"\nsub one\n"),
        ("ok # a comment", "ok \n"),
        ("'o'k a\\;b", "ok a;b\n"),
        ("ok -exec {} \\;", "ok -exec\n"),
    ] {
        let passed = rules().script(line);
        if ran.is_empty() {
            assert!(passed.is_err(), "`wait` is not listed");
            continue;
        }
        let script = passed.unwrap_or_else(|error| panic!("{line}: {error}"));
        for shell in shells() {
            let mut said = bench.runs(shell, &script);
            said.sort_unstable();
            let mut wanted: Vec<_> = ran.lines().map(str::to_owned).collect();
            wanted.sort_unstable();
            assert_eq!(said, wanted, "{line:?} as {script:?} in {shell}");
        }
    }
}

#[test]
fn lines_are_run_by_each_shell() {
    let bench = Bench::new();
    for shell in SHELLS {
        match Path::new(shell).exists() {
            true => assert_eq!(bench.runs(shell, "ok"), ["ok "], "{shell}"),
            false => hivekeep_skip::skip(format_args!("lines in {shell}: it is not there")),
        }
    }
}

#[test]
fn a_line_as_deep_or_as_long_as_may_be_is_answered() {
    for line in ["(".repeat(16_000), "$(".repeat(8_000), "{ ".repeat(8_000), "a[".repeat(8_000)] {
        assert!(rules().script(&line).is_err());
    }
    assert!(rules().script(&format!("ok {}", "x".repeat(17_000))).is_err());
    let many = vec!["ok"; 3_000].join("&&");
    assert!(rules().script(&many).is_ok());
}
