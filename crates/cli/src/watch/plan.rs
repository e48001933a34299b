//! Who gets which part of the screen. Small screens fold panels away; `Tab` shows each of them alone.

use ratatui::layout::Rect;

use super::draw::header;
use super::model::{Mode, Model, Panel};

/// Below this, panels become lines.
const ROOMY: (u16, u16) = (70, 20);

/// From here on there is room for a picture of the budget.
const WIDE: (u16, u16) = (110, 34);

/// The parts of the screen; what is not there has no area.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) header: Rect,
    /// Budgets as lines, where there is no panel for them.
    pub(super) strip: Rect,
    pub(super) iterations: Rect,
    pub(super) boxes: Rect,
    pub(super) budgets: Rect,
    pub(super) log: Rect,
    pub(super) message: Rect,
    pub(super) footer: Rect,
    /// Panels have frames.
    pub(super) framed: bool,
}

/// Divides the screen.
pub(super) fn plan(model: &Model, area: Rect) -> Plan {
    let mut rest = area;
    let framed = area.width >= ROOMY.0 && area.height >= ROOMY.1;
    let mut plan = Plan { framed, ..Plan::default() };
    plan.footer = bottom(&mut rest, 1);
    let lines = u16::try_from(header::lines(model, area.width).len()).unwrap_or(1);
    plan.header = top(&mut rest, lines.min(area.height / 2));
    if has_message(model) {
        plan.message = bottom(&mut rest, 1);
    }
    if let Some(panel) = model.alone {
        let place = match panel {
            Panel::Log => &mut plan.log,
            Panel::Iterations => &mut plan.iterations,
            Panel::Boxes => &mut plan.boxes,
            Panel::Budgets => &mut plan.budgets,
        };
        *place = rest;
        return plan;
    }
    let height = rest.height;
    if area.width >= WIDE.0 && area.height >= WIDE.1 {
        let log = (height * 2 / 5).max(10);
        plan.log = bottom(&mut rest, log);
        plan.budgets = right(&mut rest, area.width * 2 / 5);
        plan.iterations = top(&mut rest, (height - log) / 2);
        plan.boxes = rest;
    } else if framed {
        plan.strip = top(&mut rest, 2);
        let mut upper = top(&mut rest, ((height - 2) / 2).max(6));
        plan.log = rest;
        plan.boxes = right(&mut upper, area.width / 2);
        plan.iterations = upper;
    } else {
        plan.strip = top(&mut rest, if height > 6 { 2 } else { 1 });
        plan.log = rest;
    }
    plan
}

/// Returns how many rows of the log are seen at once.
pub(super) fn page(model: &Model, area: Rect) -> usize {
    let plan = plan(model, area);
    usize::from(plan.log.height.saturating_sub(if plan.framed { 2 } else { 1 })).max(1)
}

fn has_message(model: &Model) -> bool {
    let asking = matches!(model.mode, Mode::Stop | Mode::Words { .. });
    asking || model.asked.notice().is_some() || !model.asked.open().is_empty()
}

fn top(rest: &mut Rect, height: u16) -> Rect {
    let height = height.min(rest.height);
    let part = Rect { height, ..*rest };
    rest.y += height;
    rest.height -= height;
    part
}

fn bottom(rest: &mut Rect, height: u16) -> Rect {
    let height = height.min(rest.height);
    rest.height -= height;
    Rect { y: rest.y + rest.height, height, ..*rest }
}

fn right(rest: &mut Rect, width: u16) -> Rect {
    let width = width.min(rest.width);
    rest.width -= width;
    Rect { x: rest.x + rest.width, width, ..*rest }
}
