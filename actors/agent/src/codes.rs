//! Error codes of agents and their executions, and of the registry that keeps their manifests.

pub(crate) use hivekeep_kernel::codes::{INVALID_PATH, WORKSPACE_STATE};

hivekeep_kernel::codes! {
    /// There is no such agent.
    AGENT_NOT_FOUND = "agent_not_found" {
        cause: "The id or name is wrong, the agent was deleted, or it is another user's.",
        next: "`aegis.agent.list` shows those that you can use.",
    }
    /// The agent has a schedule, and nobody whose executions it begins.
    AGENT_OWNER_UNKNOWN = "agent_owner_unknown" {
        cause: "Its latest version was deployed before the daemon kept who deployed it.",
        next: "Deploy it again, with `force` or by a higher version.",
    }
    /// An agent may not deploy an agent that begins by itself.
    SCHEDULE_DENIED = "schedule_denied" {
        cause: "The session is an agent's, or below one; an execution of a schedule has the rights of its user.",
        next: "Leave `spec.schedule` out, and have a person deploy the agent.",
    }
    /// There is no such execution.
    EXECUTION_NOT_FOUND = "execution_not_found" {
        cause: "The id is wrong, the execution was removed or is forgotten by age, or it is another user's.",
        next: "`aegis.task.list` shows yours.",
    }
    /// The execution stands still until the daemon's next start.
    EXECUTION_GIVEN_UP = "execution_given_up" {
        cause: "It failed again and again for a reason that is the daemon's, as a journal that cannot be written.",
        next: "Look at `hivekeep logs`, and restart the daemon: it goes on from its records.",
    }
    /// The agent's manifest has a field that the daemon does not obey, or not with this value.
    AGENT_FIELD_UNSUPPORTED = "agent_field_unsupported" {
        cause: "Manifests are kept whole; what an execution would have to pass over, or no machine of this host holds, is refused instead.",
        next: "`details.fields` names each with what to do instead; deploy the agent with a higher version.",
    }
    /// The agent's machine is more than the session that runs it may make.
    AGENT_MACHINE_DENIED = "agent_machine_denied" {
        cause: "Its manifest asks for an image, an isolation, a size or a network beyond the default, and the policy does not let this session ask for them.",
        next: "Ask for less in the manifest, or have somebody run the agent who may call the tool that the message names.",
    }
    /// Material of a manifest cannot be read.
    CONTEXT_UNREADABLE = "context_unreadable" {
        cause: "A page of `spec.context` did not answer, a file or folder of it is not there, or the session that runs the agent may not read it; `details.code` has the tool's own code.",
        next: "Mend the item, or have somebody run the agent who may read it.",
    }
    /// The summary of a long conversation is of no use.
    COMPACTION_FAILED = "compaction_failed" {
        cause: "The model wrote nothing, was cut short by `max_output_tokens`, or withheld its answer.",
        next: "Raise `max_output_tokens` of the model, or `tokens` of `compaction`.",
    }
    /// The files of an execution are not there.
    EXECUTION_FILES_GONE = "execution_files_gone" {
        cause: "It worked in no workspace of its own, `agent.keep_workspace_secs` are over since its end, or somebody took the workspace over.",
        next: "`aegis.task.logs` shows until when it was kept.",
    }
    /// The file is too much for an answer, and no link to it can be given.
    LINKS_NOT_SERVED = "links_not_served" {
        cause: "Links to files are served by the HTTP API, which is off.",
        next: "Set `http.api.enabled`, or take the workspace over by `workspace_adopt` and read the file there.",
    }
    /// The prompt of an agent cannot be made of its template.
    AGENT_PROMPT_INVALID = "agent_prompt_invalid" {
        cause: "The template names what there is not, is not closed, or becomes too large.",
        next: "Mend `spec.task.prompt_template` as the message says; names are instruction, intent, input, context, iteration_number, previous_error, agent.",
    }
    /// The input does not fit the agent.
    INPUT_INVALID = "input_invalid" {
        cause: "It breaks the agent's `input_schema`, or has a key that the manifest always gives.",
        next: "`details.problems` names what is wrong; `aegis.agent.export` shows the schema.",
    }
    /// The model asked for a tool that the agent does not have.
    AGENT_TOOL_UNKNOWN = "agent_tool_unknown" {
        cause: "The model made the name up, or the session that asked for the execution may not call the tool.",
        next: "The model is told. Name the tool in `spec.tools`, if the agent is to have it.",
    }
    /// A program does not keep to the Agent Client Protocol.
    PROGRAM_PROTOCOL = "program_protocol" {
        cause: "It speaks another version, writes lines that are no frames or longer than 1 MiB, or tells more than is kept.",
        next: "Run a version of it that speaks version 1, or use `protocol: exit`.",
    }
    /// A chat was stopped in its answer.
    TURN_STOPPED = "turn_stopped" {
        cause: "Somebody stopped it by `agent_continue`, or by an editor.",
        next: "Say what it is to do instead.",
    }
    /// The model withheld its answer.
    MODEL_REFUSED = "model_refused" {
        cause: "The provider's filter stopped it.",
        next: "Read the last output, and ask otherwise.",
    }
    /// The answer of the model was cut short.
    ANSWER_CUT_SHORT = "answer_cut_short" {
        cause: "It was longer than `max_output_tokens` of the model.",
        next: "Raise the bound of the model, or ask for less.",
    }
    /// The model asked for nothing but calls that cannot be made.
    CALLS_UNUSABLE = "calls_unusable" {
        cause: "Three turns in a row had unknown tools, tools that are denied or arguments that do not fit.",
        next: "`aegis.task.logs` shows them; give the agent the tools, or use a model that calls tools well.",
    }
    /// The iteration had as many turns as it may.
    TURNS_EXHAUSTED = "turns_exhausted" {
        cause: "The model asked for calls until `agent.max_turns`.",
        next: "Ask for less, or have the operator raise the bound.",
    }
    /// The execution used as many tokens as it may.
    TOKENS_EXHAUSTED = "tokens_exhausted" {
        cause: "Each turn reads the whole conversation; together they reached `agent.max_tokens`.",
        next: "Ask for less, or have the operator raise the bound.",
    }
    /// Nobody added to the budget that an execution waited for.
    BUDGET_EXHAUSTED = "budget_exhausted" {
        cause: "A bound of its budget was reached, and `agent.wait_days` are over.",
        next: "Run the agent again with a larger budget; `agent_continue` adds to one that waits.",
    }
    /// The budget is larger than it may be.
    BUDGET_ABOVE_BOUND = "budget_above_bound" {
        cause: "`agent.budget`, or the tier of the user, bounds what a manifest or a caller may set.",
        next: "Ask for less, or have the operator raise the bound.",
    }
    /// The execution waits for the budget of another one, above it.
    BUDGET_OF_PARENT = "budget_of_parent" {
        cause: "What an execution uses counts for the one that began it, too, and that one's bound is reached.",
        next: "Add to the budget of `details.execution_id`.",
    }
    /// Money is bounded, and the model has no price.
    MODEL_PRICE_UNKNOWN = "model_price_unknown" {
        cause: "The budget has a bound in US dollars, and `input_usd` and `output_usd` of the model are not set.",
        next: "Bound tokens in place of `usd`, or have the operator set the prices.",
    }
    /// An agent may not continue this execution.
    CONTINUE_DENIED = "continue_denied" {
        cause: "The session is an agent's, or below one, and the execution is its own, its parent's or another's.",
        next: "The owner continues it in a session of their own.",
    }
    /// There are too many executions one above the other.
    EXECUTION_TOO_DEEP = "execution_too_deep" {
        cause: "An agent began an agent that began an agent, as far as may be.",
        next: "Have the agent begun further up.",
    }
    /// The execution has no such turn, or it is not whole.
    TURN_UNKNOWN = "turn_unknown" {
        cause: "It was never taken, was dropped by a rewind, or a call of it has no result.",
        next: "`aegis.task.logs` shows the turns; leave the place out for the last whole one.",
    }
    /// The execution cannot be forked or rewound.
    FORK_UNSUPPORTED = "fork_unsupported" {
        cause: "Its agent is a program: those are not rewound or replayed, nor forked where they speak the Agent Client Protocol, or where their request has no conversation for an instruction.",
        next: "Fork it from a checkpoint of its machine, or run the agent again.",
    }
    /// The machine is not kept as it was behind that turn.
    CHECKPOINT_MISSING = "checkpoint_missing" {
        cause: "The manifest asks for no checkpoints, the machine is a sandbox, or the checkpoint was removed with the machine or for later ones.",
        next: "Fork from the last turn of an execution that rests, or set `execution.checkpoint: turn` in the manifest.",
    }
    /// The files of a machine could not be compared.
    FILES_NOT_LISTED = "files_not_listed" {
        cause: "There are too many for one list, a file went away or could not be read meanwhile, the machine stands still, or the image has no `find`, `sha256sum` or `stat`.",
        next: "Compare without `files`, and read single ones with aegis.execution.file.",
    }
    /// The output of the last iteration was rejected.
    VALIDATION_FAILED = "validation_failed" {
        cause: "A validator of `spec.execution.validation` scored it too low, and no iteration was left.",
        next: "The message has the reasons; `aegis.task.logs` shows each verdict. More iterations need `mode: iterative`.",
    }
    /// A judge rejected a call, which was not made.
    CALL_REJECTED = "call_rejected" {
        cause: "A judge of `spec.execution.tool_validation` scored it too low.",
        next: "The model is told the reasons; `aegis.task.logs` shows the verdict.",
    }
    /// No judge gave a judgment, so what was to be judged is not taken.
    JUDGE_UNAVAILABLE = "judge_unavailable" {
        cause: "The judge's execution failed, was cancelled, took too long, or its answer is not a judgment.",
        next: "The message has the reason; `aegis.task.logs` of the judge's execution shows what it did.",
    }
    /// The answer of a judge is not a judgment.
    JUDGE_ANSWER_INVALID = "judge_answer_invalid" {
        cause: "It is not a JSON object with `score` and `confidence` from 0 to 1 and `reasoning`, a text.",
        next: "Tell the judge so in its instruction; a validator `json_schema` of its own has it try again.",
    }
    /// The agent's judges are too many.
    JUDGES_TOO_MANY = "judges_too_many" {
        cause: "Their number is bounded, and a judge has no judges of its own.",
        next: "Name fewer judges, or remove the judges of a judge.",
    }
    /// The execution or its iteration took too long.
    TIME_EXHAUSTED = "time_exhausted" {
        cause: "`spec.execution.iteration_timeout` or `spec.security.resources.timeout` is over; time without a running daemon does not count.",
        next: "Ask for less, or raise the bound that the message names.",
    }
    /// A required handler of the output failed.
    OUTPUT_HANDLER_FAILED = "output_handler_failed" {
        cause: "`spec.output_handler` is `required`, and its last attempt failed.",
        next: "`details.cause` has the reason; `aegis.task.logs` has the output and each attempt.",
    }
    /// The session may not do what a handler or a receiver of its agent does.
    HANDLER_DENIED = "handler_denied" {
        cause: "The policy does not let the session that runs the agent run commands, or fetch from that address, or `agent.smtp.receivers` has another receiver.",
        next: "Have somebody run the agent who may, or deploy it with another handler.",
    }
    /// The daemon ended during the call of a handler.
    HANDLER_INTERRUPTED = "handler_interrupted" {
        cause: "The tool of `spec.output_handler` does more when it is called twice, so it is not called again.",
        next: "Look whether the call took effect.",
    }
    /// The command of a handler or a receiver did not succeed.
    HANDLER_COMMAND_FAILED = "handler_command_failed" {
        cause: "It exited with another status than 0, was ended, or wrote more than 16 KiB.",
        next: "Mend the command or the script; the message has what it wrote to stderr.",
    }
    /// The mail cannot be written so.
    MAIL_INVALID = "mail_invalid" {
        cause: "An address of `agent.smtp.from` or of a receiver is not one.",
        next: "Mend the address that the message names.",
    }
    /// The mail was not taken.
    MAIL_FAILED = "mail_failed" {
        cause: "The server of `agent.smtp` is not there, or refuses the sender, the receiver or the password.",
        next: "Look at the server; the message has its answer.",
    }
    /// There is no such program.
    PROGRAM_UNKNOWN = "program_unknown" {
        cause: "`spec.runtime.program` names a program that this daemon has no description of.",
        next: "Name one that the message lists, or give `spec.runtime.command`.",
    }
    /// The model's provider does not speak what the program speaks.
    PROGRAM_MODEL_UNFIT = "program_model_unfit" {
        cause: "A program's requests are passed on as they are, so the provider has to be of that kind.",
        next: "Name a model in `spec.runtime.model` whose provider is of the kind that the message names.",
    }
    /// The program of an agent did not succeed.
    PROGRAM_FAILED = "program_failed" {
        cause: "It exited with another status than 0, was ended, or could not be started.",
        next: "`program_ended` of `aegis.task.logs` has its output.",
    }
    /// The answer to a program's request cannot be kept.
    PROGRAM_ANSWER_UNREADABLE = "program_answer_unreadable" {
        cause: "It is not text, though its API has JSON alone.",
        next: "Look at the provider.",
    }
}
