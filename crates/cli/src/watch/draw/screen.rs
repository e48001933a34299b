//! Draws the whole screen, part by part.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Paragraph};

use super::super::layout::screen_layout;
use super::super::model::{InputMode, WatchModel};
use super::super::text_layout;
use super::theme::{TextTone, style};
use super::{budgets, checkboxes, header, iterations, log, overlay};

/// Draws the whole screen.
pub(in super::super) fn draw(model: &WatchModel, frame: &mut Frame<'_>) {
    let area = frame.area();
    if area.width < 16 || area.height < 5 {
        let words = text_layout::truncate("ralph watch needs a larger window", usize::from(area.width));
        frame.render_widget(Paragraph::new(words), area);
        return;
    }
    let plan = screen_layout(model, area);
    frame.render_widget(Paragraph::new(header::lines(model, area.width)), plan.header);
    frame.render_widget(Paragraph::new(budgets::summary_lines(model, plan.strip)), plan.strip);
    let inside = panel(model, frame, plan.iterations, plan.framed, "Iterations", "");
    frame.render_widget(Paragraph::new(iterations::lines(model, inside)), inside);
    let inside = panel(model, frame, plan.boxes, plan.framed, "Boxes", &checkboxes::verified_text(model));
    frame.render_widget(Paragraph::new(checkboxes::lines(model, inside)), inside);
    let inside = panel(model, frame, plan.budgets, plan.framed, "Budgets", "");
    frame.render_widget(Paragraph::new(budgets::lines(model, inside)), inside);
    let inside = panel(model, frame, plan.log, plan.framed, "Log", &log::follow_status(model, plan.log.width));
    frame.render_widget(Paragraph::new(log::lines(model, inside)), inside);
    frame.render_widget(Paragraph::new(overlay::message(model, plan.message.width)), plan.message);
    frame.render_widget(Paragraph::new(overlay::footer(model, plan.footer.width)), plan.footer);
    match &model.mode {
        InputMode::Help => overlay::help(model, frame, area),
        InputMode::Choose { what, items, at } => overlay::choice(model, frame, area, *what, items, *at),
        InputMode::Browse | InputMode::ConfirmStop | InputMode::EnterText { .. } => (),
    }
}

/// Draws the frame of a panel, or only its title where space is scarce, and returns the area inside.
fn panel(model: &WatchModel, frame: &mut Frame<'_>, area: Rect, framed: bool, title: &str, standing: &str) -> Rect {
    if area.is_empty() {
        return area;
    }
    let dim = style(model, TextTone::Dim);
    let mut words = vec![Span::styled(format!(" {title} "), style(model, TextTone::Bold))];
    if !standing.is_empty() {
        words.push(Span::styled(format!("{standing} "), dim));
    }
    if framed {
        let block = Block::bordered().border_type(BorderType::Rounded).border_style(dim).title(Line::from(words));
        let inside = block.inner(area);
        frame.render_widget(block, area);
        return inside;
    }
    let mut words: Vec<Span<'_>> = [Span::styled("──", dim)].into_iter().chain(words).collect();
    let used: usize = words.iter().map(Span::width).sum();
    words.push(Span::styled("─".repeat(usize::from(area.width).saturating_sub(used)), dim));
    frame.render_widget(Paragraph::new(Line::from(words)), Rect { height: 1, ..area });
    Rect { y: area.y + 1, height: area.height - 1, ..area }
}
