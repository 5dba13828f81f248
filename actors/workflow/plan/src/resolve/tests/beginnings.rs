use hivekeep_manifest::dag::DagManifest;

use super::*;

fn dag(dag: Value) -> DagManifest {
    let mut dag = dag;
    dag["steps"] = json!([]);
    serde_json::from_value(dag).expect("a DAG")
}

/// Record of a beginning, whose commands print what stands for them here, and fail otherwise.
fn begin(
    dag: &DagManifest,
    facts: RunFacts,
    outputs: &[(&str, &str)],
) -> Result<RunBeginning, BeginError> {
    let mut begin = Begin::new(dag, facts)?;
    let mut answer = BeginAnswer::Start;
    loop {
        answer = match begin.next(answer)? {
            BeginNeed::Command { line, env } => {
                let line = line.replace("$SHELL_READS", env.get("SHELL_READS").map_or("", |it| it));
                let output = outputs.iter().find(|(known, _)| *known == line);
                let failed = || BeginAnswer::Failed(format!("`{line}` has no output here"));
                output.map_or_else(failed, |(_, output)| BeginAnswer::Output((*output).to_owned()))
            }
            BeginNeed::DotenvFiles(paths) => {
                let files = paths.into_iter().filter_map(|path| {
                    let text = outputs.iter().find(|(known, _)| *known == path)?.1.to_owned();
                    Some((path, text))
                });
                BeginAnswer::Files(files.collect())
            }
            BeginNeed::Done(beginning) => return Ok(beginning),
        };
    }
}

fn given(text: &str) -> RunFacts {
    RunFacts { given: GivenParams::from_text(text), ..RunFacts::default() }
}

/// Parameters of a declaration and a text, as JSON, or the error's text.
fn params(declared: Value, text: &str) -> String {
    let dag = dag(json!({ "params": declared }));
    let begun = begin(&dag, given(text), &[("echo 1", "1\n"), ("echo prod-x", "y")]);
    begun.map_or_else(|error| error.to_string(), |it| it.params.to_json().unwrap_or_default())
}

