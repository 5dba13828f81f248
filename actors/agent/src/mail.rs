//! Mails to receivers of an output, by the operator's server.

use std::{num::NonZeroU32, path::Path, time::Duration};

use async_trait::async_trait;
use governor::{
    DefaultKeyedRateLimiter, Quota, RateLimiter,
    clock::{Clock, DefaultClock},
};
use hivekeep_kernel::{Layer, ToolError, User, codes::RATE_LIMITED};
use hivekeep_ports::{Mail, Mails};
use hivekeep_runtime::{http::authorities, read_secret};
use lettre::{
    Address, AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor,
    message::{Mailbox, header::ContentType},
    transport::smtp::{
        Error,
        authentication::Credentials,
        client::{Certificate, Tls, TlsParameters},
    },
};

use crate::{
    codes,
    options::{SmtpOptions, SmtpSecurity},
};

/// Longest wait for the server at each step.
const PATIENCE: Duration = Duration::from_secs(20);

/// Operator's server, and the share of it that each user has left.
pub(crate) struct Mailer {
    pub(crate) options: SmtpOptions,
    receivers: DefaultKeyedRateLimiter<User>,
}

impl Mailer {
    pub(crate) fn new(options: SmtpOptions) -> Self {
        let receivers = RateLimiter::keyed(Quota::per_hour(options.receivers_per_hour));
        Self { options, receivers }
    }

    fn take(&self, user: User, receivers: usize) -> Result<(), ToolError> {
        let most = self.options.receivers_per_hour;
        let limited = |message: String| ToolError::new(Layer::Rate, RATE_LIMITED, message);
        let count = u32::try_from(receivers).unwrap_or(u32::MAX);
        let Some(count) = NonZeroU32::new(count) else { return Ok(()) };
        match self.receivers.check_key_n(&user, count) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(until)) => {
                let wait = until.wait_time_from(DefaultClock::default().now());
                let message = format!("mails of {user} go to {most} receivers in an hour");
                Err(limited(message).next("wait for retry_after_ms").retry_after(wait))
            }
            Err(_beyond_all) => {
                let message = format!("a mail has {receivers} receivers, {most} are allowed");
                Err(limited(message).next("name fewer, or a list of the mail server's"))
            }
        }
    }
}

#[async_trait]
impl Mails for Mailer {
    async fn send(&self, user: User, mail: Mail) -> Result<String, ToolError> {
        self.options.admit(&mail.to)?;
        self.take(user, mail.to.len())?;
        send(&self.options, mail).await
    }
}

async fn send(smtp: &SmtpOptions, letter: Mail) -> Result<String, ToolError> {
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
    if let Some(reply_to) = &letter.reply_to {
        message = message.reply_to(Mailbox::new(None, address(reply_to)?));
    }
    let message = message.body(letter.body).map_err(|error| invalid(error.to_string()))?;
    transport(smtp).await?.send(message).await.map_err(|error| failed(&error))?;
    Ok(message_id)
}

async fn transport(smtp: &SmtpOptions) -> Result<AsyncSmtpTransport<Tokio1Executor>, ToolError> {
    let SmtpOptions { host, port, security, user, password_file, ca_file, .. } = smtp;
    let builder = match security {
        SmtpSecurity::Tls => AsyncSmtpTransport::<Tokio1Executor>::relay(host),
        SmtpSecurity::Starttls => AsyncSmtpTransport::<Tokio1Executor>::starttls_relay(host),
        SmtpSecurity::None => Ok(AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(host)),
    };
    let mut builder = builder.map_err(|error| failed(&error))?.timeout(Some(PATIENCE));
    if let Some(port) = port {
        builder = builder.port(*port);
    }
    if let (Some(file), true) = (ca_file, *security != SmtpSecurity::None) {
        let trusted = trusting(host, file).await?;
        builder = builder.tls(match security {
            SmtpSecurity::Tls => Tls::Wrapper(trusted),
            SmtpSecurity::Starttls | SmtpSecurity::None => Tls::Required(trusted),
        });
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

/// TLS with a server whose certificate may be of an authority in a file.
async fn trusting(host: &str, file: &Path) -> Result<TlsParameters, ToolError> {
    let path = file.to_owned();
    let read = tokio::task::spawn_blocking(move || authorities(&path)).await;
    let read = read.map_err(|error| error.to_string()).flatten().map_err(|why| {
        ToolError::new(Layer::Actor, codes::MAIL_FAILED, format!("`agent.smtp.ca_file`: {why}"))
            .next("put certificates in PEM there")
    })?;
    let mut builder = TlsParameters::builder(host.to_owned());
    for authority in read {
        let authority = Certificate::from_der(authority.to_vec()).map_err(|it| failed(&it))?;
        builder = builder.add_root_certificate(authority);
    }
    builder.build().map_err(|error| failed(&error))
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
