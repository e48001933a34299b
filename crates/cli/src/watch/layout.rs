//! Divides the screen between the panels. Small screens hide panels; `Tab` shows each of them alone.

use ratatui::layout::Rect;

use super::draw::header;
use super::model::{InputMode, Panel, WatchModel};

/// Below this size, panels become lines.
const FRAMED_MIN_SIZE: (u16, u16) = (70, 20);

/// From this size on there is room for the budget chart.
const CHART_MIN_SIZE: (u16, u16) = (110, 34);

/// The parts of the screen; a hidden part has no area.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ScreenLayout {
    pub(super) header: Rect,
    /// Budgets as lines, where there is no room for their panel.
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
pub(super) fn screen_layout(model: &WatchModel, area: Rect) -> ScreenLayout {
    let mut rest = area;
    let framed = area.width >= FRAMED_MIN_SIZE.0 && area.height >= FRAMED_MIN_SIZE.1;
    let mut plan = ScreenLayout { framed, ..ScreenLayout::default() };
    plan.footer = take_bottom(&mut rest, 1);
    let lines = u16::try_from(header::lines(model, area.width).len()).unwrap_or(1);
    plan.header = take_top(&mut rest, lines.min(area.height / 2));
    if has_message(model) {
        plan.message = take_bottom(&mut rest, 1);
    }
    if let Some(panel) = model.maximized {
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
    if area.width >= CHART_MIN_SIZE.0 && area.height >= CHART_MIN_SIZE.1 {
        let log = (height * 2 / 5).max(10);
        plan.log = take_bottom(&mut rest, log);
        plan.budgets = take_right(&mut rest, area.width * 2 / 5);
        plan.iterations = take_top(&mut rest, (height - log) / 2);
        plan.boxes = rest;
    } else if framed {
        plan.strip = take_top(&mut rest, 2);
        let mut upper = take_top(&mut rest, ((height - 2) / 2).max(6));
        plan.log = rest;
        plan.boxes = take_right(&mut upper, area.width / 2);
        plan.iterations = upper;
    } else {
        plan.strip = take_top(&mut rest, if height > 6 { 2 } else { 1 });
        plan.log = rest;
    }
    plan
}

/// Returns how many rows of the log are visible at once.
pub(super) fn log_page_rows(model: &WatchModel, area: Rect) -> usize {
    let plan = screen_layout(model, area);
    usize::from(plan.log.height.saturating_sub(if plan.framed { 2 } else { 1 })).max(1)
}

fn has_message(model: &WatchModel) -> bool {
    let asking = matches!(model.mode, InputMode::ConfirmStop | InputMode::EnterText { .. });
    asking || model.run.controls.notice().is_some() || !model.run.controls.pending().is_empty()
}

fn take_top(rest: &mut Rect, height: u16) -> Rect {
    let height = height.min(rest.height);
    let part = Rect { height, ..*rest };
    rest.y += height;
    rest.height -= height;
    part
}

fn take_bottom(rest: &mut Rect, height: u16) -> Rect {
    let height = height.min(rest.height);
    rest.height -= height;
    Rect { y: rest.y + rest.height, height, ..*rest }
}

fn take_right(rest: &mut Rect, width: u16) -> Rect {
    let width = width.min(rest.width);
    rest.width -= width;
    Rect { x: rest.x + rest.width, width, ..*rest }
}
