//! What the workers do: small changes of this repository that a shell can make and test.

use serde_json::{Value, json};

/// One worker's change.
pub struct Change {
    pub name: &'static str,
    /// The one file that it changes or makes.
    pub file: &'static str,
    /// Makes it, in the repository's root.
    pub edit: &'static str,
    /// Exits with 0 if it is right, in the worker and after the merge.
    pub test: &'static str,
    /// Of its commit.
    pub subject: &'static str,
}

/// No two change the same file, so that they merge; each test is about the whole repository.
pub const CHANGES: [Change; 4] = [
    Change {
        name: "decisions",
        file: "docs/decisions/COUNT.md",
        edit: "echo \"$(ls docs/decisions/[0-9]*.md | wc -l) decisions.\" > docs/decisions/COUNT.md",
        test: "set -e
            for page in docs/decisions/[0-9]*.md; do
                grep -q \"($(basename $page))\" docs/decisions/README.md
            done
            [ \"$(cut -d' ' -f1 docs/decisions/COUNT.md)\" = \"$(grep -c '^| \\[0' docs/decisions/README.md)\" ]",
        subject: "Decisions: how many there are",
    },
    Change {
        name: "guides",
        file: "docs/guides/README.md",
        edit: "{ echo '# Guides'; echo
            for page in docs/guides/a-*.md; do
                echo \"- [$(sed -n '1s/^# //p' $page)]($(basename $page))\"
            done; } > docs/guides/README.md",
        test: "set -e
            for page in $(sed -n 's/.*(\\(.*\\))$/\\1/p' docs/guides/README.md); do
                [ -s docs/guides/$page ]
            done
            [ \"$(grep -c '^- ' docs/guides/README.md)\" = \"$(ls docs/guides/a-*.md | wc -l)\" ]",
        subject: "Guides: a list of them",
    },
    Change {
        name: "lines",
        file: "docs/lines.md",
        edit: "for top in actors src tests xtask; do
                echo \"$top $(git ls-files $top | grep '\\.rs$' | xargs cat | wc -l)\"
            done > docs/lines.md",
        test: "[ \"$(awk '{ sum += $2 } END { print sum }' docs/lines.md)\" = \\
            \"$(git ls-files actors src tests xtask | grep '\\.rs$' | xargs cat | wc -l)\" ]",
        subject: "Docs: lines of Rust by folder",
    },
    Change {
        name: "readme",
        file: "README.md",
        edit: "sed -i '1s/$/, seen by a swarm/' README.md",
        test: "sed -n 1p README.md | grep -q 'seen by a swarm$'",
        subject: "README: seen by a swarm",
    },
];

impl Change {
    /// As `swarm_run` wants it: on a branch of its own, tested before and checked after the commit.
    pub fn task(&self) -> Value {
        let Self { name, file, edit, test, subject } = self;
        let command = format!(
            "set -e
            git switch -q -c {name}
            {edit}
            ( {test}
            ) || {{ echo 'the test fails' >&2; exit 1; }}
            git add {file}
            git diff --cached --check
            git commit -q -m '{subject}'
            [ -z \"$(git status --porcelain)\" ]
            echo \"tested and committed {file} on the branch $(git branch --show-current)\""
        );
        json!({ "name": name, "command": command, "workdir": "/workspace" })
    }
}
