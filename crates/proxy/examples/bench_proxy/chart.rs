//! The delays that proxies add as bars on a logarithmic scale, in colours that can be read on light and on dark.

use std::fmt::Write as _;

use crate::ralph_proxy_process::NAME;
use crate::report::ProxyBenchReport;
use crate::samples::{DIRECT, SampleSeries};

const LEFT: f64 = 170.0;
const WIDE: f64 = 480.0;
const BAR: f64 = 22.0;
const TEXT: &str = "#7d8590";
const OURS: &str = "#3081f7";
const OTHERS: &str = "#9a9fa6";
/// Less than this is noise, and has no place on a logarithmic scale.
const LEAST_MS: f64 = 0.01;

pub(crate) fn svg(table: &ProxyBenchReport) -> String {
    let shown: Vec<(&SampleSeries, Option<f64>)> = table
        .series
        .iter()
        .filter(|series| series.unit == "ms" && series.name != DIRECT)
        .map(|series| (series, table.added(series).map(|(p50, _)| p50.max(LEAST_MS))))
        .collect();
    let medians = || shown.iter().filter_map(|(_, added)| *added);
    // Whole powers of ten around everything.
    let low = medians().fold(0.1, f64::min).log10().floor();
    let high = medians().fold(1.0, f64::max).log10().ceil();
    let place = |ms: f64| WIDE * (ms.log10() - low) / (high - low);
    let mut body = String::new();
    let mut put = |line: String| writeln!(body, "{line}").expect("writing to a String cannot fail");
    let mut y = 10.0;
    let mut group = "";
    for (series, added) in shown {
        if series.group != group {
            group = series.group;
            y += 22.0;
            put(format!(r#"<text x="8" y="{y:.0}" font-weight="bold">{}</text>"#, plain(group)));
            y += 8.0;
        }
        let middle = y + BAR * 0.7;
        put(format!(r#"<text x="{:.0}" y="{middle:.0}" text-anchor="end">{}</text>"#, LEFT - 8.0, plain(&series.name)));
        match added {
            Some(added) => {
                let (wide, colour) = (place(added).max(1.0), if series.name == NAME { OURS } else { OTHERS });
                put(format!(
                    r#"<rect x="{LEFT:.0}" y="{:.0}" width="{wide:.1}" height="{:.0}" rx="2" fill="{colour}"/>"#,
                    y + 2.0,
                    BAR - 4.0
                ));
                put(format!(r#"<text x="{:.0}" y="{middle:.0}">{}</text>"#, LEFT + wide + 6.0, shown_ms(added)));
            }
            None => put(format!(r#"<text x="{LEFT:.0}" y="{middle:.0}" font-style="italic">not measured</text>"#)),
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
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" role="img" aria-label="Median delays that proxies add, in milliseconds, logarithmic">
<g font-family="system-ui,sans-serif" font-size="13" fill="{TEXT}">
{axis}{body}</g>
</svg>
"#
    )
}

fn shown_ms(ms: f64) -> String {
    if ms >= 10.0 {
        format!("{ms:.0} ms")
    } else if ms >= 1.0 {
        format!("{ms:.1} ms")
    } else {
        format!("{ms:.2} ms")
    }
}

/// Writes words as XML wants them.
fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('`', "")
}
