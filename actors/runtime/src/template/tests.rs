use serde_json::json;

use super::*;

fn values() -> Vec<TemplateValue<'static>> {
    let input = json!({
        "a-b": { "c": true }, "depth": 3, "list": [1, { "a": "b" }], "none": null, "path": "a & b"
    });
    vec![
        TemplateValue::text("instruction", "Do <it>."),
        TemplateValue::text("previous_error", ""),
        TemplateValue::shown("input", input, "INPUT"),
    ]
}

fn rendered(template: &str) -> Result<String, String> {
    render(template, TemplateHelpers::None, &values())
}

fn helped(template: &str) -> Result<String, String> {
    render(template, TemplateHelpers::Values, &values())
}

#[test]
fn names_are_filled_in_and_parts_are_there_by_their_values() {
    for (template, text) in [
        ("", ""),
        ("{{instruction}}|{{{ instruction }}}", "Do <it>.|Do <it>."),
        ("{{input}}|{{input.path}}|{{input.depth}}", "INPUT|a & b|3"),
        ("{{input.list}}|{{input.list.1.a}}|{{input.list.[0]}}", "[1,{\"a\":\"b\"}]|b|1"),
        ("{{{input.a-b}}}|{{input.a-b.c}}|{{&input.path}}", "{\"c\":true}|true|a & b"),
        ("{{input.none}}", ""),
        ("a{{#if input}}b{{else}}c{{/if}}d", "abd"),
        ("a{{#if previous_error}}b{{else}}c{{/if}}d", "acd"),
        ("{{#unless previous_error}}x{{else}}y{{/unless}}", "x"),
        ("{{#if previous_error}}{{#if input}}a{{else}}b{{/if}}{{else}}c{{/if}}", "c"),
        ("{{#if input.absent}}x{{/if}}", ""),
        ("{{! a }}b{{!-- {{c}} --}}d", "bd"),
        ("a\n{{#if input}}\nb\n{{/if}}", "a\nb\n"),
        ("{ {a} }", "{ {a} }"),
    ] {
        assert_eq!(rendered(template).as_deref(), Ok(text), "{template}");
    }
    assert!(names("x {{#if previous_error}}", "previous_error"));
    assert!(names("{{input.a}}", "input") && !names("{{!input}} input", "input"));
}

#[test]
fn what_cannot_be_filled_in_is_an_error() {
    for (template, said) in [
        ("a\n{{intend}}", "line 2: there is no `intend`; names are input, instruction"),
        ("{{input.absent}}", "there is no `input.absent`"),
        ("{{#if nothing}}{{/if}}", "there is no `nothing`"),
        ("\n\n{{input", "line 3"),
        ("{{#if input}}", ""),
        ("{{/if}}", ""),
        ("{{#each input}}x{{/each}}", "`#each` is not taken"),
        ("{{#with input}}{{path}}{{/with}}", "`#with` is not taken"),
        ("{{#if input}}a{{else if nothing}}b{{/if}}", "there is no `nothing`"),
        ("{{#if previous_error}}\n{{intend}}{{/if}}", "line 2: there is no `intend`"),
        ("{{#if input depth}}{{/if}}", "`#if` is not taken"),
        ("{{input.depth + 1}}", "holds more than names and helpers"),
        ("{{upper instruction}}", "is not taken"),
        ("{{@root.input}}{{this}}", "is not taken"),
        ("{{../input}}", "is not taken"),
        ("{{{{raw}}}} a {{{{/raw}}}}", "is not taken"),
        ("{{> input}}", "is not taken"),
        ("{{~#*inline \"a\"}}{{> a}}{{/inline}}{{> a}}", "is not taken"),
        ("{{((((input))))}}", "is not taken"),
        ("{{}}", ""),
    ] {
        let error = rendered(template).expect_err(template);
        assert!(error.contains(said), "{template}: {error}");
    }
}

#[test]
fn helpers_are_for_values() {
    for (template, text) in [
        ("{{json input.list}}|{{json instruction}}", "[1,{\"a\":\"b\"}]|\"Do <it>.\""),
        ("{{default input.a \"(x)\"}}|{{default previous_error 3}}", "(x)|3"),
        ("{{default instruction input.absent}}", "Do <it>."),
        ("{{length input.list}}|{{length input}}|{{length instruction}}", "2|5|8"),
        ("{{upper instruction}}|{{lower instruction}}|{{trim ' a '}}", "DO <IT>.|do <it>.|a"),
        ("{{first_line \"a\\nb\"}}|{{{keys input}}}", "a|a-b, depth, list, none, path"),
    ] {
        assert_eq!(helped(template).as_deref(), Ok(text), "{template}");
    }
    for (template, said) in [
        ("{{json input.absent}}", "there is no `input.absent`"),
        ("{{default input.a input.b}}", "there is no `input.b`"),
        ("{{json nothing}}", "there is no `nothing`"),
        ("{{keys instruction}}", "`keys` is not for such a value"),
        ("{{length input.depth}}", "`length` is not for such a value"),
        ("{{shout instruction}}", "there is no helper `shout`"),
        ("{{default input}}", "`default` takes this many values: 2"),
        ("{{upper (trim instruction)}}", "is not taken"),
        ("{{json input a=1}}", "takes this many values: 1"),
    ] {
        let error = helped(template).expect_err(template);
        assert!(error.contains(said), "{template}: {error}");
    }
}

