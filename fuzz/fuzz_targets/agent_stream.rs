//! Any bytes as what an agent prints: every reader takes them without a panic, keeps little, and says only plain text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ralph_core::agent::{Ended, Lines, Said, all, judge};

/// More than any reader keeps of one text.
const MOST: usize = 64 << 10;

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    for agent in all() {
        let (mut reader, mut lines) = (agent.reader(), Lines::default());
        // In pieces, as output comes.
        for piece in input.chunks(97) {
            lines.push(piece, |line| reader.line(line).iter().for_each(plain));
        }
        lines.end(|line| reader.line(line).iter().for_each(plain));
        assert!(reader.text().len() <= MOST, "{} keeps too much", agent.name());
        let now = "2026-01-02T03:04:05Z".parse().expect("a moment");
        let code = input.first().map(|byte| i32::from(*byte));
        judge(&Ended {
            code,
            missing: false,
            idle: false,
            timed_out: false,
            finished: reader.finished(),
            stderr: &text,
            calls: &[],
            now,
        });
    }
});

fn plain(said: &Said) {
    let texts: Vec<&str> = match said {
        Said::Text(text) | Said::Trouble(text) | Said::Retry { why: text, .. } => vec![text],
        Said::Tool { name, brief } | Said::ToolDone { name, brief, .. } => vec![name, brief],
    };
    for text in texts {
        assert!(text.len() <= MOST, "{} bytes are told at once", text.len());
        let odd = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
        assert!(!text.contains(odd), "{text:?} could drive a terminal");
    }
}
