//! The medians as bars on a logarithmic scale, in colours that can be read on light and on dark.

use std::fmt::Write as _;

use crate::run::EMBEDDED;
use crate::series::Series;
use crate::speed::{FIRST, FURTHER};
use crate::table::Table;

const LEFT: f64 = 170.0;
const WIDE: f64 = 480.0;
const BAR: f64 = 22.0;
const TEXT: &str = "#7d8590";
const OURS: &str = "#3081f7";
const OTHERS: &str = "#9a9fa6";

pub(crate) fn svg(table: &Table) -> String {
    let shown: Vec<&Series> = table.series.iter().filter(|series| [FIRST, FURTHER].contains(&series.group)).collect();
    let medians = || shown.iter().filter_map(|series| series.p50());
    // Whole powers of ten around everything.
    let low = medians().fold(1.0, f64::min).log10().floor();
    let high = medians().fold(10.0, f64::max).log10().ceil();
    let place = |ms: f64| WIDE * (ms.log10() - low) / (high - low);
    let mut body = String::new();
    let mut put = |line: String| writeln!(body, "{line}").expect("writing to a String cannot fail");
    let mut y = 10.0;
    let mut group = "";
    for series in shown {
        if series.group != group {
            group = series.group;
            y += 22.0;
            put(format!(r#"<text x="8" y="{y:.0}" font-weight="bold">{}</text>"#, plain(group)));
            y += 8.0;
        }
        let middle = y + BAR * 0.7;
        put(format!(r#"<text x="{:.0}" y="{middle:.0}" text-anchor="end">{}</text>"#, LEFT - 8.0, plain(&series.name)));
        match series.p50() {
            Some(p50) => {
                let (wide, colour) =
                    (place(p50).max(1.0), if series.name.starts_with(EMBEDDED) { OURS } else { OTHERS });
                put(format!(
                    r#"<rect x="{LEFT:.0}" y="{:.0}" width="{wide:.1}" height="{:.0}" rx="2" fill="{colour}"/>"#,
                    y + 2.0,
                    BAR - 4.0
                ));
                put(format!(r#"<text x="{:.0}" y="{middle:.0}">{}</text>"#, LEFT + wide + 6.0, shown_ms(p50)));
            }
            None => put(format!(r#"<text x="{LEFT:.0}" y="{middle:.0}" font-style="italic">not available</text>"#)),
        }
        y += BAR;
    }
    let bottom = y + 8.0;
    let mut axis = String::new();
    let mut power = low;
    while power <= high {
        let x = LEFT + place(10_f64.powf(power));
        writeln!(
            axis,
            r#"<line x1="{x:.0}" y1="36" x2="{x:.0}" y2="{bottom:.0}" stroke="{TEXT}" stroke-opacity="0.25"/><text x="{x:.0}" y="{:.0}" text-anchor="middle" font-size="11">{}</text>"#,
            bottom + 14.0,
            shown_ms(10_f64.powf(power))
        )
        .expect("writing to a String cannot fail");
        power += 1.0;
    }
    let (width, height) = (LEFT + WIDE + 90.0, bottom + 24.0);
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" role="img" aria-label="Median times in milliseconds, logarithmic">
<g font-family="system-ui,sans-serif" font-size="13" fill="{TEXT}">
{axis}{body}</g>
</svg>
"#
    )
}

fn shown_ms(ms: f64) -> String {
    if ms >= 1000.0 {
        format!("{:.1} s", ms / 1000.0)
    } else if ms >= 10.0 {
        format!("{ms:.0} ms")
    } else {
        format!("{ms:.1} ms")
    }
}

/// Writes words as XML wants them.
fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('`', "")
}
