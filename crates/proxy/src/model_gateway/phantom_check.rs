//! Injects the credential of a route, and finds phantoms in requests where they must not be.

use std::sync::Arc;

use hyper::header::HeaderMap;

use super::gateway_request::GatewayRequest;
use crate::credential::{self, ProxyCredential};
use crate::meter::GatewayRefusal;
use crate::observer::AlarmKind;

impl GatewayRequest<'_> {
    /// Puts the real credential where the phantom is; refuses a request without it.
    pub(super) fn inject_credential(
        &mut self,
        headers: &mut HeaderMap,
        rest: &str,
        query: Option<&str>,
    ) -> Result<(), GatewayRefusal> {
        let by_query = |phantom: &str| {
            query.is_some_and(|query| query.split('&').any(|pair| pair.strip_prefix("key=") == Some(phantom)))
        };
        // A stand-in of another credential has no business here.
        let asked = format!("{rest}?{}", query.unwrap_or(""));
        if let Some(other) = self.context.credentials.find_misdirected_phantom(headers, &asked, self.route.credential())
        {
            self.context.raise_alarm(AlarmKind::PhantomMisdirected, other, &self.route.upstream.target);
            return Err(GatewayRefusal::Credential("this stand-in is for another host".to_owned()));
        }
        let Some(credential) = self.route.credential() else {
            credential::strip_credentials(headers);
            return Ok(());
        };
        if !credential.phantom_in_headers(headers) && !by_query(credential.phantom()) {
            let text = format!(
                "route `{}` takes the stand-in that the sandbox was given, and no other key",
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
            return Err(GatewayRefusal::Credential("this stand-in was revoked".to_owned()));
        }
        if credential.phantom_in_text(rest) {
            self.alarm_phantom_in_prompt(credential);
            return Err(GatewayRefusal::Credential("a stand-in has no place in an address".to_owned()));
        }
        credential.inject(headers);
        if credential.remove_phantom(headers) {
            self.alarm_phantom_in_prompt(credential);
        }
        self.update_exchange(|told| told.credential = Some(credential.name().to_owned()));
        Ok(())
    }

    /// Looks for stand-ins in a body, before anything is set aside or dialled for it.
    pub(super) fn check_body_phantoms(&self, body: &[u8]) -> Result<(), GatewayRefusal> {
        let own = self.route.credential();
        for held in self.context.credentials.with_phantom_in(body) {
            if own.is_some_and(|own| Arc::ptr_eq(own, held)) {
                self.alarm_phantom_in_prompt(held);
            } else {
                self.context.raise_alarm(
                    AlarmKind::PhantomMisdirected,
                    held.name().to_owned(),
                    &self.route.upstream.target,
                );
                let text = format!("the request holds the stand-in for `{}`, which is for another host", held.name());
                return Err(GatewayRefusal::Credential(text));
            }
        }
        Ok(())
    }

    /// Raises the alarm about a stand-in that its own model is told, the first time: a conversation repeats itself with
    /// every call.
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
