//! Tests the picture of the screen in the README, which is drawn from events.
//!
//! `RALPH_BLESS=1 cargo nextest run -p ralph-cli -E 'test(readme_svg::)'` redraws it.

#![expect(clippy::disallowed_methods, reason = "`RALPH_BLESS` asks for new files")]

use std::fmt::Write as _;
use std::path::Path;

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};
use serde_json::json;

use super::fixture::WatchFixture;

#[test]
fn the_readme_picture_is_up_to_date() {
    let mut story = WatchFixture::new();
    story.model.colour = true;
    story
        .five_iterations()
        .push_event(&json!({"type": "pr-opened", "url": "https://github.com/ann/shop/pull/12", "number": 12}));
    story.full_iteration(6, "action-failed", 0, &["M1.1", "M1.2"], 0.5).full_iteration(
        7,
        "progress",
        1,
        &["M1.1", "M1.2", "M2.1"],
        0.2,
    );
    story.start_iteration(8, "sonnet").model_call(8, 330_000).start_action(8, "npm test -- --grep cookie").advance(17);
    let found = svg(&story.buffer(112, 36));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/watch.svg");
    if std::env::var_os("RALPH_BLESS").is_some_and(|bless| bless == "1") {
        std::fs::write(&path, found).unwrap();
        return;
    }
    assert!(std::fs::read_to_string(&path).unwrap_or_default() == found, "docs/watch.svg is not what is drawn now");
}

/// Writes cells as text on a dark rectangle, one element for each sequence of cells with the same style.
fn svg(buffer: &Buffer) -> String {
    let (cell, row) = (8.4, 18);
    let (width, height) = (f64::from(buffer.area.width) * cell + 28.0, u32::from(buffer.area.height) * row + 48);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height}\" viewBox=\"0 0 {width:.0} \
         {height}\" role=\"img\" aria-label=\"Terminal: ralph watch\">\n<rect width=\"{width:.0}\" height=\"{height}\" \
         rx=\"8\" fill=\"#0d1117\"/><circle cx=\"18\" cy=\"16\" r=\"5\" fill=\"#ff5f56\"/><circle cx=\"36\" cy=\"16\" \
         r=\"5\" fill=\"#ffbd2e\"/><circle cx=\"54\" cy=\"16\" r=\"5\" fill=\"#27c93f\"/>\n<g \
         font-family=\"ui-monospace,SFMono-Regular,Menlo,Consolas,monospace\" font-size=\"14\" fill=\"#e6edf3\" \
         xml:space=\"preserve\">\n"
    );
    for y in 0..buffer.area.height {
        let mut x = 0;
        while x < buffer.area.width {
            let look = |x: u16| (buffer[(x, y)].fg, buffer[(x, y)].modifier);
            let end = (x..buffer.area.width).find(|at| look(*at) != look(x)).unwrap_or(buffer.area.width);
            let text: String = (x..end).map(|at| buffer[(at, y)].symbol()).collect();
            if !text.trim().is_empty() {
                let (at, base) = (14.0 + f64::from(x) * cell, 46 + u32::from(y) * row);
                let length = f64::from(end - x) * cell;
                let style = style(look(x));
                // The length is given, so that frames connect with any font.
                writeln!(
                    out,
                    "<text x=\"{at:.1}\" y=\"{base}\" textLength=\"{length:.1}\" lengthAdjust=\"spacingAndGlyphs\"{style}>{}</text>",
                    escaped(&text)
                )
                .unwrap();
            }
            x = end;
        }
    }
    out + "</g>\n</svg>\n"
}

fn style((colour, modifier): (Color, Modifier)) -> String {
    let fill = match colour {
        Color::Green => " fill=\"#7ee787\"",
        Color::Red => " fill=\"#ff7b72\"",
        Color::Yellow => " fill=\"#e3b341\"",
        Color::Cyan => " fill=\"#76d9e6\"",
        _ => "",
    };
    let bold = if modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    let dim = if modifier.contains(Modifier::DIM) { " fill-opacity=\"0.55\"" } else { "" };
    format!("{fill}{bold}{dim}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
