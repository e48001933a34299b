//! Injects the credential of a route, and finds phantoms in requests where they must not be.

use std::sync::Arc;

use hyper::header::HeaderMap;

use super::gateway_request::GatewayRequest;
use crate::credential::{self, ProxyCredential};
use crate::egress_events::AlarmKind;
use crate::meter::GatewayRefusal;

impl GatewayRequest<'_> {
    /// Replaces the phantom by the real credential; refuses a request without it.
    pub(super) fn inject_credential(
        &mut self,
        headers: &mut HeaderMap,
        rest: &str,
        query: Option<&str>,
    ) -> Result<(), GatewayRefusal> {
        let by_query = |phantom: &str| {
            query.is_some_and(|query| query.split('&').any(|pair| pair.strip_prefix("key=") == Some(phantom)))
        };
        // The phantom of another credential must not be sent here.
        let path_and_query = format!("{rest}?{}", query.unwrap_or(""));
        if let Some(other) =
            self.context.credentials.find_misdirected_phantom(headers, &path_and_query, self.route.credential())
        {
            self.context.raise_alarm(AlarmKind::PhantomMisdirected, other, &self.route.upstream.target);
            return Err(GatewayRefusal::Credential("this phantom credential is for another host".to_owned()));
        }
        let Some(credential) = self.route.credential() else {
            credential::strip_credentials(headers);
            return Ok(());
        };
        if !credential.phantom_in_headers(headers) && !by_query(credential.phantom()) {
            let text = format!(
                "route `{}` takes the phantom credential that the sandbox was given, and no other key",
                self.route.name()
            );
            return Err(GatewayRefusal::Credential(text));
        }
        if credential.is_revoked() {
            self.context.raise_alarm(
                AlarmKind::PhantomRevoked,
                credential.name().to_owned(),
                &self.route.upstream.target,
            );
            return Err(GatewayRefusal::Credential("this phantom credential was revoked".to_owned()));
        }
        if credential.phantom_in_text(rest) {
            self.alarm_phantom_in_prompt(credential);
            return Err(GatewayRefusal::Credential("a phantom credential must not be sent in a URL".to_owned()));
        }
        credential.inject(headers);
        if credential.remove_phantom(headers) {
            self.alarm_phantom_in_prompt(credential);
        }
        self.update_exchange(|exchange| exchange.credential = Some(credential.name().to_owned()));
        Ok(())
    }

    /// Looks for phantoms in a body, before anything is reserved or dialled for it.
    pub(super) fn check_body_phantoms(&self, body: &[u8]) -> Result<(), GatewayRefusal> {
        let own = self.route.credential();
        for present in self.context.credentials.with_phantom_in(body) {
            if own.is_some_and(|own| Arc::ptr_eq(own, present)) {
                self.alarm_phantom_in_prompt(present);
            } else {
                self.context.raise_alarm(
                    AlarmKind::PhantomMisdirected,
                    present.name().to_owned(),
                    &self.route.upstream.target,
                );
                let text =
                    format!("the request contains the phantom of `{}`, which is for another host", present.name());
                return Err(GatewayRefusal::Credential(text));
            }
        }
        Ok(())
    }

    /// Raises the alarm about a phantom in a call to its own model, the first time only: a conversation repeats
    /// itself with every call.
    fn alarm_phantom_in_prompt(&self, credential: &ProxyCredential) {
        if credential.is_first_misuse() {
            self.context.raise_alarm(
                AlarmKind::PhantomInPrompt,
                credential.name().to_owned(),
                &self.route.upstream.target,
            );
        }
    }
}
