use super::*;

#[test]
fn paths_of_the_notation_have_their_fields() {
    use TextField::*;
    for (path, action, field) in [
        ("name", None, Literal),
        ("consts.0.service", None, Const),
        ("params.1.eval", None, RootEval),
        ("params.1.default", None, Literal),
        ("env.SERVICE", None, RootImport),
        ("env.0", None, RootImport),
        ("env.0.SERVICE", None, RootImport),
        ("dotenv", None, RootImport),
        ("dotenv.2", None, RootImport),
        ("shell.0", None, RootText),
        ("working_dir", None, RootText),
        ("preconditions.0.condition", None, RootText),
        ("preconditions.0.expected", None, Literal),
        ("preconditions.0.eval", None, RootEval),
        ("container", None, RootText),
        ("container.env.0", None, RootText),
        ("secrets.0.key", None, Literal),
        ("timeout_sec", None, Literal),
        ("llm.system", None, StepText),
        ("steps.0.run", None, Run),
        ("steps.0.run.3", None, Run),
        ("steps.0.command", None, Run),
        ("steps.0.id", None, Literal),
        ("steps.0.depends.0", None, Literal),
        ("steps.0.action", None, Literal),
        ("steps.0.1.run", None, Run),
        ("steps.build.run", None, Run),
        ("steps.0.with.a.b.0", Some("http.request"), StepText),
        ("steps.0.with.template", Some("template.render"), Literal),
        ("steps.0.with.template", Some("x"), StepText),
        ("steps.0.with.args.0", Some("exec"), Argument),
        ("steps.0.with.args.0", None, StepText),
        ("steps.0.with.dag", Some("dag.run"), SubDag),
        ("steps.0.with.params.0.a", Some("dag.enqueue"), SubDag),
        ("steps.0.with.queue", Some("dag.enqueue"), StepText),
        ("steps.0.call", None, SubDag),
        ("steps.0.env.A", None, StepText),
        ("steps.0.preconditions.eval", None, StepEval),
        ("steps.0.preconditions.0", None, StepText),
        ("steps.0.retry_policy.limit", None, StepText),
        ("steps.0.retry_policy.exit_code.0", None, Literal),
        ("steps.0.parallel.items.0.value", None, StepText),
        ("steps.0.foreach.as", None, Literal),
        ("steps.0.foreach.items", None, StepText),
        ("steps.0.foreach.steps.0.run", None, Run),
        ("steps.0.foreach.steps.0.id", None, Literal),
        ("steps.0.stdout", None, Path),
        ("steps.0.stderr.artifact", None, Path),
        ("steps.0.stdout.outputs.fields.a.value.b", None, StepText),
        ("steps.0.stdout.outputs.fields.a.select", None, Literal),
        ("steps.0.output", None, Literal),
        ("steps.0.output.a", None, StepText),
        ("steps.0.output.a.path", None, StepText),
        ("steps.0.output.a.select", None, Literal),
        ("steps.0.outputs.0.name", None, Literal),
        ("steps.0.messages.0.content", None, StepText),
        ("steps.0.llm.model.1.name", None, StepText),
        ("steps.0.llm.api_key_name", None, Literal),
        ("handler_on.success.run", None, Run),
        ("handler_on.exit.env.0.A", None, StepText),
    ] {
        let parts: Vec<_> = path.split('.').collect();
        assert_eq!(field_of(&parts, action), field, "{path}");
    }
}

#[test]
fn only_evaluated_fields_run_commands() {
    use TextField::*;
    for field in [
        Literal, Const, RootImport, RootText, RootEval, Run, StepText, StepEval, Argument, SubDag,
        Path,
    ] {
        let is_evaluated = field.rule().evaluation == Evaluation::Evaluated;
        assert_eq!(is_evaluated, matches!(field, RootEval | StepEval));
        let reads_host = matches!(field, RootImport | RootEval | StepEval | Argument);
        assert_eq!(field.rule().reads_host, reads_host, "{field:?}");
    }
}
