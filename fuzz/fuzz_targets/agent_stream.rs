//! Parses any bytes as the output of an agent: every reader takes them without a panic, keeps little, and returns
//! only plain text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ralph_core::agent::{AgentOutputEvent, AgentSessionEnd, LineSplitter, all, classify_session_end};

/// More than any reader keeps of one text.
const MOST: usize = 64 << 10;

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    for agent in all() {
        let (mut reader, mut lines) = (agent.reader(), LineSplitter::default());
        // In pieces, as output arrives.
        for piece in input.chunks(97) {
            lines.push(piece, |line| reader.read_line(line).iter().for_each(plain));
        }
        lines.finish(|line| reader.read_line(line).iter().for_each(plain));
        assert!(reader.last_text().len() <= MOST, "{} keeps too much", agent.name());
        let now = "2026-01-02T03:04:05Z".parse().expect("a moment");
        let code = input.first().map(|byte| i32::from(*byte));
        classify_session_end(&AgentSessionEnd {
            code,
            missing: false,
            idle: false,
            timed_out: false,
            result: reader.session_result(),
            stderr: &text,
            calls: &[],
            now,
        });
    }
});

fn plain(said: &AgentOutputEvent) {
    let texts: Vec<&str> = match said {
        AgentOutputEvent::Text(text) | AgentOutputEvent::Warning(text) | AgentOutputEvent::Retry { why: text, .. } => {
            vec![text]
        }
        AgentOutputEvent::Tool { name, brief } | AgentOutputEvent::ToolDone { name, brief, .. } => vec![name, brief],
    };
    for text in texts {
        assert!(text.len() <= MOST, "{} bytes in one text", text.len());
        let odd = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
        assert!(!text.contains(odd), "{text:?} could control a terminal");
    }
}