#[test]
fn values_of_a_command_stay_text() {
    let hostile = "$(echo 1) `echo 2` \"'; echo 3 #\\\n  *";
    let values = [TemplateValue::text("x", hostile), TemplateValue::text("echo", "echo a  b")];
    let told = |command: &str| {
        let template = TextTemplate::parse(command, TemplateHelpers::Values)?;
        let script = template.render_command(&values)?;
        let ran = std::process::Command::new("sh").arg("-c").arg(script).output();
        Ok::<_, String>(String::from_utf8(ran.expect("it runs").stdout).expect("UTF-8"))
    };
    for command in [
        "printf %s {{x}}",
        "printf %s \"{{x}}\"",
        "printf %s '{{x}}'",
        "printf %s \"$(printf %s \"{{x}}\")\"",
        "printf \\\"%s {{x}} | tail -c +2",
        "{{#if x}}printf %s \"a'\"{{x}} | tail -c +3{{/if}}",
        "# it's {{x}}, isn't it\nprintf %s {{x}}",
        "true $((1 << 2)); printf %s {{x}}",
    ] {
        assert_eq!(told(command).as_deref(), Ok(hostile), "{command}");
    }
    for command in ["cat <<END\n{{x}}\nEND", "cat << 'END'\n{{x}}\nEND", "cat <<-E\nE\n: {{x}}"] {
        let error = told(command).expect_err(command);
        assert!(error.contains("here-document"), "{command}: {error}");
    }
    assert_eq!(told("printf %s '-{{upper x}}-'"), Ok(format!("-{}-", hostile.to_uppercase())));
    assert_eq!(
        (told(" {{echo}}\n"), told("true; eval {{echo}}")),
        (Ok("a b\n".into()), Ok("a b\n".into()))
    );
    assert!(told("echo {{y}}").is_err());
}

#[test]
fn a_name_alone_keeps_its_value() {
    let value = |text| {
        let template = TextTemplate::parse(text, TemplateHelpers::Values)?;
        template.value(&values())
    };
    assert_eq!(value("{{input.depth}}"), Ok(json!(3)));
    assert_eq!(value("{{{input.a-b}}}"), Ok(json!({ "c": true })));
    assert_eq!(value(" {{input.depth}}"), Ok(json!(" 3")));
    assert_eq!(value("x"), Ok(json!("x")));
    assert!(value("{{later}}").is_err());
    let later = "{{#if later}}a{{/if}}{{#unless later.a}}b{{/unless}}{{default later 'c'}}";
    assert_eq!(value(later), Ok(json!("bc")));
}

#[test]
fn what_others_wrote_takes_neither_long_nor_much() {
    let long = TemplateValue::text("long", &"x".repeat(MAX_RENDERED_BYTES / 2));
    let grown = render(&"{{long}}".repeat(3), TemplateHelpers::None, &[long]);
    assert!(grown.expect_err("it grows").contains("larger"));
    for deep in ["{{#if input}}", "{{else if input}}", "{{^}}", "{{#a}}"] {
        let told = rendered(&deep.repeat(MAX_BLOCKS + 1)).expect_err(deep);
        assert!(told.contains("blocks"), "{told}");
        assert!(rendered(&deep.repeat(MAX_BLOCKS)).is_err());
    }
    let nested = "{{#if input}}".repeat(MAX_BLOCKS) + "x" + &"{{/if}}".repeat(MAX_BLOCKS);
    assert_eq!(rendered(&nested).as_deref(), Ok("x"));
    for many in [MAX_TAGS, MAX_TAGS + 1, 100_000] {
        assert!(rendered(&"{{".repeat(many)).is_err());
    }
    for bytes in [MAX_TAG_BYTES - 16, 100_000] {
        assert!(rendered(&format!("{{{{{}", "[".repeat(bytes))).is_err());
        assert!(rendered(&format!("{{{{input.{}}}}}", "a.".repeat(bytes / 2))).is_err());
        assert!(helped(&format!("{{{{json {}}}}}", "[".repeat(bytes))).is_err());
        assert!(helped(&format!("{{{{json {{{}}}}}", "\"a\":{".repeat(bytes / 5))).is_err());
    }
}
