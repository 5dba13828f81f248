//! Mails to receivers of an output, by the operator's server.

use std::time::Duration;

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_runtime::read_secret;
use lettre::{
    Address, AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor,
    message::{Mailbox, header::ContentType},
    transport::smtp::{Error, authentication::Credentials},
};

use crate::{
    codes,
    options::{SmtpOptions, SmtpSecurity},
};

/// Longest wait for the server at each step.
const PATIENCE: Duration = Duration::from_secs(20);

/// Mail to be sent.
pub(crate) struct Letter {
    pub(crate) to: Vec<String>,
    pub(crate) subject: String,
    pub(crate) body: String,
    /// Key of the job: the same for a second attempt.
    pub(crate) key: String,
}

/// Sends a mail; the id that the receivers know it by.
///
/// # Errors
/// `mail_invalid`; `mail_failed`, retryable where the server may take it later.
pub(crate) async fn send(smtp: &SmtpOptions, letter: Letter) -> Result<String, ToolError> {
    let from = address(&smtp.from)?;
    let message_id = format!("<{}@{}>", letter.key, from.domain());
    let to = letter.to.iter().map(|to| address(to)).collect::<Result<Vec<_>, _>>()?;
    let mut message = Message::builder()
        .from(Mailbox::new(None, from))
        .message_id(Some(message_id.clone()))
        .subject(letter.subject.replace(['\r', '\n'], " "))
        .header(ContentType::TEXT_PLAIN);
    for to in to {
        message = message.to(Mailbox::new(None, to));
    }
    let message = message.body(letter.body).map_err(|error| invalid(error.to_string()))?;
    transport(smtp).await?.send(message).await.map_err(|error| failed(&error))?;
    Ok(message_id)
}

async fn transport(smtp: &SmtpOptions) -> Result<AsyncSmtpTransport<Tokio1Executor>, ToolError> {
    let SmtpOptions { host, port, security, user, password_file, .. } = smtp;
    let builder = match security {
        SmtpSecurity::Tls => AsyncSmtpTransport::<Tokio1Executor>::relay(host),
        SmtpSecurity::Starttls => AsyncSmtpTransport::<Tokio1Executor>::starttls_relay(host),
        SmtpSecurity::None => Ok(AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(host)),
    };
    let mut builder = builder.map_err(|error| failed(&error))?.timeout(Some(PATIENCE));
    if let Some(port) = port {
        builder = builder.port(*port);
    }
    if let (Some(user), Some(file)) = (user, password_file) {
        let password = read_secret(file).await.map_err(|why| {
            ToolError::new(Layer::Actor, codes::MAIL_FAILED, format!("the password: {why}"))
                .next("put it where `agent.smtp.password_file` says")
        })?;
        builder = builder.credentials(Credentials::new(user.clone(), password));
    }
    Ok(builder.build())
}

fn address(text: &str) -> Result<Address, ToolError> {
    text.parse().map_err(|error| invalid(format!("`{text:.80}` is not an address: {error}")))
}

fn invalid(why: String) -> ToolError {
    ToolError::new(Layer::Actor, codes::MAIL_INVALID, why)
        .next("mend the receiver under `spec.execution.delivery`")
}

pub(crate) fn not_configured() -> ToolError {
    let message = "no server for mails is configured".to_owned();
    ToolError::new(Layer::Actor, codes::MAIL_FAILED, message)
        .next("have the operator set `agent.smtp`")
}

fn failed(error: &Error) -> ToolError {
    let message = format!("the mail was not taken: {error}");
    let told = ToolError::new(Layer::Actor, codes::MAIL_FAILED, message)
        .next("look at the server that `agent.smtp` names");
    if error.is_permanent() { told } else { told.retryable() }
}
