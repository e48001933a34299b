//! The answer to one DNS message. Nothing here waits and nothing is asked of anybody.

use ralph_core::policy::canonical;

use super::packet::{self, Code, Kind, Message};
use crate::notice::{Entry, Why};
use crate::pipeline::Pipeline;
use crate::target::Target;

/// Answers a message; `None` if it must not be answered.
///
/// A name that is not allowed does not exist: a refusal would make resolvers ask again and again.
pub(super) fn answer(pipeline: &Pipeline, message: &[u8]) -> Option<Vec<u8>> {
    let question = match packet::read(message) {
        Message::Question(question) => question,
        Message::Wrong(code) => {
            let why = match code {
                Code::NotImplemented => "only A and AAAA questions are answered",
                _ => "it is not one question",
            };
            pipeline.refused_text(Entry::Dns, "", 0, &Why::Malformed(why));
            return Some(packet::answer(message, code));
        }
        Message::Ignored => return None,
    };
    let Some(name) = question.name.as_deref() else {
        pipeline.refused_text(Entry::Dns, "", 0, &Why::Malformed("the name has a byte that no host name has"));
        return Some(packet::answer(message, Code::NoSuchName));
    };
    // An address is nobody's name; whoever has one does not ask for it here.
    let named = Target::new(name, 443).ok().filter(|target| target.literal().is_none());
    let Some(target) = named else {
        let why = canonical(name).err().map_or(Why::Malformed("an address is no name"), |bad| Why::Target(bad.into()));
        pipeline.refused_text(Entry::Dns, name, 0, &why);
        return Some(packet::answer(message, Code::NoSuchName));
    };
    Some(match (pipeline.name_address(target.host()), question.kind) {
        (Ok(address), Kind::V4) => packet::address(message, &question, address),
        // The name exists, but not as IPv6.
        (Ok(_), Kind::V6) => packet::answer(message, Code::Fine),
        (Err(_), _) => packet::answer(message, Code::NoSuchName),
    })
}
