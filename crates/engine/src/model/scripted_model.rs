//! Plays a recorded conversation as a model: for demos, tests and replay. It needs no network and no key.
//!
//! Faults go through the same classification as a real provider's, so a script can rehearse errors too.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use ralph_core::price::TokenUsage;
use reqwest::header::{HeaderMap, RETRY_AFTER};

pub use super::conversation_script::{
    ConversationScript, InvalidScript, ReplyCondition, SCRIPT_FORMAT, ScriptProblem, ScriptedFault, ScriptedReply,
};
use super::{
    CallKey, Error, LanguageModel, ModelFinishReason, ModelReply, ModelRequest, classify, error_body, estimate_usage,
};

/// A model that plays a recorded conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptedModel {
    name: String,
    profile: String,
    script: ConversationScript,
}

/// A script that could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ScriptLoadError {
    #[error("could not read the script `{}`", file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("the script `{}` cannot be played", file.display())]
    Invalid { file: PathBuf, source: InvalidScript },
}

impl ScriptLoadError {
    /// Returns what to do next.
    pub fn hint(&self) -> String {
        match self {
            Self::Read { .. } => "name an existing file in the profile: `scripted/<file>`".into(),
            Self::Invalid { file, source } => {
                format!("{}:{}: {}", file.display(), source.line, source.problem.hint())
            }
        }
    }
}

impl ScriptedModel {
    /// Creates a model from a script. `file` is its name in the profile, `profile` the profile's own name.
    pub fn new(file: &str, profile: impl Into<String>, script: ConversationScript) -> Self {
        Self { name: format!("scripted/{file}"), profile: profile.into(), script }
    }

    pub async fn load(path: &Path, profile: impl Into<String>) -> Result<Self, ScriptLoadError> {
        let file = path.to_owned();
        let text = match tokio::fs::read_to_string(path).await {
            Ok(text) => text,
            Err(source) => return Err(ScriptLoadError::Read { file, source }),
        };
        let script = match ConversationScript::parse(&text) {
            Ok(script) => script,
            Err(source) => return Err(ScriptLoadError::Invalid { file, source }),
        };
        // The name goes into artefacts, so it must not depend on the file's folder.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self::new(&name, profile, script))
    }

    fn reply_or_fault(&self, reply: &ScriptedReply, request: &ModelRequest, key: CallKey) -> Result<ModelReply, Error> {
        if let Some(fault) = reply.fault(key.attempt) {
            return Err(self.fault_error(fault));
        }
        let text = reply.answer().unwrap_or_default();
        // A provider bills no more than the output limit, however long the script's text is.
        let estimate = || {
            let guess = estimate_usage(request, text.len());
            TokenUsage { output: guess.output.min(u64::from(request.max_output_tokens)), ..guess }
        };
        Ok(ModelReply {
            usage: reply.usage.unwrap_or_else(estimate),
            usage_reported: reply.usage.is_some(),
            model: reply.model.clone().unwrap_or_else(|| self.name.clone()),
            finish: reply.finish.clone().unwrap_or(ModelFinishReason::Stop),
            raw_bytes: u64::try_from(text.len()).unwrap_or(u64::MAX),
            text,
        })
    }

    fn fault_error(&self, fault: &ScriptedFault) -> Error {
        let mut headers = HeaderMap::new();
        if let Some(seconds) = fault.retry_after_s {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        let body = fault.body.as_deref().unwrap_or_default();
        let text = match error_body::safe_excerpt(&error_body::ProviderErrorBody::parse(body).message, None) {
            text if text.is_empty() => "a fault of the script".to_owned(),
            text => text,
        };
        let class = classify(fault.status, &headers, body);
        Error::Status { model: self.name.clone(), status: fault.status, class, said: text, billed: false }
    }
}

#[async_trait]
impl LanguageModel for ScriptedModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_remote(&self) -> bool {
        false
    }

    async fn call(&self, request: &ModelRequest, key: CallKey) -> Result<ModelReply, Error> {
        let reply = self
            .script
            .reply(key, &self.profile, request)
            .ok_or_else(|| Error::ScriptEnded { model: self.name.clone(), key })?;
        let delay = Duration::from_millis(reply.delay_ms);
        if delay > request.timeout {
            tokio::time::sleep(request.timeout).await;
            return Err(Error::Timeout { model: self.name.clone(), after: request.timeout });
        }
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        self.reply_or_fault(reply, request, key)
    }
}
