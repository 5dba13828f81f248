//! Decorator of a service that boxes the futures of its requests.
//!
//! rmcp moves such a future several times on its way into a task of its own, as large as that of the
//! largest handler. Boxed, it moves a pointer.

use std::{borrow::Cow, pin::Pin};

use rmcp::{
    ErrorData, RoleServer, Service,
    model::ProtocolVersion,
    service::{NotificationContext, RequestContext, ServiceRole},
};

/// A service with boxed requests.
#[derive(Debug, Clone)]
pub struct BoxedService<S>(pub S);

type Answer<'a> = Pin<Box<dyn Future<Output = Result<Response, ErrorData>> + Send + 'a>>;
type Request = <RoleServer as ServiceRole>::PeerReq;
type Response = <RoleServer as ServiceRole>::Resp;

impl<S: Service<RoleServer>> Service<RoleServer> for BoxedService<S> {
    fn handle_request(
        &self,
        request: Request,
        context: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<Response, ErrorData>> + Send + '_ {
        let answer: Answer<'_> = Box::pin(self.0.handle_request(request, context));
        answer
    }

    fn handle_notification(
        &self,
        notification: <RoleServer as ServiceRole>::PeerNot,
        context: NotificationContext<RoleServer>,
    ) -> impl Future<Output = Result<(), ErrorData>> + Send + '_ {
        self.0.handle_notification(notification, context)
    }

    fn get_info(&self) -> <RoleServer as ServiceRole>::Info {
        self.0.get_info()
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.0.supported_protocol_versions()
    }
}
