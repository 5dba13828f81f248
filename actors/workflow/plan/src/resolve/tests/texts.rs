use super::*;

/// Texts with what they become: in a line of a shell, and in another text of a step.
const TEXTS: &[(&str, &str, &str)] = &[
    ("${consts.service}-${params.target}", "api-prod", "api-prod"),
    ("${env.SERVICE} ${context.run.id} ${run.id}", "api r-1 r-1", "api r-1 r-1"),
    ("${run.started_at}", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
    ("${steps.build.outputs.image}", "v1", "v1"),
    ("${steps.build.outputs.meta}", r#"{"tag": "t"}"#, r#"{"tag": "t"}"#),
    (
        "${params}",
        r#"{"target":"prod","1":"first","count":"3"}"#,
        r#"{"target":"prod","1":"first","count":"3"}"#,
    ),
    // References without a value stay, and so does what is none.
    (
        "${consts.missing} ${params.no}",
        "${consts.missing} ${params.no}",
        "${consts.missing} ${params.no}",
    ),
    ("${env.MISSING}", "${env.MISSING}", "${env.MISSING}"),
    ("${steps.build.outputs.tag}", "${steps.build.outputs.tag}", "${steps.build.outputs.tag}"),
    (
        "${steps.build.outputs.meta.tag}",
        "${steps.build.outputs.meta.tag}",
        "${steps.build.outputs.meta.tag}",
    ),
    ("${steps.no.outputs.image}", "${steps.no.outputs.image}", "${steps.no.outputs.image}"),
    (
        "${context.run.status} ${context.run.foo}",
        "${context.run.status} ${context.run.foo}",
        "${context.run.status} ${context.run.foo}",
    ),
    ("${consts.service.name}", "${consts.service.name}", "${consts.service.name}"),
    (
        "${step.xxx.foo} ${not.env} ${env}",
        "${step.xxx.foo} ${not.env} ${env}",
        "${step.xxx.foo} ${not.env} ${env}",
    ),
    (
        "$consts.service $params.target",
        "$consts.service $params.target",
        "$consts.service $params.target",
    ),
    ("$ $$ ${ ${} } $1a ä", "$ $$ ${ ${} } $1a ä", "$ $$ ${ ${} } firsta ä"),
    // Quotes keep variables, and no references.
    (
        "'${env.SERVICE}' '$SERVICE' '${SERVICE}'",
        "'api' '$SERVICE' '${SERVICE}'",
        "'api' '$SERVICE' '${SERVICE}'",
    ),
    ("it's $SERVICE", "it's $SERVICE", "it's api"),
    (r#""it's $SERVICE" isn't"#, r#""it's $SERVICE" isn't"#, r#""it's api" isn't"#),
    // Variables.
    (
        "$SERVICE/${SERVICE} $MISSING ${MISSING}",
        "$SERVICE/${SERVICE} $MISSING ${MISSING}",
        "api/api $MISSING ${MISSING}",
    ),
    ("$OUTSIDE ${OUTSIDE}", "$OUTSIDE ${OUTSIDE}", "$OUTSIDE ${OUTSIDE}"),
    ("$1 ${1} $2", "$1 ${1} $2", "first first $2"),
    ("$SERVICE_ $SERVICE.x", "$SERVICE_ $SERVICE.x", "$SERVICE_ api.x"),
    // Escapes.
    (r"\${params.target}", "${params.target}", "${params.target}"),
    (r"\\${params.target}", r"\\prod", r"\\prod"),
    (r"\\\${params.target}", r"\\${params.target}", r"\\${params.target}"),
    (
        r"\${params.no} \${context.run.foo}",
        "${params.no} ${context.run.foo}",
        "${params.no} ${context.run.foo}",
    ),
    (
        r"\${step.xxx} \$SERVICE \$5.00 \$(x)",
        r"\${step.xxx} \$SERVICE \$5.00 \$(x)",
        r"${step.xxx} $SERVICE $5.00 \$(x)",
    ),
    (
        r"\${build.output.half} \${no.output.x}",
        "${build.output.half} \\${no.output.x}",
        "${build.output.half} ${no.output.x}",
    ),
    // What a step has left.
    (
        "${build.stdout} ${build.exit_code} ${build.stderr}",
        "/logs/build.out 3 ${build.stderr}",
        "/logs/build.out 3 ${build.stderr}",
    ),
    (
        "${build.output.items[0].id} ${build.output.half} ${build.output.on}",
        "7 0.5 true",
        "7 0.5 true",
    ),
    ("${build.output.items} [${build.output.none}]", r#"[{"id":7}] []"#, r#"[{"id":7}] []"#),
    (
        "${build.output.no} ${build.outputs.label} ${build.outputs.list[1]}",
        "${build.output.no} good 2",
        "${build.output.no} good 2",
    ),
    (
        "${build.output.items[1]} ${build.stdout:0:5}",
        "${build.output.items[1]} ${build.stdout:0:5}",
        "${build.output.items[1]} ${build.stdout:0:5}",
    ),
    // Variables that hold JSON.
    (r#"${RESULTS.summary.total} ${RESULTS.results[0]["a b"]}"#, "2 x", "2 x"),
    (
        "${RESULTS.no} ${SERVICE.a} ${RESULTS[0]}",
        "${RESULTS.no} ${SERVICE.a} ${RESULTS[0]}",
        "${RESULTS.no} ${SERVICE.a} ${RESULTS[0]}",
    ),
    // Items.
    ("${foreach.index} ${foreach.key} ${foreach.episode.url}", "4 k u", "4 k u"),
    ("${foreach.episode}", r#"{"url":"u","deep":{"a":1}}"#, r#"{"url":"u","deep":{"a":1}}"#),
    (
        "${foreach.episode.no} ${foreach.item} ${ITEM}",
        "${foreach.episode.no} ${foreach.item} ${ITEM}",
        "${foreach.episode.no} ${foreach.item} ${ITEM}",
    ),
    // Commands are not ours.
    (
        "$(date) `date` ${X:-${params.target}}",
        "$(date) `date` ${X:-prod}",
        "$(date) `date` ${X:-${params.target}}",
    ),
];

#[test]
fn texts_become_what_their_field_makes_of_them() {
    let filled = Filled::new();
    for (text, run, step) in TEXTS {
        assert_eq!(filled.resolve(text, TextField::Run), *run, "run: {text}");
        assert_eq!(filled.resolve(text, TextField::StepText), *step, "text: {text}");
        assert_eq!(filled.resolve(text, TextField::Literal), *text);
        let nothing = resolve(text, TextField::Run, &TextScopes::default()).expect("short");
        let unescaped = |text: &str| text.replace('\\', "");
        assert_eq!(unescaped(&nothing), unescaped(text), "without any scope");
    }
}

#[test]
fn expressions_of_shells_are_evaluated_where_variables_are_ours() {
    let filled = Filled::new();
    for (text, expected) in [
        ("${SERVICE:-x} ${EMPTY:-x} [${EMPTY-x}]", "api x []"),
        ("${SERVICE:+x} [${EMPTY:+x}] [${EMPTY+x}]", "x [] [x]"),
        ("${SERVICE:?x} ${SERVICE?x} ${SERVICE=x} ${SERVICE:=x}", "api api api api"),
        ("${EMPTY:?x} [${EMPTY?x}]", "${EMPTY:?x} []"),
        (
            "${SERVICE:1:2} ${SERVICE:1} ${SERVICE: -2} ${SERVICE:0:-1} [${SERVICE:9}]",
            "pi pi pi ap []",
        ),
        ("${SERVICE:x} ${SERVICE:1:y} ${SERVICE!}", "${SERVICE:x} ${SERVICE:1:y} ${SERVICE!}"),
        ("${#SERVICE} ${#EMPTY} ${#MISSING}", "3 0 ${#MISSING}"),
        ("${IMAGE#*/} ${IMAGE##*/}", "team/api.tar.gz api.tar.gz"),
        (
            "${IMAGE%.*} ${IMAGE%%/*} ${IMAGE%%.*}",
            "registry/team/api.tar registry registry/team/api",
        ),
        (
            "${IMAGE#reg[hijk]st?y/} ${IMAGE%.[!x]z} ${IMAGE#x}",
            "team/api.tar.gz registry/team/api.tar registry/team/api.tar.gz",
        ),
        (
            "${IMAGE#registry/$SERVICE} ${IMAGE%.${EMPTY:-gz}}",
            "registry/team/api.tar.gz registry/team/api.tar",
        ),
        (r"${SERVICE#\*} ${SERVICE#[} ${SERVICE#a.}", "api api api"),
        (
            "${EMPTY:-$SERVICE} ${SERVICE:+${IMAGE}} ${EMPTY:-${params.target}}",
            "api registry/team/api.tar.gz prod",
        ),
        (
            "${MISSING:-x} ${MISSING:4:1} ${MISSING:=x} ${MISSING#x}",
            "${MISSING:-x} ${MISSING:4:1} ${MISSING:=x} ${MISSING#x}",
        ),
        // One that would set a variable keeps all of them.
        (
            "$SERVICE ${env.SERVICE} ${SERVICE:-x} ${EMPTY:=x} ${EMPTY:-x} [${EMPTY}]",
            "api api ${SERVICE:-x} ${EMPTY:=x} ${EMPTY:-x} []",
        ),
    ] {
        assert_eq!(filled.resolve(text, TextField::StepText), expected, "{text}");
        let nothing = TextScopes::default();
        assert_eq!(resolve(text, TextField::StepText, &nothing), Ok(text.to_owned()));
    }
}

#[test]
fn each_field_reads_its_scopes_alone() {
    let filled = Filled::new();
    let parallel = ItemScope::Parallel(json!({ "id": "a", "n": 1 }));
    let scopes = TextScopes { items: &[parallel], ..filled.scopes() };
    let text = "${consts.service} ${params.target} ${env.SERVICE} ${build.exit_code} $OUTSIDE ${ITEM.id} ${ITEM}";
    for (field, expected) in [
        (
            TextField::Const,
            "api ${params.target} ${env.SERVICE} ${build.exit_code} $OUTSIDE ${ITEM.id} ${ITEM}",
        ),
        (TextField::RootImport, "api prod api ${build.exit_code} host ${ITEM.id} ${ITEM}"),
        (TextField::RootText, "api prod api ${build.exit_code} $OUTSIDE ${ITEM.id} ${ITEM}"),
        (TextField::Run, "api prod api 3 $OUTSIDE ${ITEM.id} ${ITEM}"),
        (TextField::Argument, "api prod api 3 host ${ITEM.id} ${ITEM}"),
        (TextField::SubDag, r#"api prod api 3 $OUTSIDE a {"id":"a","n":1}"#),
    ] {
        assert_eq!(resolve(text, field, &scopes), Ok(expected.to_owned()), "{field:?}");
    }
    let path = r"C:\$SERVICE\${params.target}";
    assert_eq!(filled.resolve(path, TextField::Path), r"C:\api${params.target}");
    assert_eq!(filled.resolve(path, TextField::StepText), r"C:$SERVICE${params.target}");
}

#[test]
fn texts_of_values_are_resolved_and_keys_are_not() {
    let filled = Filled::new();
    let value = json!({ "${params.target}": ["${params.target}", 1, null, { "a": "x-$SERVICE" }] });
    let expected = json!({ "${params.target}": ["prod", 1, null, { "a": "x-api" }] });
    assert_eq!(resolve_value(&value, TextField::StepText, &filled.scopes()), Ok(expected));
}

#[test]
fn commands_are_told_by_the_text_as_it_is_written() {
    let literal = |text: &str| TextPart::Literal(text.to_owned());
    let command = |text: &str| TextPart::Command(text.to_owned());
    let filled = Filled::new();
    let params = json!({ "target": "$(x) `y` ) ${params.count}" });
    let params = serde_json::from_value(params).expect("texts by name");
    for (text, expected) in [
        ("`date`", vec![command("date")]),
        (
            "a $(printf '%s' '${params.target}') b",
            vec![literal("a "), command("printf '%s' '$(x) `y` ) ${params.count}'"), literal(" b")],
        ),
        ("${params.target} $SERVICE", vec![literal("$(x) `y` ) ${params.count} api")]),
        // Within a command a variable is the shell's.
        (
            "$(echo $SERVICE ${env.SERVICE}) $SERVICE",
            vec![command("echo $SERVICE api"), literal(" api")],
        ),
        ("$(a $(b)) `c", vec![command("a $(b"), literal(") `c")]),
        (r"$(a \) b) `a \` b`", vec![command(r"a \) b"), literal(" "), command(r"a \` b")]),
        (r"\$(a) \`a` $(a", vec![literal(r"$(a) \`a` $(a")]),
        ("$()", vec![command("")]),
        ("", vec![]),
    ] {
        let scopes = TextScopes { params: Some(&params), ..filled.scopes() };
        assert_eq!(evaluate(text, TextField::RootEval, &scopes), Ok(expected), "{text}");
    }
    let parts = vec![literal("a-"), command("x"), command("y"), literal("-b")];
    let mut computation = Computation::new(parts);
    assert_eq!(computation.next(None).as_deref(), Some("x"));
    assert_eq!(computation.next(Some(" 1 \n")).as_deref(), Some("y"));
    assert_eq!(computation.next(Some("$(2)")), None);
    assert_eq!(computation.text(), "a-1$(2)-b");
}