#[test]
fn parameters_are_taken_in_each_form() {
    let named = json!([{ "A": "x" }, { "B": 2 }]);
    let typed = json!([
        { "name": "env", "default": "dev", "enum": ["dev", "prod"] },
        { "name": "size", "type": "integer", "required": true, "minimum": 1, "maximum": 9 },
        { "name": "dry", "type": "boolean", "default": false },
        { "name": "tag", "pattern": "^v[0-9]+$", "min_length": 2, "max_length": 4 },
    ]);
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["env"],
        "properties": {
            "size": { "type": "integer", "default": 3, "maximum": 9 },
            "env": { "type": "string", "enum": ["dev", "prod"] },
            "list": { "type": "array", "items": { "type": "integer" } },
        },
    });
    for (declared, text, expected) in [
        (json!("a b"), "", r#"{"1":"a","2":"b"}"#),
        (json!("a b"), "x", r#"{"1":"x","2":"b"}"#),
        (json!("a K=v \"c d\""), "x y z w", r#"{"1":"x","K":"y","2":"z","4":"w"}"#),
        (json!("A=1 B='x y'"), "B=2", r#"{"A":"1","B":"2"}"#),
        (json!(["A=1=2", "text", 3]), "", r#"{"A":"1=2","1":"text","2":"3"}"#),
        (
            json!({ "A": true, "B": 1.25, "C": { "x": [1] } }),
            "",
            r#"{"A":"true","B":"1.25","C":"{\"x\":[1]}"}"#,
        ),
        (named.clone(), "", r#"{"A":"x","B":"2"}"#),
        (named.clone(), "B=3 C=4", r#"{"A":"x","B":"3","C":"4"}"#),
        (named.clone(), r#"{"B": 3, "A": null, "D": [1, 2]}"#, r#"{"A":"x","B":"3","D":"[1,2]"}"#),
        (named.clone(), r#"["y", {"B": false}]"#, r#"{"A":"y","B":"false"}"#),
        (named.clone(), "A=$(x) B=${params.A}", r#"{"A":"$(x)","B":"${params.A}"}"#),
        (named, "A='it''s' \"B=a \\\" b\"", r#"{"A":"its","B":"a \" b"}"#),
        (typed.clone(), "size=3", r#"{"env":"dev","size":"3","dry":"false"}"#),
        (
            typed.clone(),
            r#"{"size": 3.0, "dry": true, "tag": "v1"}"#,
            r#"{"env":"dev","size":"3","dry":"true","tag":"v1"}"#,
        ),
        (typed.clone(), "prod 4", r#"{"env":"prod","size":"4","dry":"false"}"#),
        (typed.clone(), "", "parameter `size` is required: give it as `size=VALUE`"),
        (typed.clone(), "size=x", "parameter `size` is not valid: write integer"),
        (typed.clone(), "size=10", "parameter `size` is not valid: write at most 9"),
        (typed.clone(), "size=1 env=qa", "parameter `env` is not valid: write one of dev, prod"),
        (typed.clone(), "size=1 dry=yes", "parameter `dry` is not valid: write boolean"),
        (
            typed.clone(),
            "size=1 tag=x1",
            "parameter `tag` is not valid: write a text that matches ^v[0-9]+$",
        ),
        (
            typed.clone(),
            "size=1 tagg=v1",
            "there is no parameter `tagg`: give those that the DAG declares",
        ),
        (
            typed,
            "dev 1 true v1 more",
            "there is no parameter `5`: give those that the DAG declares",
        ),
        (schema.clone(), "env=dev size=4 list=[1]", r#"{"size":"4","env":"dev","list":"[1]"}"#),
        (
            schema.clone(),
            r#"{"env": "dev", "list": [1, 2]}"#,
            r#"{"size":"3","env":"dev","list":"[1,2]"}"#,
        ),
        (schema.clone(), "size=4", "parameter `env` is required: give it as `env=VALUE`"),
        (schema.clone(), "env=dev size=99", "parameter `size` is not valid: write at most 9"),
        (schema.clone(), "env=dev list=[x]", "parameter `list` is not valid: write array"),
        (
            schema.clone(),
            "env=dev x=1",
            "there is no parameter `x`: give those that the DAG declares",
        ),
        (schema.clone(), "dev", "parameters of a schema have no places: give each as `NAME=VALUE`"),
        (
            json!({ "schema": schema, "values": { "env": "prod" } }),
            "",
            r#"{"size":"3","env":"prod"}"#,
        ),
        (
            json!({ "schema": true, "values": { "env": "prod" } }),
            "x=1",
            r#"{"env":"prod","x":"1"}"#,
        ),
        (json!({ "schema": "prod" }), "", r#"{"schema":"prod"}"#),
        (
            json!({ "schema": "./p.json" }),
            "",
            "the schema of the parameters cannot be used: \"./p.json\" is not there",
        ),
        // Values of callers and defaults are text, and an `eval` reads what is before it.
        (json!([{ "name": "a", "default": "$(echo 1)" }]), "", r#"{"a":"$(echo 1)"}"#),
        (json!([{ "name": "a", "eval": "`echo 1`0" }]), "", r#"{"a":"10"}"#),
        (json!([{ "name": "a", "eval": "`echo 1`0" }]), "a=`echo 1`", r#"{"a":"`echo 1`"}"#),
        (
            json!([{ "name": "a", "default": "prod" }, { "name": "b", "eval": "$(echo ${params.a}-x)/${params.b}/${params.c}" }, { "name": "c", "default": "z" }]),
            "",
            r#"{"a":"prod","b":"y/${params.b}/${params.c}","c":"z"}"#,
        ),
        (json!([{ "name": "a", "eval": "$(no)", "default": "d" }]), "", r#"{"a":"d"}"#),
        (
            json!([{ "name": "a", "type": "integer", "eval": "x$(echo 1)" }]),
            "",
            "parameter `a` is not valid: write integer",
        ),
        (
            json!([{ "name": "a", "eval": "$(no)" }]),
            "",
            "parameter `a` cannot be computed, and has no default: `no` has no output here",
        ),
    ] {
        assert_eq!(params(declared.clone(), text), expected, "{declared} {text}");
    }
    assert_eq!(params(json!([{ "name": "a", "description": "x" }]), ""), "");
}

#[test]
fn ways_to_give_the_same_are_the_same() {
    let words = ["ENV=prod", "input file.csv"].map(str::to_owned);
    let given = GivenParams::from_words(&words);
    assert_eq!(given, GivenParams::from_text("ENV=prod 'input file.csv'"));
    assert_eq!(given, GivenParams::from_json(json!(["input file.csv", { "ENV": "prod" }])));
    let json = r#"{"ENV": "prod"}"#;
    assert_eq!(GivenParams::from_words(&[json.to_owned()]), GivenParams::from_text(json));
    assert_eq!(GivenParams::from_text("{not json}").positional, [json!("{not"), json!("json}")]);
}

#[test]
fn values_that_a_step_passes_on_stay_in_their_places() {
    let hostile = "x' ENV=prod \"y";
    for (value, text, expected) in [
        (json!(hostile), "A=${ITEM} b", json!([{ "A": hostile }, ["b"]])),
        (json!(hostile), "\"${ITEM}\" ${ITEM}", json!([{}, [hostile, hostile]])),
        (
            json!({ "f": hostile }),
            r#"{"A": "-${ITEM.f}", "B": 1}"#,
            json!([{ "A": format!("-{hostile}"), "B": 1 }, []]),
        ),
        (json!({ "A": 1 }), " ${ITEM} ", json!([{ "A": 1 }, []])),
        (json!("A=1 b"), "${ITEM}", json!([{ "A": "1" }, ["b"]])),
    ] {
        let items = [ItemScope::Parallel(value)];
        let scopes = TextScopes { items: &items, ..TextScopes::default() };
        let given = GivenParams::from_step(text, &scopes);
        assert_eq!(given.map(|it| json!([it.named, it.positional])), Ok(expected), "{text}");
    }
}

#[test]
fn the_environment_is_resolved_in_order_once() {
    let dag = dag(json!({
        "params": [{ "name": "target" }, { "name": "dir", "eval": "${env.BASE}/${env.LATE}$(sh $SHELL_READS)" }],
        "env": [
            "BASE=/srv", { "HOST": "${env.BASE}.x", "COPY": "$FROM_HOST" }, "LATE=${params.target}",
            "SELF=${env.SELF}", "AFTER=$LAST", "LAST=1", "DAG_RUN_ID=shadow", "SEEN=${env.DAG_RUN_ID}",
            "TICKS=`date` $(date)", "DIR=${params.dir}", "SHELL_READS=${consts.c}", "target=over",
            "STEP=${steps.build.outputs.image}", "LAST=2", "EMPTY=", "PAIR=a=b",
        ],
        "dotenv": ["${BASE}/.env.$target", ".env"],
    }));
    let facts = RunFacts {
        given: GivenParams::from_text("target='$(x) ${env.BASE}'"),
        context: named([("run.id", "r-1"), ("dag.name", "d")]),
        host_env: named([("FROM_HOST", "h"), ("SECRET", "s")]),
        inherited_env: named([("LAST", "0"), ("PATH", "/bin")]),
        inherited_consts: named([("c", "const")]),
        schema: None,
    };
    let outputs = [
        ("sh const", "out\n"),
        (".env", "DOT=1\nHOST=dot\nDAG_NAME=x\n"),
        ("/srv/.env.over", "DOT=2 # comment\n"),
    ];
    let begun = begin(&dag, facts.clone(), &outputs).expect("begins");
    let json = r#"{"target":"$(x) ${env.BASE}","dir":"/srv/${env.LATE}out"}"#;
    assert_eq!(begun.params.to_json().as_deref(), Some(json));
    let expected = named([
        ("AFTER", "0"),
        ("BASE", "/srv"),
        ("COPY", "h"),
        ("DAG_NAME", "d"),
        ("DAG_PARAMS_JSON", json),
        ("DAG_RUN_ID", "r-1"),
        ("DIR", "/srv/${env.LATE}out"),
        ("DOT", "1"),
        ("EMPTY", ""),
        ("HOST", "dot"),
        ("LAST", "2"),
        ("LATE", "$(x) ${env.BASE}"),
        ("PAIR", "a=b"),
        ("PATH", "/bin"),
        ("SEEN", "shadow"),
        ("SELF", "${env.SELF}"),
        ("SHELL_READS", "const"),
        ("STEP", "${steps.build.outputs.image}"),
        ("TICKS", "`date` $(date)"),
        ("dir", "/srv/${env.LATE}out"),
        ("target", "over"),
    ]);
    // `.env` comes first, and once.
    let mut expected = expected;
    expected.insert("DOT".to_owned(), "2".to_owned());
    assert_eq!(begun.env, expected);
    let written = serde_json::to_string(&begun).expect("writes");
    let read: RunBeginning = serde_json::from_str(&written).expect("reads");
    assert_eq!((read, begin(&dag, facts, &outputs)), (begun.clone(), Ok(begun)));
}

#[test]
fn dotenv_files_may_be_left_out_and_are_refused_where_they_are_wrong() {
    let wants = |dotenv: Value| {
        let dag = dag(json!({ "dotenv": dotenv }));
        Begin::new(&dag, RunFacts::default()).and_then(|mut it| it.next(BeginAnswer::Start))
    };
    let files = |paths: &[&str]| {
        Ok(BeginNeed::DotenvFiles(paths.iter().map(|it| (*it).to_owned()).collect()))
    };
    assert_eq!(wants(json!(null)), files(&[".env"]));
    assert_eq!(wants(json!(".env.x")), files(&[".env", ".env.x"]));
    assert_eq!(wants(json!([".env", "a", "a"])), files(&[".env", "a"]));
    assert_eq!(wants(json!([])), Ok(BeginNeed::Done(RunBeginning::default())));
    let error = begin(&dag(json!({})), RunFacts::default(), &[(".env", "A=1\n\nnonsense\n")]);
    let told = "the file `.env` is not a dotenv file: line 3 is not `NAME=value`";
    assert_eq!(error.expect_err("refused").to_string(), told);
    let mut begin = Begin::new(&dag(json!({})), RunFacts::default()).expect("begins");
    assert_eq!(begin.next(BeginAnswer::Output(String::new())), Err(BeginError::Unasked));
}

#[test]
fn dotenv_texts_are_read() {
    let pairs = |text: &str| {
        let read = dotenv(text)?;
        Ok(read.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("|"))
    };
    for (text, expected) in [
        ("", Ok("")),
        ("\u{feff}A=1\r\nexport B = 2 # c\n# c\n\n C=\n", Ok("A=1|B=2|C=")),
        ("A='x # $B\n\"y' # c\nB=\"1\\n\\\"2\\\" \\$B\"", Ok("A=x # $B\n\"y|B=1\n\"2\" $B")),
        ("A=a#b c\nB=#c\nC=x=y", Ok("A=a#b c|B=|C=x=y")),
        (
            "A=1\nB=$A/${A}/$PATH/$(x)\nC='$A'\nD=\"$B\"",
            Ok("A=1|B=1/1/$PATH/$(x)|C=$A|D=1/1/$PATH/$(x)"),
        ),
        ("A", Err(1)),
        ("A=1\n1B=2", Err(2)),
        ("A=1\n\nB='2\n3", Err(3)),
        ("A='1' x", Err(1)),
        ("A: 1", Err(1)),
    ] {
        let expected = expected.map(str::to_owned).map_err(DotenvError);
        assert_eq!(pairs(text), expected, "{text}");
    }
}
