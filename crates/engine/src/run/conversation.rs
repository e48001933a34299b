//! Records the model's answers as a script: the model `scripted/<run folder>/conversation.jsonl` replays the run
//! without its provider.
//!
//! Lost calls are not in it: their answers are unknown, and a replay loses none. So a reply is identified by its
//! position among the answers of its iteration, not among its calls.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};

use serde_json::Value;

use crate::error::{Error, file_error};
use crate::model::scripted_model::ScriptedReply;
use crate::store::{RunFolder, write_atomic};

/// The file's name in the folder of a run.
pub const CONVERSATION_FILE: &str = "conversation.jsonl";

/// How the file is updated.
#[derive(Debug, PartialEq, Eq)]
enum ConversationUpdate {
    /// The file contains the reply already: the process died after writing it.
    Nothing,
    /// The text is appended after this many bytes; anything a crash left unfinished after them is cut off.
    Append { whole: usize, text: String },
    /// The same call was answered again, and the new answer counts.
    Rewrite { text: String },
}

/// Records a reply; recording it again changes nothing.
pub(super) fn record(folder: &RunFolder, reply: &ScriptedReply) -> Result<(), Error> {
    let path = folder.path().join(CONVERSATION_FILE);
    let held = folder.read(&path)?.unwrap_or_default();
    match plan_update(&held, reply) {
        ConversationUpdate::Nothing => Ok(()),
        ConversationUpdate::Rewrite { text } => write_atomic(&path, text.as_bytes()),
        ConversationUpdate::Append { whole, text } => {
            let opened = File::options().create(true).truncate(false).write(true).open(&path);
            let mut script = opened.map_err(file_error("open", &path))?;
            let end = u64::try_from(whole).unwrap_or(u64::MAX);
            script.set_len(end).map_err(file_error("repair", &path))?;
            script.seek(SeekFrom::Start(end)).map_err(file_error("append to", &path))?;
            script.write_all(text.as_bytes()).map_err(file_error("append to", &path))
        }
    }
}

fn plan_update(held: &[u8], reply: &ScriptedReply) -> ConversationUpdate {
    let whole = held.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let text = String::from_utf8_lossy(held.get(..whole).unwrap_or_default());
    let line = reply.line();
    if whole == 0 {
        return ConversationUpdate::Append { whole, text: ScriptedReply::header() + &line };
    }
    let wanted = serde_json::to_value(&reply.when).unwrap_or_default();
    // Parse only lines that contain this text: a long run has thousands of lines.
    let words = wanted.to_string();
    let same_call = |held: &str| {
        if !held.contains(&words) {
            return false;
        }
        let held: Value = serde_json::from_str(held).unwrap_or_default();
        held.get("when").is_some_and(|when| *when == wanted)
    };
    match text.split_inclusive('\n').find(|line| same_call(line)) {
        None => ConversationUpdate::Append { whole, text: line },
        Some(same) if same == line && whole == held.len() => ConversationUpdate::Nothing,
        Some(same) if same == line => ConversationUpdate::Append { whole, text: String::new() },
        Some(_) => {
            let others: String = text.split_inclusive('\n').filter(|held| !same_call(held)).collect();
            ConversationUpdate::Rewrite { text: others + &line }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::scripted_model::{ConversationScript, ReplyCondition};

    fn reply(iteration: u32, call: u32, text: &str) -> ScriptedReply {
        let when = ReplyCondition { iteration: Some(iteration), call: Some(call), ..ReplyCondition::default() };
        ScriptedReply { text: Some(text.to_owned()), when: Some(when), ..ScriptedReply::default() }
    }

    fn file_of(replies: &[ScriptedReply]) -> String {
        ScriptedReply::header() + &replies.iter().map(ScriptedReply::line).collect::<String>()
    }

    #[test]
    fn changes() {
        let (one, two) = (reply(1, 0, "a\nb"), reply(1, 1, "c"));
        let both = file_of(&[one.clone(), two.clone()]);
        let append = |held: &str, text: String| ConversationUpdate::Append { whole: held.len(), text };
        assert_eq!(plan_update(b"", &one), append("", file_of(std::slice::from_ref(&one))));
        // A crash within the first line.
        assert_eq!(plan_update(b"{\"form", &one), append("", file_of(std::slice::from_ref(&one))));
        let first = file_of(std::slice::from_ref(&one));
        assert_eq!(plan_update(first.as_bytes(), &two), append(&first, two.line()));
        assert_eq!(plan_update(format!("{first}{{\"te\u{fc}").as_bytes(), &two), append(&first, two.line()));
        assert_eq!(plan_update(both.as_bytes(), &one), ConversationUpdate::Nothing);
        assert_eq!(plan_update(both.as_bytes(), &two), ConversationUpdate::Nothing);
        assert_eq!(plan_update(format!("{both}{{\"te").as_bytes(), &two), append(&both, String::new()));
        let new = reply(1, 0, "another");
        let want = file_of(&[two.clone(), new.clone()]);
        assert_eq!(plan_update(both.as_bytes(), &new), ConversationUpdate::Rewrite { text: want });
    }

    proptest! {
        #[test]
        fn what_is_kept_is_what_is_played(
            texts in proptest::collection::vec((1..4_u32, 0..2_u32, "\\PC{0,20}|[\"{}\n\\\\]{0,9}"), 1..8),
            torn in "\\PC{0,9}",
        ) {
            let (temporary, mut last) = (tempfile::tempdir().unwrap(), std::collections::BTreeMap::new());
            let folder = RunFolder::at(temporary.path().to_owned());
            let path = folder.path().join(CONVERSATION_FILE);
            for (iteration, call, text) in texts {
                let mut held = std::fs::read(&path).unwrap_or_default();
                held.extend(torn.replace('\n', "").bytes());
                std::fs::write(&path, held).unwrap();
                record(&folder, &reply(iteration, call, &text)).unwrap();
                last.insert((iteration, call), text);
            }
            let script = ConversationScript::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
            for ((iteration, call), text) in last {
                let key = crate::model::CallKey::new(iteration, call);
                let played = script.reply(key, "any", &crate::model::ModelRequest::from_user_text("x")).and_then(ScriptedReply::answer);
                prop_assert_eq!(played, Some(text));
            }
        }
    }
}
