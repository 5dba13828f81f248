# `just --list` shows these; each is one command of cargo, which CONTRIBUTING.md explains.

_default:
    @just --list

# Install what this machine lacks
setup:
    cargo xtask setup

# See it work: build, and play the main job on this repository
demo *OPTIONS:
    cargo xtask demo {{OPTIONS}}

# Build the daemon, and the daemon of the guests
build:
    cargo build
    cargo xtask guest

# Run the tests of one crate, or of one module of the root's: just test team, just test vm::snapshots
test CRATE *FILTER:
    cargo xtask t {{CRATE}} {{FILTER}}

# Check what changed and what depends on it
quick *OPTIONS:
    cargo xtask test --quick {{OPTIONS}}

# Check everything, as it is done before a change is taken
ci:
    cargo xtask test

# Try to get out of each kind of wall
containment *OPTIONS:
    cargo xtask containment {{OPTIONS}}

# Write the pages that are generated from the declarations
docs:
    cargo xtask docs

# Format the code
fmt:
    cargo fmt --all
