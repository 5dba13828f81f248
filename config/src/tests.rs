use std::path::PathBuf;

use serde_json::Value;

use super::{Config, ConfigProblems, ConfigSources, ProblemSource, load, shipped};

fn given(env: &[(&str, &str)], flags: &[&str]) -> ConfigSources {
    let own = |text: &&str| ("--set".to_owned(), (*text).to_owned());
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let mut env: Vec<_> = env.iter().map(pair).collect();
    env.push(("HOME".to_owned(), "/people/ada".to_owned()));
    ConfigSources {
        file: None,
        flags: flags.iter().map(own).collect(),
        env,
        root: false,
        uid: 1000,
    }
}

fn with_file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("config.toml");
    std::fs::write(&path, text).expect("writes");
    (dir, path)
}

fn refused(given: &ConfigSources) -> Vec<String> {
    match load(given) {
        Ok(loaded) => panic!("accepted: {:?}", loaded.config),
        Err(ConfigProblems(problems)) => problems.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn later_layers_win_and_each_value_knows_its_source() {
    let (_dir, path) = with_file(
        "[daemon]\nlog_level = \"warn\"\nlog_files_kept = 3\n[registry.rate]\nexec_burst = 7\n",
    );
    let mut given = given(
        &[("HIVEKEEP_DAEMON__LOG_FILES_KEPT", "4"), ("HIVEKEEP_HTTP__MCP__ENABLED", "true")],
        &["daemon.log_level=debug"],
    );
    given.file = Some(path.clone());
    let loaded = load(&given).expect("holds");
    let daemon = &loaded.config.daemon;
    assert_eq!((daemon.log_level.as_str(), daemon.log_files_kept), ("debug", 4));
    assert!(loaded.config.http.mcp.listener.enabled);
    assert_eq!(loaded.config.registry.rate.exec_burst.get(), 7);
    let source = |key: &str| {
        loaded.entries.iter().find(|entry| entry.key == key).expect("listed").source.clone()
    };
    assert_eq!(source("daemon.log_level"), ProblemSource::Flag { name: "--set".to_owned() });
    let env = ProblemSource::Env { name: "HIVEKEEP_DAEMON__LOG_FILES_KEPT".to_owned() };
    assert_eq!(source("daemon.log_files_kept"), env);
    assert_eq!(source("registry.rate.exec_burst"), ProblemSource::File { path, line: 5 });
    assert_eq!(source("store.cache_mb"), ProblemSource::Default);
}

#[test]
fn the_journal_lets_through_what_swarms_write() {
    let least = given(&[], &["store.max_record_kb=512", "store.max_snapshot_kb=12288"]);
    load(&least).expect("holds");
    for (key, value) in [("max_record_kb", 511), ("max_snapshot_kb", 12_287)] {
        let problems = refused(&given(&[], &[&format!("store.{key}={value}")]));
        let told = format!("--set: store.{key}: must be at least {}, for swarms", value + 1);
        assert_eq!(problems, [told]);
    }
}

#[test]
fn every_error_of_every_layer_is_told_at_once_with_its_place() {
    let (_dir, path) = with_file(
        "[daemon]\nlog_file_mb = \"big\"\nlogs = 1\n\n[deamon]\nlog_level = \"info\"\n\
         [http.mcp]\nbind = \"0.0.0.0:1\"\n",
    );
    let file = path.display().to_string();
    let mut given = given(
        &[("HIVEKEEP_STORE__CACHE_MB", "-1"), ("HIVEKEEP_LOG", "x"), ("HIVEKEEP_HOME", "/tmp/h")],
        &["daemon.max_connections", "registry=1"],
    );
    given.file = Some(path);
    let problems = refused(&given);
    let expected = [
        format!("{file}:2: daemon.log_file_mb: invalid type: string \"big\", expected u64"),
        format!("{file}:3: daemon.logs: there is no such key"),
        format!("{file}:5: deamon: there is no such key"),
        format!(
            "{file}:8: http.mcp.bind: 0.0.0.0 is not a loopback address: set `tls_cert` and `tls_key`"
        ),
        "$HIVEKEEP_LOG: log: there is no such key".to_owned(),
        "--set: daemon.max_connections: expected SECTION.KEY=VALUE".to_owned(),
        "--set: registry: this is a section, not a key".to_owned(),
    ];
    for line in &expected {
        assert!(problems.contains(line), "missing: {line}\nin: {problems:#?}");
    }
    assert!(
        problems.iter().any(|line| line.starts_with("$HIVEKEEP_STORE__CACHE_MB: store.cache_mb:"))
    );
    assert_eq!(problems.len(), expected.len() + 1, "{problems:#?}");
}

#[test]
fn every_bound_that_a_key_declares_is_held() {
    fn walk(key: &str, schema: &Value, found: &mut Vec<(String, i64)>) {
        let (least, most) = super::bounds(schema);
        found.extend(least.map(|least| (key.to_owned(), least - 1)));
        found.extend(most.map(|most| (key.to_owned(), most + 1)));
        for (name, below) in schema["properties"].as_object().into_iter().flatten() {
            let dot = if key.is_empty() { "" } else { "." };
            walk(&format!("{key}{dot}{name}"), below, found);
        }
    }
    let mut beyond = Vec::new();
    walk("", &super::schema(), &mut beyond);
    assert!(beyond.len() > 40, "{beyond:?}");
    let most = given(&[], &["http.api.max_body_mb=18446744073709551615"]);
    assert!(refused(&most)[0].ends_with("must be from 1 to 1024"));
    for (key, value) in beyond {
        let told = refused(&given(&[], &[&format!("{key}={value}")]));
        assert!(told.iter().any(|line| line.contains(&key)), "{key}={value}: {told:?}");
    }
}

#[test]
fn names_of_the_release_before_are_read_and_told() {
    let (_dir, path) = with_file(
        "[mcp_http]\nenabled = true\nallowed_hosts = [\"a\"]\n[http_api]\nmax_requests = 7\n\
         allowed_hosts = [\"b\"]\nheader_timeout_secs = 9\n[doors.e2b]\nheader_timeout_secs = 20\n\
         [doors.e2b.templates]\nbase = \"mine\"\n[port_urls]\nidle_timeout_secs = 5\n",
    );
    let old = ConfigSources {
        file: Some(path.clone()),
        ..given(&[("HIVEKEEP_HTTP_API__MAX_STREAMS", "3")], &["http.api.max_requests=8"])
    };
    let loaded = load(&old).expect("holds");
    let http = &loaded.config.http;
    assert!(http.mcp.listener.enabled);
    assert_eq!(http.allowed_hosts, ["b", "a"], "of both doors");
    assert_eq!((http.header_timeout_secs, http.body_timeout_secs), (20, 5));
    assert_eq!((http.api.max_requests, http.api.max_streams), (8, 3), "a later layer wins");
    assert_eq!(http.e2b.templates["base"], "mine");
    assert_eq!(loaded.renamed.len(), 9);
    let told: Vec<_> = loaded.renamed.iter().map(ToString::to_string).collect();
    let first = format!("{}:2: mcp_http.enabled: this is `http.mcp.enabled` now;", path.display());
    assert!(told.iter().any(|line| line.starts_with(&first)), "{told:?}");
    let (_dir, path) = with_file(
        "[http_api]\nmax_clients = 7\n[doors.x]\ny = 1\n[hub]\nmax_connections = 1\n\
         [mcp_http]\nheader_timeout_secs = 1\n",
    );
    let unknown = refused(&ConfigSources { file: Some(path), ..given(&[], &[]) });
    assert!(unknown.iter().all(|line| line.ends_with("there is no such key")), "{unknown:?}");
    assert_eq!(unknown.len(), 4);
}

#[test]
fn a_file_that_is_no_toml_is_told_with_its_line() {
    let (_dir, path) = with_file("[daemon]\nlog_level = \n");
    let mut given = given(&[], &[]);
    given.file = Some(path.clone());
    let problems = refused(&given);
    assert!(problems[0].starts_with(&format!("{}:2: ", path.display())), "{problems:?}");
}

#[test]
fn a_named_file_must_be_there_and_a_searched_one_need_not() {
    let mut missing = given(&[], &[]);
    assert_eq!(load(&missing).expect("the defaults hold").file, None);
    missing.file = Some("/no/such/file.toml".into());
    assert!(refused(&missing)[0].contains("cannot be read"));
    assert_eq!(refused(&given(&[("HIVEKEEP_CONFIG", "/no/such")], &[])).len(), 1);
}

#[test]
fn text_is_read_as_what_the_key_takes() {
    let env = [
        ("HIVEKEEP_DAEMON__LOG_LEVEL", "info"),
        ("HIVEKEEP_HTTP__ALLOWED_HOSTS", r#"["a", "b"]"#),
        ("HIVEKEEP_DAEMON__STATE_DIR", "/srv/state"),
    ];
    let loaded = load(&given(&env, &[])).expect("holds");
    assert_eq!(loaded.config.http.allowed_hosts, ["a", "b"]);
    assert_eq!(loaded.folders.state, PathBuf::from("/srv/state"));
    // A text that looks like a number stays text where text is meant.
    let loaded = load(&given(&[("HIVEKEEP_DAEMON__STATE_DIR", "/1")], &[])).expect("holds");
    assert_eq!(loaded.folders.state, PathBuf::from("/1"));
}

#[test]
fn classes_of_the_pool_come_as_tables_of_a_file_or_as_json() {
    let (_dir, path) = with_file(
        "[workspace.pool]\nmax_memory_mb = 1024\n[[workspace.pool.classes]]\nready = 2\n\
         memory_mb = 256\n[[workspace.pool.classes]]\nready = 1\nvcpus = 1\n",
    );
    let from_file = ConfigSources { file: Some(path.clone()), ..given(&[], &[]) };
    let pool = load(&from_file).expect("holds").config.workspace.pool;
    assert_eq!((pool.classes.len(), pool.classes[0].ready, pool.classes[1].vcpus), (2, 2, Some(1)));
    let key = "HIVEKEEP_WORKSPACE__POOL__CLASSES";
    let more =
        ConfigSources { file: Some(path.clone()), ..given(&[(key, r#"[{"ready": 9}]"#)], &[]) };
    let problems = refused(&more);
    let told = format!("{}:2: workspace.pool.max_memory_mb: ", path.display());
    assert!(
        problems.iter().any(|line| line.starts_with(&told) && line.contains("which want 4608 MiB")),
        "{problems:#?}"
    );
    assert!(!refused(&given(&[(key, r#"[{"redy": 1}]"#)], &[])).is_empty());
}

#[test]
fn credentials_of_git_are_named_and_never_held() {
    let (_dir, path) = with_file(
        "[[git.credentials]]\nhost = \"example.org\"\ntoken_file = \"/etc/hivekeep/token\"\n\
         [[git.credentials]]\nhost = \"*.example.net\"\nusername = \"me\"\ntoken_env = \"TOKEN\"\n",
    );
    let from_file = ConfigSources { file: Some(path), ..given(&[], &[]) };
    let git = load(&from_file).expect("holds").config.git;
    assert_eq!((git.credentials.len(), git.credentials[1].username.as_deref()), (2, Some("me")));
    let key = "HIVEKEEP_GIT__CREDENTIALS";
    for wrong in [
        r#"[{"host": "example.org", "token": "s3cr3t"}]"#,
        r#"[{"host": "example.org"}]"#,
        r#"[{"host": "example.org", "token_env": "A", "token_file": "/b"}]"#,
    ] {
        let problems = refused(&given(&[(key, wrong)], &[])).join(" ");
        assert!(problems.contains("git.credentials") && !problems.contains("s3cr3t"), "{problems}");
    }
}

#[test]
fn folders_follow_the_user() {
    let folders = |given: &ConfigSources| load(given).expect("holds").folders;
    let mine = folders(&given(&[("XDG_RUNTIME_DIR", "/run/user/1000")], &[]));
    assert_eq!(mine.state, PathBuf::from("/people/ada/.local/state/hivekeep"));
    assert_eq!(mine.socket, PathBuf::from("/run/user/1000/hivekeep/hivekeep.sock"));
    assert_eq!(mine.logs, mine.state.join("logs"));
    assert_eq!(folders(&given(&[], &[])).run, PathBuf::from("/tmp/hivekeep-1000"));
    let root = folders(&ConfigSources { root: true, ..given(&[], &[]) });
    assert_eq!(root.state, PathBuf::from("/var/lib/hivekeep"));
    assert_eq!(root.logs, PathBuf::from("/var/log/hivekeep"));
    let home = folders(&ConfigSources { root: true, ..given(&[("HIVEKEEP_HOME", "/h")], &[]) });
    assert_eq!((home.state, home.run), (PathBuf::from("/h/state"), PathBuf::from("/h/run")));
    let long = format!("/{}", "x".repeat(120));
    assert!(refused(&given(&[("HIVEKEEP_HOME", &long)], &[]))[0].contains("at most 107"));
    assert!(refused(&given(&[("HIVEKEEP_HOME", "relative")], &[]))[0].contains("absolute"));
}

#[test]
fn the_shipped_file_is_generated_states_every_key_and_means_the_defaults() {
    let text = shipped();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../config.toml");
    let on_disk = std::fs::read_to_string(path).unwrap_or_default();
    assert!(on_disk == text, "config.toml is stale: run `hivekeep config --default > config.toml`");
    let (_dir, file) = with_file(&text);
    let mut given = given(&[], &[]);
    given.file = Some(file);
    let loaded = load(&given).expect("the shipped file holds");
    assert_eq!(loaded.config, super::Config::default());
    for entry in &loaded.entries {
        let stated = matches!(entry.source, ProblemSource::File { .. });
        // A key without a default is shown as a comment: TOML has no null.
        let key = entry.key.rsplit('.').next().expect("a key");
        assert!(stated || text.contains(&format!("# {key} =")), "{} is not stated", entry.key);
    }
}

/// A key that the defaults do not say is a key that cannot be set.
#[test]
fn every_key_of_a_section_is_known() {
    fn unknown(path: &str, known: &Value, schema: &Value, found: &mut Vec<String>) {
        let Some(keys) = known.as_object().filter(|keys| !keys.is_empty()) else { return };
        let Some(declared) = schema["properties"].as_object() else { return };
        for (key, below) in declared {
            match keys.get(key) {
                Some(value) => unknown(&format!("{path}{key}."), value, below, found),
                None => found.push(format!("{path}{key}")),
            }
        }
    }
    let known = serde_json::to_value(super::Config::default()).expect("plain data");
    let mut found = Vec::new();
    unknown("", &known, &super::schema(), &mut found);
    assert!(found.is_empty(), "without `skip_serializing_if` they can be set: {found:?}");
}

#[test]
fn every_key_is_explained() {
    let text = shipped();
    let mut explained = false;
    for line in text.lines() {
        match line.trim_start().strip_prefix('#') {
            Some(comment) if !comment.trim_end().ends_with(" =") && !comment.contains(" =  # ") => {
                explained = true;
            }
            _ if line.is_empty() => explained = false,
            // Rows of a list, and its end.
            _ if line.starts_with("    ") || line == "]" => {}
            _ => {
                assert!(explained, "no explanation above `{line}`");
                explained = false;
            }
        }
    }
}

#[test]
fn there_is_a_worker_on_any_host_and_as_many_as_were_asked_for() {
    let given = |threads| given(&[("HIVEKEEP_DAEMON__WORKER_THREADS", threads)], &[]);
    assert!(Config::default().daemon.workers() >= 1);
    assert_eq!(load(&given("3")).expect("holds").config.daemon.workers(), 3);
    for threads in ["0", "513"] {
        let problems = refused(&given(threads));
        assert!(problems[0].contains("worker_threads"), "{problems:?}");
    }
}

#[test]
fn the_example_of_tiers_holds_and_a_kind_that_nobody_keeps_is_refused() {
    let example = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/tiers.toml"));
    let mut own = given(&[], &[]);
    own.file = Some(example);
    let tiers = load(&own).expect("holds").config.registry.tiers;
    assert_eq!(tiers["free"].holds["scripts"], 5);
    let (_dir, path) = with_file("[registry.tiers.free]\nholds = { scrips = 5 }\n");
    own.file = Some(path);
    let problems = refused(&own);
    assert!(
        problems[0].contains("`scrips` is not one of volumes, volume_mb, scripts"),
        "{problems:?}"
    );
}
