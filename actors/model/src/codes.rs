//! Error codes of language models.

hivekeep_kernel::codes! {
    /// No language model is configured.
    LLM_NOT_CONFIGURED = "llm_not_configured" {
        cause: "`[model.provider.NAME]` is missing, or the alias that the call stands on is not set.",
        next: "The operator adds a provider, or sets `model.alias.ALIAS.models`; the message names the key.",
    }
    /// There is no provider or alias of that name.
    LLM_UNKNOWN_BACKEND = "llm_unknown_backend" {
        cause: "The name is wrong, or the provider is not enabled.",
        next: "`ml_backends` lists what there is.",
    }
    /// There is no model of that name.
    LLM_UNKNOWN_MODEL = "llm_unknown_model" {
        cause: "The provider is not configured with it or does not have it, or it is for another purpose.",
        next: "`ml_backends` lists the models of each provider.",
    }
    /// The provider does not take the key.
    LLM_AUTH_FAILED = "llm_auth_failed" {
        cause: "The key is missing, wrong or over, or may not use the model.",
        next: "The operator mends the key where `key_file` or `key_env` of the provider says.",
    }
    /// The provider refuses the request.
    LLM_REQUEST_REFUSED = "llm_request_refused" {
        cause: "The request is too long for the model, or asks for what the model cannot do.",
        next: "Read the message, which is the provider's own, and change the request.",
    }
    /// The provider has had enough requests for now.
    LLM_RATE_LIMITED = "llm_rate_limited" {
        cause: "The account's limit is reached, also after repetitions.",
        next: "Repeat the call later, or use another provider.",
    }
    /// The provider does not answer.
    LLM_UNAVAILABLE = "llm_unavailable" {
        cause: "It is down or fails, or failed so often that it is left alone for a while.",
        next: "Repeat the call later; `ml_backends` shows its state.",
    }
    /// The provider was too slow.
    LLM_TIMED_OUT = "llm_timed_out" {
        cause: "No answer began, or one paused, for longer than the provider's limits.",
        next: "Repeat the call, or raise `first_token_secs` or `idle_secs` of the provider.",
    }
    /// The answer makes no sense, or ended early.
    LLM_ANSWER_BROKEN = "llm_answer_broken" {
        cause: "The connection was cut, or the provider does not speak as its kind says.",
        next: "Repeat the call; check `kind` and `endpoint` of the provider.",
    }
    /// The answer is larger than its limit.
    LLM_ANSWER_TOO_LARGE = "llm_answer_too_large" {
        cause: "The provider sent more than `max_answer_kb`.",
        next: "Ask for a shorter answer, or raise the limit.",
    }
    /// The answer does not match the schema that was asked for.
    LLM_SCHEMA_MISMATCH = "llm_schema_mismatch" {
        cause: "The model does not keep to schemas, or its answer was cut short.",
        next: "Allow more tokens, or use a model that keeps to schemas.",
    }
    /// Too many requests wait for the provider.
    LLM_BUSY = "llm_busy" {
        cause: "Its queue is full, or the turn did not come within `queue_secs`.",
        next: "Repeat the call later.",
    }
    /// A budget would be exceeded.
    LLM_BUDGET_EXCEEDED = "llm_budget_exceeded" {
        cause: "What the request may cost is more than what is left of `model.budget`.",
        next: "Ask for fewer tokens; the operator raises the budget.",
    }
    /// The model has no price, and money is bounded.
    LLM_PRICE_UNKNOWN = "llm_price_unknown" {
        cause: "`model.budget` bounds money, and the model has no `input_usd` and `output_usd`.",
        next: "The operator configures the price of the model.",
    }
    /// The provider cannot do that.
    LLM_UNSUPPORTED = "llm_unsupported" {
        cause: "The provider's kind has no embeddings, or no such thing as was asked for.",
        next: "Use another provider.",
    }
    /// The script of a scripted provider has no reply.
    LLM_SCRIPT_FAILED = "llm_script_failed" {
        cause: "Its file is missing or not valid, or its replies are used up.",
        next: "Mend the file that `script` names.",
    }
    /// The judge's answer is not a score.
    LLM_JUDGE_UNREADABLE = "llm_judge_unreadable" {
        cause: "It is not JSON, lacks a score, or has one outside of 1 to 10.",
        next: "Repeat the call, or use a better model for `model.alias.judge`.",
    }
    /// The suite of scores does not work here.
    ML_SUITE_UNAVAILABLE = "ml_suite_unavailable" {
        cause: "`content` needs reference material that the daemon does not have.",
        next: "Use `heuristic`, `semantic`, or both.",
    }
    /// The address is not one that the operator configured.
    ML_STATUS_REFUSED = "ml_status_refused" {
        cause: "`model.status.influx_urls` is empty or does not list it; a token goes nowhere else.",
        next: "Use a configured address, or ask the operator.",
    }
    /// The time series database did not answer.
    ML_STATUS_FAILED = "ml_status_failed" {
        cause: "Every query failed; the details say how.",
        next: "Check the database, its name and its token.",
    }
}
