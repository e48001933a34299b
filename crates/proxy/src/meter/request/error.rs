//! Defines why a request is not sent.

/// A request that can be understood in more than one way, or whose cost cannot be known in advance.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    #[error("the body is not a JSON object, at line {line}, column {column}")]
    NotJson { line: usize, column: usize },
    #[error("the body has more than {most} values")]
    TooMany { most: u32 },
    #[error("`{name}` appears twice in one object")]
    Twice { name: String },
    #[error("`{name}` is not the exact spelling of `{meant}`")]
    Spelling { name: String, meant: &'static str },
    #[error("`{name}` is not a valid field name")]
    NotAscii { name: String },
    #[error("the body names no model")]
    NoModel,
    #[error("`{name}` must be {what}")]
    Field { name: &'static str, what: &'static str },
    #[error("`{name}` refers to content stored at the provider, whose cost cannot be known in advance")]
    StoredAtProvider { name: &'static str },
    #[error(
        "an item of the model's reasoning has an `id` and no `encrypted_content`: its cost cannot be known in advance"
    )]
    StoredReasoning,
    #[error("the cost of a part of type `{kind}` cannot be estimated, so it is refused")]
    Part { kind: String },
}

impl BadRequest {
    /// Returns what the client can do instead.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::StoredAtProvider { .. } => "send the whole conversation with every call",
            Self::StoredReasoning => {
                "request it with `\"include\": [\"reasoning.encrypted_content\"]` and send that back, or leave the item out"
            }
            Self::Part { .. } => "send pictures and documents as base64, and everything else as text",
            Self::TooMany { .. } => "send less in one call",
            Self::NotAscii { .. } => "leave it out, or write it in ASCII",
            Self::Spelling { meant, .. } => return Some(format!("write `{meant}`")),
            Self::NotJson { .. } | Self::Twice { .. } | Self::NoModel | Self::Field { .. } => return None,
        };
        Some(hint.to_owned())
    }
}

/// Makes a client's word safe to print in a message.
pub(super) fn printable(word: &str) -> String {
    word.chars().filter(|c| !c.is_control() && *c != '`').take(60).collect()
}
