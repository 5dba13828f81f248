//! Section `[assistant]`, and which commands it takes for builds.

use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tools of an editor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Processes that are builds, by the first words of their command: "cargo build" is one with any arguments
    /// behind it, wherever the program is. Of `sh -c LINE` each command of the line counts.
    pub builds: Vec<String>,
}

/// Builds of common tools.
const COMMON: &str = "bazel build, bazel test, cargo build, cargo check, cargo clippy, cargo nextest, cargo test, \
    cmake --build, docker build, dotnet build, dotnet test, go build, go test, gradle, gradlew, make, mvn, ninja, \
    npm run build, npm test, pnpm build, pnpm run build, pytest, python3 -m build, python3 -m pytest, tox, \
    yarn build, yarn run build";

impl Default for Options {
    fn default() -> Self {
        Self { builds: COMMON.split(", ").map(str::to_owned).collect() }
    }
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        let nameless = |rule: &&String| {
            rule.split_ascii_whitespace().next().is_none_or(|program| program.contains('/'))
        };
        let why = |rule: &String| {
            ("builds", format!("{rule:?} does not begin with a program's name, without its folder"))
        };
        self.builds.iter().filter(nameless).map(why).collect()
    }
}

/// Shells whose `-c` is looked into.
const SHELLS: [&str; 5] = ["ash", "bash", "dash", "sh", "zsh"];

/// Commands that are builds. A match is a matter of what is listed and permits nothing, so quotes are not read:
/// a line that only prints the words of one counts as well.
#[derive(Debug, Clone)]
pub(crate) struct BuildCommands(Vec<Vec<String>>);

impl BuildCommands {
    pub(crate) fn new(options: &Options) -> Self {
        let words = |rule: &String| rule.split_ascii_whitespace().map(str::to_owned).collect();
        Self(options.builds.iter().map(words).collect())
    }

    /// Whether a program with its arguments is a build.
    pub(crate) fn matches(&self, program: &str, args: &[String]) -> bool {
        match shell_line(program, args) {
            Some(line) => line.split([';', '&', '|', '\n', '(', ')']).any(|command| {
                // Variables stand before the program.
                let mut words = command.split_whitespace().skip_while(|word| word.contains('='));
                words.next().is_some_and(|program| self.begins(program, words))
            }),
            None => self.begins(program, args.iter().map(String::as_str)),
        }
    }

    fn begins<'a>(&self, program: &'a str, args: impl Iterator<Item = &'a str>) -> bool {
        let words: Vec<_> = std::iter::once(file_name(program)).chain(args).collect();
        let is_rule = |rule: &Vec<String>| {
            rule.len() <= words.len() && rule.iter().zip(&words).all(|(rule, word)| rule == word)
        };
        self.0.iter().any(is_rule)
    }
}

/// Last part of a path.
pub(crate) fn file_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

/// The line of `sh -c LINE`.
fn shell_line<'a>(program: &str, args: &'a [String]) -> Option<&'a str> {
    let option = args.iter().position(|arg| arg.starts_with('-') && arg.ends_with('c'))?;
    let line = args.get(option + 1).filter(|_| SHELLS.contains(&file_name(program)));
    line.map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_told_by_its_first_words_wherever_it_is_and_in_lines_of_a_shell() {
        let commands = BuildCommands::new(&Options::default());
        let is = |line: &[&str]| {
            let args: Vec<_> = line[1..].iter().map(|arg| (*arg).to_owned()).collect();
            commands.matches(line[0], &args)
        };
        for build in [
            &["cargo", "build", "--release"][..],
            &["/usr/bin/make"],
            &["./gradlew", "assemble"],
            &["sh", "-c", "cd app && RUSTFLAGS=-g A= cargo test | tee log"],
            &["/bin/bash", "-e", "-lc", "./configure\nmake -j2"],
        ] {
            assert!(is(build), "{build:?}");
        }
        for other in [
            &["cargo"][..],
            &["cargo", "run"],
            &["makeinfo"],
            &["sh", "-c", "cargo run"],
            &["sh", "make"],
            &["sh", "-c"],
            &["vim", "-c", "make"],
        ] {
            assert!(!is(other), "{other:?}");
        }
        let bad = Options { builds: ["", "/usr/bin/make", "make"].map(str::to_owned).to_vec() };
        assert_eq!(bad.problems().len(), 2, "{:?}", bad.problems());
        assert!(Options::default().problems().is_empty());
    }
}
