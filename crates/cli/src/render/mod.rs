//! Formats results as text: events, findings, tables and sparklines.

pub(crate) mod events;
pub(crate) mod findings;

/// Formats scores between 0 and 1 as a row of bars.
pub(crate) fn sparkline(scores: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let bar = |score: &f64| {
        let at = (score.clamp(0.0, 1.0) * 7.0).round();
        BARS.into_iter().enumerate().find(|(index, _)| *index as f64 >= at).map_or('█', |(_, bar)| bar)
    };
    scores.iter().map(bar).collect()
}

/// Lays rows out in columns; the last column is never padded.
pub(crate) fn align_columns(rows: &[Vec<String>]) -> Vec<String> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| visible_width(cell)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let lay = |row: &Vec<String>| {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            line.push_str(cell);
            if column + 1 < row.len() {
                let pad = widths.get(column).copied().unwrap_or(0).saturating_sub(visible_width(cell)) + 2;
                line.extend(std::iter::repeat_n(' ', pad));
            }
        }
        line.trim_end().to_owned()
    };
    rows.iter().map(lay).collect()
}

/// Returns the number of visible characters of a cell, without colour codes.
fn visible_width(cell: &str) -> usize {
    ralph_core::text::strip_control(cell).chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparks() {
        assert_eq!(sparkline(&[0.0, 0.3, 0.5, 1.0, 9.0]), "▁▃▅██");
        assert_eq!(sparkline(&[]), "");
    }

    #[test]
    fn laid_out() {
        let rows = vec![vec!["a".to_owned(), "b".to_owned()], vec!["ccc".to_owned(), "d".to_owned()]];
        assert_eq!(align_columns(&rows), ["a    b", "ccc  d"]);
    }
}
